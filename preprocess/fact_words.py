"""Small words that carry a number, a date or a denial, by language: data for `preprocess.facts`.

And words that open a sentence without being a name. Decides nothing else. Names need no list,
because they begin with a capital; nor do the months and days of languages that write those with
one. Inflected forms stand as they occur beside a day or a year. May import nothing.
"""

# ruff: noqa: RUF001 - Cyrillic and Greek letters are meant

_ENGLISH = """
    january february march april june july august september october november december jan feb apr
    jun jul aug sept oct nov dec monday tuesday wednesday thursday friday saturday sunday tues thurs
    today yesterday tomorrow tonight noon midnight am pm zero one two three four five six seven
    eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
    twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion
    dozen half third quarter twice once double triple first second fourth fifth sixth seventh eighth
    ninth tenth no not none never neither nor nobody nothing nowhere without cannot t yes true false
    eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
    twentieth thirtieth hundredth thousandth couple thrice ii iii iv vi vii viii ix xi xii xiii xiv
    xv xvi xvii xviii xix xx
"""
_GERMAN = """
    null ein eins eine einen einem einer zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
    dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig dreißig vierzig fünfzig
    sechzig siebzig achtzig neunzig hundert tausend halb doppelt einmal zweimal erste ersten erster
    zweite zweiten zweiter dritte dritten dritter vierte vierten heute gestern morgen nein nicht
    kein keine keinen keinem keiner nie niemals niemand nichts ohne ja wahr falsch
"""
_FRENCH = """
    janvier février mars avril mai juin juillet août septembre octobre novembre décembre lundi mardi
    mercredi jeudi vendredi samedi dimanche zéro un une deux trois quatre cinq six sept huit neuf
    dix onze douze treize quatorze quinze seize vingt trente quarante cinquante soixante cent cents
    mille million millions milliard milliards demi moitié premier première second seconde deuxième
    troisième aujourd'hui hier demain midi minuit non n ne pas ni jamais rien personne aucun aucune
    sans oui vrai faux
"""
_SPANISH = """
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre lunes
    martes miércoles jueves viernes sábado domingo cero un uno una dos tres cuatro cinco seis siete
    ocho nueve diez once doce trece catorce quince veinte treinta cuarenta cincuenta sesenta setenta
    ochenta noventa cien ciento mil millón millones medio mitad primer primero primera segundo
    segunda tercero tercera hoy ayer mañana no ni nunca jamás nada nadie ningún ninguno ninguna sin
    sí verdadero falso
"""
_ITALIAN = """
    gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
    lunedì martedì mercoledì giovedì venerdì sabato domenica zero un uno una due tre quattro cinque
    sei sette otto nove dieci undici dodici venti trenta quaranta cinquanta sessanta settanta
    ottanta novanta cento mille mila milione milioni miliardo miliardi mezzo metà primo prima
    secondo seconda terzo terza oggi ieri domani no non né mai niente nulla nessun nessuno nessuna
    senza sì vero falso
"""
_PORTUGUESE = """
    janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro segunda
    terça quarta quinta sexta sábado domingo zero um uma dois duas três quatro cinco seis sete oito
    nove dez onze doze vinte trinta quarenta cinquenta sessenta setenta oitenta noventa cem cento
    mil milhão milhões meio metade primeiro primeira segundo terceiro terceira hoje ontem amanhã não
    nem nunca nada ninguém nenhum nenhuma sem sim verdadeiro falso
"""
_DUTCH = """
    januari februari maart april mei juni juli augustus september oktober november december maandag
    dinsdag woensdag donderdag vrijdag zaterdag zondag nul een één twee drie vier vijf zes zeven
    acht negen tien elf twaalf twintig dertig veertig vijftig zestig zeventig tachtig negentig
    honderd duizend miljoen miljard half eerste tweede derde vandaag gisteren morgen nee niet geen
    nooit niets niemand zonder ja waar onwaar
"""
_NORTHERN = """
    januari februari mars april maj juni juli augusti augustus marts oktober desember måndag tisdag
    onsdag torsdag fredag lördag söndag mandag tirsdag lørdag søndag noll null nul ett en én et två
    tre fyra fem sex sju åtta nio tio elva tolv to fire seks syv sju otte åtte ni ti elleve tjugo
    tyve hundra hundre hundrede tusen tusind miljon million halv första andra tredje første anden
    andre tredje idag igår imorgon nej nei inte ikke icke ingen inget intet aldrig aldri utan uden
    uten ja sann falsk tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta
    elokuuta syyskuuta lokakuuta marraskuuta joulukuuta maanantaina tiistaina keskiviikkona
    torstaina perjantaina lauantaina sunnuntaina nolla yksi kaksi kolme neljä viisi kuusi seitsemän
    kahdeksan yhdeksän kymmenen sata tuhat miljoona ei eivät en et emme ette ilman tänään eilen
    huomenna
"""
_SLAVIC_LATIN = """
    stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada
    grudnia poniedziałek wtorek środa środę czwartek piątek sobota sobotę niedziela niedzielę zero
    jeden jedna jedno dwa dwie trzy cztery pięć sześć siedem osiem dziewięć dziesięć sto tysiąc
    tysiące tysięcy milion pół pierwszy drugi trzeci dziś dzisiaj wczoraj jutro nie nigdy nic nikt
    żaden bez tak ledna února března dubna května června července srpna září října listopadu
    prosince pondělí úterý středa středu čtvrtek pátek sobotu neděle neděli nula jedna dva dvě tři
    čtyři pět šest sedm osm devět deset sto tisíc milión půl první druhý třetí dnes včera zítra ne
    není nikdy nic nikdo žádný siječnja veljače ožujka travnja svibnja lipnja srpnja kolovoza rujna
    studenoga prosinca nije nisu nikada
"""
_CYRILLIC = """
    января февраля марта апреля мая июня июля августа сентября октября ноября декабря понедельник
    вторник среда среду четверг пятница пятницу суббота субботу воскресенье ноль один одна одно два
    две три четыре пять шесть семь восемь девять десять одиннадцать двенадцать двадцать тридцать
    сорок пятьдесят сто двести тысяча тысячи тысяч миллион миллиона миллионов половина первый второй
    третий сегодня вчера завтра нет не ни никогда ничего никто без да січня лютого березня квітня
    травня червня липня серпня вересня жовтня листопада грудня понеділок вівторок середа середу
    четвер п'ятниця п'ятницю субота суботу неділя неділю нуль одна дві чотири п'ять шість сім вісім
    дев'ять десять тисяча мільйон перший другий третій сьогодні вчора ні немає ніколи нічого ніхто
    так
"""
_OTHERS = """
    sıfır bir iki üç dört beş altı yedi sekiz dokuz on yirmi otuz yüz bin milyon yarım birinci
    ikinci bugün dün yarın hayır değil yok hiç asla evet ianuarie februarie martie aprilie mai iunie
    iulie septembrie octombrie noiembrie decembrie luni marți miercuri joi vineri sâmbătă duminică
    unu doi două trei patru cinci șase șapte opt nouă zece sută mie nu niciodată nimic nimeni fără
    da január február március április május június július augusztus szeptember október november
    december hétfő kedd szerda csütörtök péntek szombat vasárnap nulla egy kettő két három négy öt
    hat hét nyolc kilenc tíz száz ezer millió nem nincs soha semmi senki igen μηδέν ένα ένας μία δύο
    τρία τρεις τέσσερα πέντε έξι επτά οκτώ εννέα δέκα εκατό χίλια όχι δεν μην ποτέ τίποτα κανείς
    χωρίς ναι σήμερα χθες αύριο nol satu dua tiga empat lima enam tujuh delapan sembilan sepuluh
    ratus ribu juta tidak bukan jangan belum tanpa ya hari kemarin besok không một hai ba bốn năm
    sáu bảy tám chín mười trăm nghìn triệu tháng ngày chưa chẳng
"""

