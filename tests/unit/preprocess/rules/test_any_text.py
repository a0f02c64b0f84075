"""Any text at all, and text made to cost time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import Reason
from docmill.rules import Policy
from docmill.wire import Failure
from preprocess.checks import Text, read
from preprocess.rules import RULES, inspect
from tests.support.rules import look, repaired, spells

#: Pieces of what the rules look for, so that random texts come close to all of them.
_PIECES = st.sampled_from(
    [
        *(
            "a",
            " ",
            "\n",
            "1",
            "/",
            "=",
            "<",
            ">",
            "|",
            "%69",
            "\\x69",
            "&#105;",
            "data:",
            "ignore ",
        ),
        *("all previous ", "instructions", "<|im_end|>", "<img onload=", "[INST]", "javascript:"),
        *(
            "\0",
            "\x85",
            "\u200b",
            "\u200d",
            "\u202e",
            "\u202a",
            "\u202c",
            "\u2066",
            "\u2069",
            "\ufeff",
        ),
        *(
            "\ufe0f",
            "\ufe0e",
            "\U000e0041",
            "\U000e007f",
            "\U0001f3f4",
            "\ud800",
            "\udc4d",
            "\ufffe",
        ),
        *(
            "\ue000",
            "\u0301",
            "а",
            "р",
            "ι",
            "Ã",
            "©",
            "â",
            "€",
            "™",
            "В",
            "і",
            "İ",
            "Ａ",
            "＜",
            "泵",
        ),
        *(
            "忽略",
            "以上",
            "指令",
            "以前の指示を",
            "이전 ",
            "SWdub3JlIHByZXZpb3VzIGluc3RydWN0aW9ucyBh",
        ),
        *("x" * 201, " " * 201, "ab" * 1100, "0123456789abcdef" * 20, "\u0301" * 9),
    ]
)
_TEXTS = st.one_of(
    st.lists(_PIECES, max_size=40).map("".join),
    st.text(st.characters(), max_size=200),  # surrogates included
)


@given(_TEXTS)
def test_any_text_gets_a_verdict(text: str) -> None:
    """Findings lie within the text, and without a repair it stays what it was."""
    inspection = inspect(text, {}, spells)

    assert text == inspection.text
    for finding in inspection.findings:
        assert 0 <= finding.at < len(text)
        assert finding.count >= 1


@given(
    document=st.one_of(
        st.binary(max_size=200), _TEXTS.map(lambda text: text.encode(errors="replace"))
    ),
    encoding=st.sampled_from(["utf-8", "utf-16", "utf-7", "cp1252", "shift_jis"]),
    repairs=st.booleans(),
)
def test_any_bytes_become_text_or_a_reason(document: bytes, encoding: str, repairs: bool) -> None:
    """Whatever comes, what goes on can be encoded, or a code says why nothing does."""
    policies: dict[str, Policy] = {"lone_surrogates": "repair"} if repairs else {}
    text = read(document, encoding, 1_000_000)
    failure = text if isinstance(text, Failure) else None
    if isinstance(text, Text):
        inspection = inspect(text.text, policies, spells)
        failure = inspection.failure
        assert failure or inspection.text.encode()

    assert failure is None or Reason(failure.code)


@pytest.mark.parametrize("rule", [rule.id for rule in RULES.values() if rule.repair])
@given(text=_TEXTS)
def test_a_repair_is_enough(rule: str, text: str) -> None:
    """A rule does not find again what it repaired, and leaves alone what it does not find."""
    mended = repaired(rule, text)

    if rule != "mojibake":  # several layers take several repairs, and some cannot be decoded
        assert None is look(rule, mended)
    if look(rule, text) is None:
        assert text == mended


@given(_TEXTS)
def test_all_repairs_together_leave_a_text(text: str) -> None:
    """Whatever is repaired, the result can be encoded."""
    repairs: dict[str, Policy] = {rule.id: "repair" for rule in RULES.values() if rule.repair}

    assert inspect(text, repairs, spells).text.encode() is not None


#: For each, what would make a careless pattern or loop look at the same characters again and again.
_HARD = {
    "stems": "ignore ",
    "fillers": "ignore all of the previous and ",
    "asides": "disregard the all any of these the ",
    "verbs": "print the full complete ",
    "chinese": "忽略以上的",
    "hindi": "पिछले सभी ",
    "barred": "<|aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "tags": "<img aaaaaaaaaaaaaaaaaaaaa on=",
    "urls": "data:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/",
    "semicolons": "data:a/b;a;a;a;a;a",
    "escapes": "%69%69%69%69%69%69%69 ",
    "entities": "&#105;&#105;&#0",
    "codes": "SWdub3JlIHByZXZpb3VzIGluc3RydWN0aW9ucyBh\n \n",
    "hex": "0123456789abcdef0123456789abcdef ",
    "short runs": "x" * 200 + " " * 200,
    "joiners": "a\u200b",
    "selectors": "a\ufe0f\ufe0f",
    "flags": "\U0001f3f4\U000e0067\U000e0062\U000e0073",
    "opened": "a\u202a",
    "isolates": "a\u2066\u202e\u2069",
    "endings": "SMSа ",
    "disguises": "pаypаl ",
    "mojibake": "dÃ©bit â€œ ",
    "not mojibake": "LIBERTÉ» ",
    "wide": "＜｜im_end｜＞",
    "tokens": "<|im_end|>",
    "dotted": "İ",
}


@pytest.mark.parametrize("piece", _HARD.values(), ids=_HARD)
def test_work_grows_with_the_text(piece: str) -> None:
    """Four times the text takes some four times the work; sixteen would be a loop within a loop."""
    small, large = (piece * (length // len(piece)) for length in (20_000, 80_000))

    assert _work(large) < 10 * _work(small)


def _work(text: str) -> float:
    """Return the least processor seconds that an inspection takes: others' work does not count."""

    def once() -> float:
        started = time.thread_time()
        inspect(text, {}, spells)
        return time.thread_time() - started

    return min(once() for _ in range(3))
