"""What finding near duplicates costs, and how well it does, beside two libraries that do the same.

Run as `python -m bench.near_duplicates [--runs N] [--json FILE]`. The libraries take part where
they are installed (`pip install datasketch rensa`); docmill needs neither. All look at the same
documents in turn, once they know some thousands of others: the standard library's help texts in
pieces, with every third word changed so that no two runs meet the same. Each remembers the same
number of documents and is as likely to find one that is half alike. May import preprocess,
bench.report and the libraries.
"""

import argparse
import itertools
import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Protocol

import numpy as np

from bench.report import figure, report
from preprocess.facts import facts
from preprocess.near import NearIndex

_SIZES = {"1kb": 1_000, "8kb": 8_000, "100kb": 100_000}
_MAX_DOCUMENTS = 3_000
_REPORT_FROM = 0.8
_WORD = re.compile(r"[^\W_]+")
_PROSE = "\n".join(topics[name] for name in sorted(topics))

Figures = dict[str, dict[str, Any]]


class Side(Protocol):
    """One way to find the most similar earlier document."""

    def look(self, text: str) -> tuple[int, float] | None:
        """Return which of the earlier documents is near, counted from 0, and how similar."""
        ...


class Ours:
    """preprocess.near."""

    def __init__(self) -> None:
        self._index = NearIndex(_MAX_DOCUMENTS)
        self._numbers = itertools.count()

    def look(self, text: str) -> tuple[int, float] | None:
        """Look the document up; see `Side`."""
        number = str(next(self._numbers))
        match = self._index.look("scope", text, number, "job", number)
        return (int(match.near.custom_id), match.near.similarity) if match else None


class Library:
    """A library's sketches and index; candidates compared by their sketches, the oldest dropped."""

    def __init__(self, sketch: Callable[[list[str]], Any], index: Any) -> None:
        self._sketch = sketch
        self._index = index
        self._sketches: OrderedDict[int, Any] = OrderedDict()
        self._numbers = itertools.count()

    def look(self, text: str) -> tuple[int, float] | None:
        """Look the document up; see `Side`."""
        number, sketch = next(self._numbers), self._sketch(sequences(text))
        found = [
            (sketch.jaccard(self._sketches[other]), other) for other in self._index.query(sketch)
        ]
        self._index.insert(number, sketch)
        self._sketches[number] = sketch
        if len(self._sketches) > _MAX_DOCUMENTS:
            self._index.remove(self._sketches.popitem(last=False)[0])
        similarity, nearest = max(found, default=(0.0, 0))
        return (nearest, similarity) if similarity >= _REPORT_FROM else None


def _rensa() -> Side:
    import rensa

    def sketch(parts: list[str]) -> Any:
        made = rensa.RMinHash(128, 1)
        made.update(parts)
        return made

    return Library(sketch, rensa.RMinHashLSH(0.5, 128, 32))


def _datasketch() -> Side:
    import datasketch

    def sketch(parts: list[str]) -> Any:
        made = datasketch.MinHash(128)
        made.update_batch([part.encode() for part in parts])
        return made

    return Library(sketch, datasketch.MinHashLSH(num_perm=128, params=(32, 4)))


SIDES: dict[str, Callable[[], Side]] = {
    "docmill": Ours,
    **({"rensa": _rensa} if find_spec("rensa") else {}),
    **({"datasketch": _datasketch} if find_spec("datasketch") else {}),
}