_OPENERS = """
    the a an this that these those it we you they there here in on at by for from with as if when
    while after before because since although though but and or so then also however please note
    what which where how why all any each every some most many such our your their its to is are was
    were do does did can could would should must let see thank thanks hello regards der die das dies
    diese dieser dieses wir ihr in im auf an am bei für von vom mit als wenn während nach vor
    weil obwohl aber und oder so dann auch jedoch bitte was welche wo wie warum alle jede jeder
    unser unsere zu zum zur ist sind war waren le la les l ce cette ces il nous vous
    on dans sur à au aux par pour de du des avec comme si quand après avant car mais et ou donc
    alors aussi veuillez merci que qui où comment tous toutes notre votre leur el los las este esta
    estos estas esto nosotros en por para de del con como si cuando después antes porque aunque pero
    y o entonces también por favor gracias que quien donde todos todas nuestro il lo gli questo
    questa questi queste noi nel nella per di del della con come se quando dopo perché ma e o quindi
    anche grazie che chi dove tutti tutte o os as este esta isto nós em no na por para de do da com
    como se quando depois porque mas e ou então também obrigado que quem onde todos todas de het een
    dit deze wij we in op aan bij voor van met als wanneer na omdat maar en of dus ook graag dank
    wat waar hoe alle мы вы они это этот эта эти в на по для из с как если когда после перед потому
    но и или также пожалуйста спасибо что кто где все
"""


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


#: In small letters, with straight apostrophes.
FACT_WORDS = _words(
    *(_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN, _PORTUGUESE, _DUTCH, _NORTHERN),
    *(_SLAVIC_LATIN, _CYRILLIC, _OTHERS),
)
#: Words that are no name, number or date with a capital at the start of a sentence.
OPENERS = _words(_OPENERS) - FACT_WORDS
