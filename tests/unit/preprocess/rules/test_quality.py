"""How well the rules tell attacks from text."""

import pytest

from bench.rules_quality import Quality, found_in, measure, rows

#: Below 1: ciphers and paraphrases are out of reach for looking at letters and words alone.
_FLOORS = {
    "encoded_payload": 0.7,
    "escaped_text": 0.8,
    "chat_markup": 0.85,
    "prompt_injection": 0.85,
}


@pytest.fixture(scope="module")
def quality() -> dict[str, Quality]:
    """The quality of each rule on the labelled set."""
    return measure()


def test_attacks_are_found(quality: dict[str, Quality]) -> None:
    """Each rule finds at least its share of what it should find, and every rule is tried."""
    short = {
        rule: each.missed
        for rule, each in quality.items()
        if each.num_attacks < 2 or each.recall < _FLOORS.get(rule, 1)
    }

    assert {} == short


def test_legitimate_text_raises_no_alarm_but_the_known_ones() -> None:
    """Text of some fifty scripts and kinds passes; the alarms that are wrong are written down."""
    alarms = {row["id"]: found_in(row["text"]) for row in rows("legitimate")}

    assert {row["id"]: set(row.get("false_alarms", ())) for row in rows("legitimate")} == alarms


def test_no_attack_raises_other_alarms() -> None:
    """What is found beside what an attack is labelled with would be a false alarm too."""
    extra = {row["id"]: found_in(row["text"]) - set(row["rules"]) for row in rows("attacks")}

    assert {} == {name: found for name, found in extra.items() if found}


def test_the_set_covers_many_scripts() -> None:
    """At least twenty scripts have text that must pass."""
    kinds = {row["script"] for row in rows("legitimate") if not row.get("false_alarms")}

    assert len(kinds - {"Prose", "Code", "Layout", "Signs", "Emoji", "Interface"}) >= 20
