"""Prose with key sentences planted in it, to see which of them survive a cut.

Decides what a key sentence is: one that answers the question that is asked about its document, put
between two sentences of prose that has nothing to do with it (CPython's language reference, as in
`bench.workload`). The facts are invented; question and answer share words as people's do: some
several, some one, some only in another form. May import the standard library alone.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data import topics

_SENTENCE_END = re.compile(r"(?<=[a-z]\.)\s+(?=[A-Z])")

#: What is asked, and sentences that answer it.
_SUBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Which valves of the pump house leak, and what did the inspectors recommend?",
        (
            "Valve V-17 in the pump house has leaked since the cold week of January.",
            "The inspectors recommend that the gasket of the leaking valve be replaced by May.",
            "In the northern pump house two more valves drip, though only under full pressure.",
            "A second inspection found no leak at the outlet.",
            "Until the repair, the recommendation is to keep the house pump below four bar.",
        ),
    ),
    (
        "What did the treatment cost, and how many patients recovered?",
        (
            "Of the 214 patients who received the new treatment, 178 recovered within six weeks.",
            "Treatment costs came to 3,420 euros a patient, the hospital stay included.",
            "In the control group only 96 of 207 recovered over the same time.",
            "Recovery was slower in patients above the age of seventy.",
            "Without the follow-up visits the treatment would have cost a fifth less.",
        ),
    ),
    (
        "List the obligations of the tenant regarding noise, pets and repairs.",
        (
            "The tenant shall keep no pets other than fish without written consent.",
            "Noise that can be heard in the hallway is forbidden between ten at night and six.",
            "Small repairs up to one hundred francs are at the tenant's own expense.",
            "A pet that was admitted may be forbidden again if neighbours complain.",
            "Damage must be reported within three days, or the tenant pays for the repair.",
        ),
    ),
    (
        "When does the ferry to the island run in winter, and what does a ticket cost?",
        (
            "In winter the ferry leaves the mainland at seven and at four, Sundays excepted.",
            "A return ticket costs eighteen crowns, half of it for children.",
            "When the harbour freezes, the island is served by a bus over the causeway.",
            "Tickets are sold on board only, and only for cash.",
            "The last ferry of the winter timetable sails on the second of April.",
        ),
    ),
    (
        "Summarise what the witness said about the accident: the car, its speed, the weather.",
        (
            "The witness saw a grey car cross the line about a second before the accident.",
            "She put the car's speed at eighty, well above what the sign allows.",
            "It had been raining since noon, and the weather left leaves on the road.",
            "According to a second witness, the driver was on the phone.",
            "Neither witness heard brakes before the cars met.",
        ),
    ),
    (
        "What are the company's revenue, profit and outlook for the year?",
        (
            "Revenue rose by 12 percent to 48.1 million, mostly in the southern region.",
            "The company's net profit fell to 2.3 million because of two plant closures.",
            "For the coming year the board expects revenues between 50 and 53 million.",
            "The outlook assumes that energy prices stay where they are.",
            "Profits of the repair business doubled over the year, from a low base.",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Planted:
    """A document, what is asked about it, and the sentences in it that answer."""

    document: str
    instruction: str
    key_sentences: tuple[str, ...]


def documents(size: int, *, seed: int = 0, num_chars: int = 20_000) -> Iterator[Planted]:
    """Yield documents of about `num_chars` characters; equal seeds give equal documents."""
    choose = random.Random(seed)
    prose = [topics.topics[name].strip() for name in sorted(topics.topics)]
    for _ in range(size):
        instruction, answers = choose.choice(_SUBJECTS)
        text = _excerpt(choose, prose, num_chars)
        while len(_gaps(text)) < len(answers):  # short pieces may be all grammar
            text = _excerpt(choose, prose, num_chars)
        yield _plant(choose, text, instruction, answers)


def recall(kept: str, planted: Planted) -> float:
    """Return the share of key sentences that are in the kept text as a whole."""
    found = sum(sentence in kept for sentence in planted.key_sentences)
    return found / len(planted.key_sentences)


def _excerpt(choose: random.Random, prose: list[str], num_chars: int) -> str:
    start = choose.randrange(len(prose))
    text = ""
    while len(text) < num_chars:
        text += prose[start % len(prose)] + "\n\n"
        start += 1
    return text[:num_chars].rsplit(None, 1)[0]


def _gaps(text: str) -> list[int]:
    return [match.start() for match in _SENTENCE_END.finditer(text)]


def _plant(choose: random.Random, text: str, instruction: str, answers: tuple[str, ...]) -> Planted:
    """Put each answer between two sentences, at places drawn evenly over the whole text."""
    places = sorted(choose.sample(_gaps(text), len(answers)), reverse=True)
    for place, answer in zip(places, choose.sample(answers, len(answers)), strict=True):
        text = f"{text[:place]} {answer}{text[place:]}"
    return Planted(text, instruction, answers)