def sequences(text: str) -> list[str]:
    """Return the sequences of five words that a text consists of."""
    words = _WORD.findall(text.casefold())
    return [" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))]


def changed(text: str, share: float, choose: random.Random) -> str:
    """Return the text with this share of its words changed."""
    return " ".join(
        word + str(choose.randrange(100)) if choose.random() < share else word
        for word in text.split(" ")
    )


def speed(runs: int) -> Figures:
    """Measure the time of one document by its size, the sides in turn."""
    choose = random.Random(1)
    sides = {name: make() for name, make in SIDES.items()}
    for text in itertools.islice(_strangers(choose), _MAX_DOCUMENTS):
        for side in sides.values():
            side.look(text)
    figures: Figures = {}
    for label, size in _SIZES.items():
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        pieces = [_PROSE[start : start + size] for start in range(0, len(_PROSE) - size, size)][:60]
        for _ in range(runs):
            documents = [changed(piece, 0.3, choose) for piece in pieces]
            for name, side in sides.items():
                seconds[name].append(_seconds_each(side, documents))
        for name, each in seconds.items():
            figures[f"{name}_{label}_us"] = figure([1e6 * value for value in each], "µs a document")
    return figures


def pile() -> Figures:
    """Measure the time of one document once 1,500 share most of their text with it."""
    choose = random.Random(2)
    form = _PROSE[:4_000]
    words = _WORD.findall(_PROSE)
    documents = [f"{form} {' '.join(choose.choices(words, k=150))}" for _ in range(1_600)]
    figures: Figures = {}
    for name, make in SIDES.items():
        side = make()
        for document in documents[:-100]:
            side.look(document)
        seconds = _seconds_each(side, documents[-100:])
        figures[f"{name}_form_us"] = figure([1e6 * seconds], "µs a document")
    return figures


def quality() -> Figures:
    """Measure how far similarities are off, and the share of near duplicates that are found."""
    pieces = [_PROSE[start : start + 2_000] for start in range(0, len(_PROSE) - 2_000, 2_000)]
    figures: Figures = {}
    for name, make in SIDES.items():
        choose, side = random.Random(3), make()
        for piece in pieces:
            side.look(piece)
        errors, found = [], []
        for number, piece in enumerate(pieces):
            other = changed(piece, 0.02, choose)
            one, two = set(sequences(piece)), set(sequences(other))
            exact = len(one & two) / len(one | two)
            match = side.look(other)
            if exact >= 0.85:
                found.append(match is not None and match[0] == number)
            if match and match[0] == number:
                errors.append(match[1] - exact)
        figures[f"{name}_recall"] = figure([sum(found) / len(found)], f"of {len(found)}")
        figures[f"{name}_error"] = figure([float(np.std(errors))], "standard deviation")
    return figures


def family(num_members: int = 5) -> Figures:
    """Measure how often a copy in another form is told its original among the original's kin."""
    pieces = [_PROSE[start : start + 2_000] for start in range(0, len(_PROSE) - 2_000, 2_000)]
    figures: Figures = {}
    for name, make in SIDES.items():
        choose, side = random.Random(5), make()
        members = [
            piece if kin == 0 else changed(piece, 0.01, choose)
            for piece in pieces
            for kin in range(num_members)
        ]
        for member in members:
            side.look(member)
        originals = range(0, len(members), num_members)
        matches = [side.look(members[number].replace(" ", "  ")) for number in originals]
        named = [match and match[0] == at for at, match in zip(originals, matches, strict=True)]
        recall = sum(map(bool, named)) / len(named)
        figures[f"{name}_original_named"] = figure([recall], f"of {len(named)}")
    return figures


def reuse(per_text: int = 8) -> Figures:
    """Measure how often one change of a long text keeps its answer from being reused."""
    changes: dict[str, tuple[str, Callable[[str], str]]] = {
        "digits": (r"\b\d", lambda found: str((int(found) + 1) % 10)),
        "names": (r"(?<=[a-z,] )[A-Z][a-z]{3,}", lambda _: "Okafor"),
        "denials": (r"\bnot\b", lambda _: ""),
        "typing_errors": (r"(?<= )[a-z]{5,}(?= )", lambda found: found[:2] + found[1:]),
    }
    texts = [text for text in topics.values() if len(text) > 800]
    figures: Figures = {}
    for name, (pattern, change) in changes.items():
        choose, kept_apart = random.Random(4), []
        for text in texts:
            places = list(re.finditer(pattern, text))
            for place in choose.sample(places, min(per_text, len(places))):
                other = text[: place.start()] + change(place[0]) + text[place.end() :]
                kept_apart.append(facts(text) != facts(other))
        share = sum(kept_apart) / len(kept_apart)
        figures[f"docmill_{name}_kept_apart"] = figure([share], f"of {len(kept_apart)}")
    return figures


def _strangers(choose: random.Random) -> Iterator[str]:
    words = _WORD.findall(_PROSE)
    while True:
        yield " ".join(choose.choices(words, k=100))


def _seconds_each(side: Side, documents: Sequence[str]) -> float:
    started = time.perf_counter()
    for document in documents:
        side.look(document)
    return (time.perf_counter() - started) / len(documents)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    figures = speed(options.runs) | pile() | quality() | family() | reuse()
    report("near_duplicates", figures, options.json)


if __name__ == "__main__":
    main()
