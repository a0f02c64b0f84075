"""Which parts of a long document matter most for what is asked.

Decides by counting words: no model, no lists of any language's words. Kept first are the title, the
beginning, the end and the headings, then the sentences that score highest, all in their own order.
A score adds up

- BM25 of the sentence for the instruction's words,
- TextRank over shared words: what other sentences are about as well, those that answer above all,
- words of the title and the headings,
- position: earlier paragraphs, and the first sentence of each.

A sentence that was said before counts nothing. May import numpy and the other modules of this
package.

Source: Robertson & Zaragoza 2009 (BM25); Mihalcea & Tarau 2004 (TextRank), here as power iteration
over the sentence-word matrix, so that time is linear in the words; Otterbacher et al. 2005
(restarts biased by the question); Edmundson 1969 (title and position); McNamee & Mayfield 2004
(words cut to a few letters as a stemmer).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from preprocess.outline import Unit, units
from preprocess.spans import Range, Spans

Scores = NDArray[np.float64]

#: Bounds the ranges that are reported: longer documents are chosen from in larger pieces.
_MAX_PIECES = 2048
#: Hardly any sentence has fewer.
_MIN_TOKENS = 4
#: Shares of the budget for the beginning, the end and the headings.
_FIRST_SHARE, _LAST_SHARE, _HEADING_SHARE = 0.1, 0.05, 0.1
_BM25_WEIGHT, _RANK_WEIGHT, _TITLE_WEIGHT, _POSITION_WEIGHT = 1.0, 0.5, 0.3, 0.2
_K1, _B = 1.2, 0.75
_DAMPING, _ROUNDS = 0.85, 12
#: How often pieces are taken back where kept ones cost more tokens than they did in the document.
_MAX_TRIES = 8

#: Scripts that write without spaces are compared by pairs of characters.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_BETWEEN = "\0"
_WORD = re.compile(rf"(\w{{1,5}})\w*|{_BETWEEN}")
_WORD_OR_PAIR = re.compile(
    rf"(?=([{_UNSPACED}]{{2}}))[{_UNSPACED}]|([^\W{_UNSPACED}]{{1,5}})[^\W{_UNSPACED}]*|({_BETWEEN})"
)


def choices(spans: Spans, budget: int, instruction: str) -> Iterator[list[Range]]:
    """Yield what may be kept, the best first; nothing where not one piece fits.

    A later one is smaller, for where the one before has too many tokens.

    Args:
        spans: A document with more tokens than the budget.
        budget: Tokens, at least 1.
        instruction: What is asked about the document.

    Cost: some 0.15 µs a character.
    """
    pieces = _pieces(units(spans.text), len(spans.text), budget)
    if not pieces:
        return
    counts = np.array(spans.counts([0, *(piece.end for piece in pieces)]))
    costs = np.diff(counts)
    scores = score([spans.text[piece.start : piece.end] for piece in pieces], pieces, instruction)
    for attempt in range(_MAX_TRIES):
        chosen = _choose(pieces, costs, scores, budget - (2**attempt - 1))
        if not chosen.any():
            return
        yield _ranges(pieces, chosen)


def score(texts: Sequence[str], pieces: Sequence[Unit], instruction: str) -> Scores:
    """Return how much each piece matters, [pieces]."""
    words = _Words.of(texts)
    titles = " ".join(
        text for text, piece in zip(texts, pieces, strict=True) if piece.kind == "heading"
    )
    position = 1.0 - np.arange(len(texts)) / len(texts)
    opens = np.array([True, *(piece.ends == "block" for piece in pieces[:-1])])
    answering = _scaled(words.bm25(instruction))
    scores = (
        _BM25_WEIGHT * answering
        + _RANK_WEIGHT * _scaled(words.text_rank(answering))
        + _TITLE_WEIGHT * _scaled(words.bm25(titles))
        + _POSITION_WEIGHT * (0.5 * position + 0.5 * opens)
    )
    scores[~_first_of_its_kind(texts)] = 0.0
    return scores


def _pieces(found: Sequence[Unit], length: int, budget: int) -> list[Unit]:
    """Return the units, joined to at most `_MAX_PIECES` where more could be kept.

    A heading then opens a piece where it can, and stays with what follows it.
    """
    if min(len(found), budget // _MIN_TOKENS) <= _MAX_PIECES:
        return list(found)
    enough = 2 * length // _MAX_PIECES + 1
    pieces: list[Unit] = []
    start = 0
    for number, unit in enumerate(found):
        size = unit.end - start
        is_last = number + 1 == len(found)
        opens = not is_last and found[number + 1].kind == "heading" and unit.kind != "heading"
        if is_last or size >= enough or (opens and 2 * size >= enough):
            pieces.append(Unit(start, unit.end, "text", unit.ends))
            start = unit.end
    return pieces


def _choose(
    pieces: Sequence[Unit], costs: NDArray[np.int64], scores: Scores, budget: int
) -> NDArray[np.bool_]:
    """Return which pieces are kept: those with a place of their own, then by score."""
    total = len(pieces)
    headings = [number for number in range(total) if pieces[number].kind == "heading"]
    chosen = np.zeros(total, dtype=np.bool_)
    left = budget
    for order, share in (
        (range(1), 1.0),
        (range(total), _FIRST_SHARE),
        (range(total - 1, -1, -1), _LAST_SHARE),
        (headings, _HEADING_SHARE),
    ):
        for number in _as_many_as_fit(order, costs, min(left, int(budget * share))):
            left -= 0 if chosen[number] else int(costs[number])
            chosen[number] = True
    for number in np.argsort(-scores, kind="stable").tolist():
        if not chosen[number] and costs[number] <= left:
            left -= int(costs[number])
            chosen[number] = True
    return chosen


def _as_many_as_fit(order: Sequence[int], costs: NDArray[np.int64], room: int) -> Iterator[int]:
    for number in order:
        room -= int(costs[number])
        if room < 0:
            return
        yield number


def _ranges(pieces: Sequence[Unit], chosen: NDArray[np.bool_]) -> list[Range]:
    """Return the chosen pieces as ranges, neighbours joined."""
    ranges: list[Range] = []
    for number in np.flatnonzero(chosen).tolist():
        start, end = pieces[number].start, pieces[number].end
        if ranges and ranges[-1][1] == start:
            start = ranges.pop()[0]
        ranges.append((start, end))
    return ranges


@dataclass(frozen=True, slots=True)
class _Words:
    """How often each word occurs in each piece: parallel arrays, one entry a piece and word.

    `idf` says how rare each word is, by its id.
    """

    ids: dict[str, int]
    num_pieces: int
    piece: NDArray[np.int64]
    word: NDArray[np.int64]
    count: Scores
    idf: Scores

    @classmethod
    def of(cls, texts: Sequence[str]) -> "_Words":
        """Count the words of some pieces."""
        words = _words(_BETWEEN.join(text.replace(_BETWEEN, " ") for text in texts))
        ids = {word: number for number, word in enumerate(dict.fromkeys(("", *words)))}
        found = np.fromiter(map(ids.__getitem__, words), np.int64, len(words))
        # no word at all stands between two pieces
        piece = np.cumsum(found == 0)
        keys, count = np.unique((piece * len(ids) + found)[found != 0], return_counts=True)
        piece, word = np.divmod(keys, len(ids))
        spread = np.bincount(word, minlength=len(ids))
        idf = np.log1p((len(texts) - spread + 0.5) / (spread + 0.5))
        return cls(ids, len(texts), piece, word, count.astype(np.float64), idf)

    def bm25(self, query: str) -> Scores:
        """Return how well each piece answers a query, [pieces]."""
        wanted = np.zeros(len(self.ids), dtype=np.bool_)
        wanted[[self.ids[word] for word in _words(query) if word in self.ids]] = True
        length = self._sum(self.count)
        norm = _K1 * (1 - _B + _B * length / max(1.0, float(length.mean())))
        count = self.count[at := wanted[self.word]]
        weights = count * (_K1 + 1) / (count + norm[self.piece[at]]) * self.idf[self.word[at]]
        return _sums(self.piece[at], weights, self.num_pieces)

    def text_rank(self, wanted: Scores) -> Scores:
        """Return how central each piece is among the pieces that share its words, [pieces].

        Restarts go to pieces with many links and to those that are wanted: with a uniform restart
        a crowd of pieces that share nothing but "and" would rank as high as what a text is about.
        """
        weights = self.count * self.idf[self.word]
        norm = np.sqrt(self._sum(weights**2))
        weights = weights / np.where(norm > 0, norm, 1.0)[self.piece]
        itself = self._sum(weights**2)

        def linked(scores: Scores) -> Scores:
            """Return what each piece gets from all others, by likeness."""
            of_words = _sums(self.word, weights * scores[self.piece], len(self.ids))
            return self._sum(weights * of_words[self.word]) - itself * scores

        degree = linked(np.ones(self.num_pieces))
        shares = np.where(degree > 1e-9, 1.0 / np.maximum(degree, 1e-9), 0.0)
        restart = degree / max(1e-9, float(degree.mean())) + wanted / max(
            1e-9, float(wanted.mean())
        )
        rank = restart
        for _ in range(_ROUNDS):
            rank = (1.0 - _DAMPING) * restart + _DAMPING * linked(rank * shares)
        return rank

    def _sum(self, values: Scores) -> Scores:
        return _sums(self.piece, values, self.num_pieces)


def _sums(places: NDArray[np.int64], values: Scores, size: int) -> Scores:
    """Return the sum of the values at each place, [size]."""
    sums: Scores = np.bincount(places, values, size).astype(np.float64, copy=False)
    return sums


def _words(text: str) -> list[str]:
    """Return the words of a text, cut to five letters: a stemmer for every language.

    An empty one stands for each `_BETWEEN`.
    """
    text = text.lower()
    if _HAS_UNSPACED.search(text):
        return [pair or word for pair, word, _ in _WORD_OR_PAIR.findall(text)]
    found: list[str] = _WORD.findall(text)
    return found


def _scaled(scores: Scores) -> Scores:
    """Return the scores from 0 to 1."""
    lowest, highest = float(scores.min()), float(scores.max())
    return (scores - lowest) / (highest - lowest) if highest > lowest else np.zeros(len(scores))


def _first_of_its_kind(texts: Sequence[str]) -> NDArray[np.bool_]:
    seen: set[str] = set()
    is_first = np.ones(len(texts), dtype=np.bool_)
    for number, text in enumerate(map(str.strip, texts)):
        is_first[number] = text not in seen
        seen.add(text)
    return is_first
