"""What the demo asks: real documents of every length, three questions, and some repeats."""

from collections import Counter

from workers.demo import INSTRUCTIONS, documents


def test_the_documents_are_many_and_mixed() -> None:
    """At least forty documents, from a paragraph to several pages, each with its own id."""
    lines = list(documents())
    lengths = [len(line["text"]) for line in lines]

    assert len(lines) == len({line["id"] for line in lines}) == 48
    assert min(lengths) < 400
    assert max(lengths) > 8_000


def test_all_questions_are_asked_and_some_twice() -> None:
    """Each instruction gets its share; about a tenth of the documents repeat another exactly."""
    lines = list(documents())
    asked = Counter(line["prompt"] for line in lines)
    repeats = len(lines) - len({(line["prompt"], line["text"]) for line in lines})

    assert {prompt for prompt, _ in INSTRUCTIONS} == asked.keys()
    assert min(asked.values()) >= 12
    assert repeats == 5
