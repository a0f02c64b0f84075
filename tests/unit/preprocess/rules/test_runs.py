"""One thing repeated without end."""

import pytest

from tests.support.cases import documents
from tests.support.rules import found, look, repaired


@pytest.mark.parametrize(
    ("rule", "text", "hits", "mended"),
    [
        ("overlong_whitespace", "a" + " " * 201 + "b", (1, 1), "a b"),
        ("overlong_whitespace", "a" + " \n" * 150 + "b", (1, 1), "a\n\nb"),
        ("repeated_character", "ab" + "c" * 201 + "d", (1, 2), "abcccd"),
        ("repeated_character", "あ" * 300 + " " + "い" * 300, (2, 0), "あああ いいい"),
    ],
)
def test_overlong_runs_are_shortened_on_request(
    rule: str, text: str, hits: tuple[int, int], mended: str
) -> None:
    """A run is found whole, and a repair leaves the little that it says."""
    assert hits == look(rule, text)
    assert mended == repaired(rule, text)
    assert None is look(rule, mended)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("overlong_whitespace", "a" + " " * 200 + "b" + "\n" * 200),
        ("repeated_character", "=" * 200 + "\n" + "." * 200),
        ("repeated_character", " " * 5000),
        ("repeated_pattern", "a" * 5000),
        ("repeated_pattern", " \n" * 5000),
        ("repeated_pattern", "".join(f"row {n} of many\n" for n in range(1000))),
    ],
)
def test_rules_and_tables_are_text(rule: str, text: str) -> None:
    """Lines drawn with characters and aligned columns stay below the limits."""
    assert None is look(rule, text)


@pytest.mark.parametrize("pattern", ["ab", "poem ", "0,", "😀😁", "x" * 63 + "y"])
@pytest.mark.parametrize("start", [0, 1, 700])
def test_a_pattern_over_two_thousand_characters_is_found(pattern: str, start: int) -> None:
    """Wherever it begins, so long a repetition holds a block of nothing else."""
    words = "".join(chr(0x4E00 + n) for n in range(start))

    assert None is not look("repeated_pattern", words + (pattern * 2048)[:2047])


def test_separate_repetitions_are_counted() -> None:
    """Each stretch counts once."""
    text = "ab" * 2000 + "".join(chr(0x4E00 + n) for n in range(3000)) + "cd" * 2000

    assert (2, 0) == look("repeated_pattern", text)


def test_runs_of_others_are_found() -> None:
    """What made other tokenizers and patterns hang is flagged; prose is not."""
    expected = {
        "run-2000-20": ["overlong_whitespace"],
        "run-20000-20": ["overlong_whitespace"],
        "run-2000-a": ["overlong_whitespace"],
        "run-20000-a": ["overlong_whitespace"],
        "run-space-mid": ["overlong_whitespace"],
        "run-dots": ["repeated_pattern"],
        "run-base64": ["repeated_pattern"],
        "run-control": [],
    }
    rows = documents("v07_repeated_runs.jsonl")
    rules = {name: found(text.decode()) for name, text in rows.items()}

    assert {name: expected.get(name, ["repeated_character"]) for name in rows} == rules
