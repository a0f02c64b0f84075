"""Phrases with which documents try to give orders to a model, by language.

Data, in lower case. Decides the wording only. May import the standard library.
"""

from collections.abc import Mapping
from dataclasses import dataclass

#: What may stand between two words: white space, with emphasis, quotes or a comma.
_GAP = r"[*_~,:\"'“”‘’«»]{0,3}+\s[\s*_~\"'“”‘’«»]{0,4}+"
_END = r"(?![^\W_])"

LANGUAGES = (
    *("English", "German", "French", "Spanish", "Portuguese", "Italian", "Dutch", "Polish"),
    *("Russian", "Ukrainian", "Turkish", "Chinese", "Japanese", "Korean", "Arabic", "Hindi"),
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase: how it may begin (a plain stem and a pattern of its endings), and its rest.

    `needs`: plain strings of which the phrase has one; a text without them is not searched for it.
    """

    stems: Mapping[str, str]
    rest: str = ""
    needs: tuple[str, ...] = ()


def _one(words: str) -> str:
    """Return a pattern of one further word out of these. All patterns are possessive: linear."""
    return f"{_GAP}(?:{words}){_END}"


def _maybe(words: str) -> str:
    return f"(?:{_one(words)})?+"


def _any(words: str) -> str:
    return f"(?:{_one(words)}){{0,8}}+"


def _some(words: str, joiners: str = "") -> str:
    """Return a pattern of words out of these; joiners may stand behind the first."""
    return _one(words) + _any(f"{words}|{joiners}" if joiners else words)


_ENGLISH_VERBS = {"ignor": "e|ing", "disregard": "|ing", "forget": "|ting"}
_ENGLISH_FILLERS = "about|all|any|and|of|the|these|those|your|my|every|such|its|other"
_ENGLISH_POINTERS = (
    "previous|previously|prior|preceding|above|earlier|foregoing|initial|original|system|safety"
    "|developer"
)
#: Of rules and commands the plural: programs ignore single ones.
_ENGLISH_NOUNS = (
    "(?:instruction|prompt|guideline|directive)s?|rules|commands|constraints|restrictions"
    "|guardrails|directions"
)

_ENGLISH = (
    Phrase(
        {
            **_ENGLISH_VERBS,
        },
        (
            _any(_ENGLISH_FILLERS)
            + _some(_ENGLISH_POINTERS, "and|or|user|given|set|of|content")
            + _one(_ENGLISH_NOUNS)
        ),
    ),
    Phrase(
        _ENGLISH_VERBS,
        _any("about|all|of|any|the|instructions|that|in")
        + _one("above|your")
        + _any("own|previous|prior|original|initial|system|core|built-in")
        + _one(
            "and (?:instead|just|only|simply|say|tell|answer|write|output|print)|instructions"
            "|directions|guidelines|programming|training|directives|constraints|text and|task and"
        ),
    ),
    Phrase(
        _ENGLISH_VERBS,
        _any(_ENGLISH_FILLERS)
        + _one("instructions|prompts|rules|guidelines|directions")
        + _any("you|i|we|that|which|were|was|have|had|been|received|given|got|gave|to|by|from|me")
        + _one("before|above|earlier|previously|so far|until now"),
    ),
    Phrase(
        {"do not follow": "", "n't follow": "", "n’t follow": "", "stop following": ""},
        _any(_ENGLISH_FILLERS)
        + _some(_ENGLISH_POINTERS)
        + _one("(?:instruction|prompt|guideline|directive)s?"),
        needs=(" follow",),
    ),
    Phrase(
        {"overrid": "e|ing", "bypass": "|ing"},
        (
            _any("all|any|of")
            + _one("your")
            + _any(f"{_ENGLISH_POINTERS}|own|content|and|or")
            + _one(f"{_ENGLISH_NOUNS}|programming|safety|training")
        ),
    ),
    Phrase(
        _ENGLISH_VERBS,
        (
            _maybe("about")
            + _one("everything|all|anything|what")
            + _any(
                "of|that|the|text|which|you|i|was|were|is|have|had|been|has|we|written|said|told"
                "|stated|learned|learnt|instructed|comes|came"
            )
            + _one(
                "above|previously|so far|up to (?:this|here|now)"
                r"|(?:before|earlier)(?=\s{0,3}(?:[.,;:!?]|\Z)| (?:this|that|now)\b)"
            )
        ),
    ),
    Phrase(
        {
            f"{verb} ": "(?:me |us |out |back )?+"
            for verb in ("reveal", "print", "output", "repeat", "leak", "disclose", "show me")
        },
        r"(?:all of )?+(?:your|the)"
        + (
            _any("full|entire|whole|exact|complete|verbatim|hidden|secret|own|internal")
            + _one(
                "system prompt|system message|system instructions|initial prompt|prompt above"
                "|initial instructions|original instructions|hidden instructions"
                "|instructions above"
            )
        ),
        needs=(" prompt", " instructions", "system message"),
    ),
    Phrase(
        {
            "you are now": "",
            "from now on": ",? you (?:are|will be|must act as)",
            "act as": "",
            "pretend to be": "",
        },
        (
            _any("an|a|in|the|no|my")
            + _one(
                "dan|developer mode|unrestricted|unfiltered|jailbroken|uncensored|longer bound"
                "|free (?:of|from) (?:all|any|your)|evil (?:ai|assistant)"
                "|(?:ai|assistant|model) (?:without|with no) (?:any )?"
                "(?:restrictions|rules|limits|filters)"
            )
        ),
    ),
    Phrase(
        {"if you": "(?: are|'re|’re) an?"},
        (
            _maybe("large")
            + _one("ai|llm|language model|chatbot|automated (?:reviewer|system|agent)")
        ),
    ),
    Phrase(
        {
            f"{opening} ai": r"(?: (?:assistant|model|agent|reviewer|system)s?)?\s?[:,!]"
            for opening in ("attention", "attention all", "note to", "note to the", "dear")
        },
        needs=(" ai",),
    ),
    Phrase({"new instruction": r"s?\s?:", "system override": "", "do anything now": ""}),
    Phrase(
        {"developer mode": "", "jailbreak mode": "", "god mode": ""},
        _any("is|now") + _one("enabled|activated|on"),
        needs=(" mode",),
    ),
)

_OTHERS = (
    # German
    Phrase(
        {"ignor": "iere?(?:n sie)?", "verg": "iss|essen sie", "missachte": "(?:n sie)?"},
        (
            _any("bitte|alle|alles|die|deine|ihre|jegliche|sämtliche|nun|jetzt")
            + _some(
                "vorherigen|bisherigen|vorigen|früheren|vorangegangenen|vorangehenden|obigen"
                "|ursprünglichen|system|sicherheits",
                "und|oder",
            )
            + _one(
                "anweisung(?:en)?|anordnung(?:en)?|instruktion(?:en)?|vorgaben?|befehle?|regeln"
                "|prompts?"
            )
        ),
    ),
    Phrase(
        {"ignorier": "en? sie|e", "vergiss": "", "vergessen sie": ""},
        _one("alles|alle anweisungen,? die|was")
        + _any("was|ich|du|wir|dir|bis|jetzt|hier|gesagt|wurde|gelernt|habe|hast|steht|man")
        + _one("davor|zuvor|vorher|bisherige|bisher|oben|vorangegangene"),
    ),
    Phrase(
        {"igen anweisungen": ""},
        (
            _any("bitte|nicht mehr|zu|sind|einfach")
            + _one("ignorieren|vergessen|missachten|hinfällig")
        ),
    ),
    # French
    Phrase(
        {
            "ignor": "e[zr]?",
            "oublie": "[zr]?",
            "pas compte": "",
        },
        (
            _any("de|toutes?|tous|les|des|vos|tes|ces")
            + _one("instructions|consignes|directives|ordres|règles")
            + _one("précédente?s|antérieure?s|ci-dessus|données|initiales|du système|reçues")
        ),
    ),
    Phrase(
        {"ignor": "e[zr]?", "oublie": "[zr]?"},
        _one("tout")
        + _one("ce")
        + _any("qui|que|est|était|a|été|dit|écrit|on|je|vous")
        + _one("précède|avant|ci-dessus|précédemment|au-dessus"),
    ),
    # Spanish and Portuguese
    Phrase(
        {
            "ignor": "a|e|ar|en|em",
            "olvid": "a|e|ar|en",
            "esque": "ça|cer|çam",
            "desconsider": "e|a|ar|em",
            "caso omiso": "",
        },
        (
            _any("de|todas?|todos?|las|los|as|os|tus|sus|suas|cualquier|quaisquer")
            + _one(
                "instrucciones|instruções|órdenes|ordens|indicaciones|reglas|regras|directrices"
                "|diretrizes|comandos"
            )
            + _one(
                "anteriores|previas|prévias|de arriba|acima|iniciales|iniciais|recibidas"
                "|del sistema|do sistema"
            )
        ),
    ),
    Phrase(
        {"ignor": "a|e|ar|en", "olvid": "a|e|ar|en", "esque": "ça|cer", "desconsider": "e|a"},
        _one("todo|tudo")
        + _any("lo|o|que|se|te|he|foi|ha|sido|dijo|dicho|dito|eu|escrito|está|esté")
        + _one("anterior|anteriormente|antes|acima|arriba|previo"),
    ),
    # Italian
    Phrase(
        {"ignor": "a(?:re|te)?", "dimentica": "(?:re|te)?"},
        (
            _any("tutte|tutti|le|gli|i|ogni")
            + _one("istruzioni|direttive|regole|indicazioni|ordini")
            + _one("precedenti|sopra|di cui sopra|iniziali|ricevute|di sistema")
        ),
    ),
    Phrase(
        {"ignor": "a(?:re|te)?", "dimentica": "(?:re|te)?"},
        _one("tutto")
        + _any("ciò|quello|che|il|è|stato|detto|scritto|ti|ho")
        + _one("precede|prima|sopra|precedentemente|precedente"),
    ),
    # Dutch
    Phrase(
        {"negeer": "", "verg": "eet"},
        (
            _any("alle|de|al|je|uw|deze")
            + _some("vorige|voorgaande|eerdere|bovenstaande|voorafgaande", "en")
            + _one("instructies|opdrachten|aanwijzingen|regels|prompts?")
        ),
    ),
    # Polish
    Phrase(
        {"ignor": "uj(?:cie)?", "zapomnij": "(?:cie)?"},
        (
            _any("o|wszystkie|wszystkich|te|swoje")
            + _some("poprzednie|poprzednich|wcześniejsze|wcześniejszych|powyższe|powyższych")
            + _one("instrukcj[ei]|polecenia|poleceń|poleceniach|instrukcjach|zasady")
        ),
    ),
    # Russian and Ukrainian
    Phrase(
        {
            "игнорируй": "(?:те)?",
            "ігноруй": "(?:те)?",
            "забудь": "(?:те)?",
            "не обращай": "(?:те)? внимания",
        },
        (
            _any("на|о|про|все|всё|всех|усі|всі|эти|ці|свои")
            + _some(
                "предыдущие|предыдущих|прежние|прежних|вышеуказанные|приведённые|приведенные|выше"
                "|попередні|попередніх|наведені|вище|системные|системні",
                "и",
            )
            + _one(
                "инструкции|инструкциях|указания|указаниях|команды|правила|інструкції"
                "|вказівки|команди"
            )
        ),
    ),
    Phrase(
        {"игнорируй": "(?:те)?", "забудь": "(?:те)?"},
        _any("про|о|об")
        + _one("всё|все|всем|обо всём|обо всем|то|том")
        + _any("что|было|тебе|тебя|я|мы|сказано|написано|говорил|говорили|просили|до")
        + _one("выше|ранее|раньше|прежде|до этого"),
    ),
    # Turkish
    Phrase(
        {"önceki": "", "yukarıdaki": ""},
        (
            _any("tüm|bütün|verilen")
            + _one("talimatları|talimatlarını|yönergeleri|komutları|kuralları")
            + _any("hepsini|tamamen")
            + _one("yok say|yok sayın|unut|unutun|görmezden gel|görmezden gelin|dikkate alma")
        ),
    ),
    # Chinese, in both scripts
    Phrase(
        {
            "忽略": "",
            "忽视": "",
            "忽視": "",
            "无视": "",
            "無視": "",
            "忘记": "",
            "忘記": "",
            "忘掉": "",
            "不要理会": "",
            "不要理會": "",
        },
        "[^。！？\n]{0,6}?(?:以上|上述|之前|先前|前面|此前|上面|所有)[^。！？\n]{0,8}?"
        "(?:指令|指示|提示|命令|说明|說明|要求|规则|規則|(?:所有|全部)的?(?:内容|內容|对话|對話))",
    ),
    Phrase(
        {"以上": "", "之前": "", "先前": "", "前面": "", "上述": ""},
        "的?(?:所有|一切|全部)?的?(?:指令|指示|提示|命令)[^。！？\n]{0,4}?(?:忽略|作废|作廢|忘)",
    ),
    # Japanese
    Phrase(
        {"前の": "", "これまでの": "", "上記の": ""},
        "(?:すべての|全ての|全)?(?:指示|命令|プロンプト|ルール|指令)(?:や[^。\n]{1,8}?)?(?:を|は)"
        "(?:すべて|全て|完全に)?(?:無視|忘れ)",
    ),
    # Korean
    Phrase(
        {"이전": "의?", "위의": "", "앞의": "", "지금까지의": ""},
        " ?(?:모든 )?(?:지시(?:사항)?|명령|프롬프트|규칙|지침)(?:들)?[을를은는]? ?"
        "(?:모두 |전부 |완전히 )?(?:무시|잊)",
    ),
    # Arabic
    Phrase(
        {"تجاهل": "|وا|ي", "انس ": ""},
        r"\s{0,3}+(?:(?:جميع|كل|كافة|هذه)\s{1,3}+){0,2}+"
        r"(?:ال)?(?:تعليمات|أوامر|توجيهات|قواعد|إرشادات)(?:ك|كم)?\s{1,3}+"
        r"(?:السابقة|أعلاه|المذكورة|الأصلية|الواردة)",
    ),
    # Hindi
    Phrase(
        {"पिछले": "", "पिछली": "", "पहले के": "", "ऊपर दिए": "(?: गए)?", "उपरोक्त": ""},
        r"\s{1,3}+(?:(?:सभी|सारे|सब)\s{1,3}+){0,2}+(?:निर्देशों|निर्देश|आदेशों|नियमों)\s{1,3}+(?:को\s{1,3}+)?+"
        r"(?:अनदेखा|नज़रअंदाज़|नजरअंदाज|भूल|अनसुना)",
    ),
)

PHRASES: tuple[Phrase, ...] = _ENGLISH + _OTHERS
