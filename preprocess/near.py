"""Which earlier document says almost the same as this one.

Decides how alike two documents are, which of the earlier ones to name, and whether its answer could
stand for this one's too. Whether a job allows that, the caller knows. Documents meet only inside a
scope, and of each only a sketch of fixed size is kept. Why this and no library:
docs/decisions/0010. Pure; one thread at a time. May import numpy, docmill.report and this package's
`canonical`, `facts` and `shingles`.

A sketch takes the document's shingles into bins by their hash and keeps the least of each bin (one
permutation hashing); two documents agree in as many of the filled bins as they share of their
shingles. Documents of few shingles leave bins empty, which count for neither, so short documents
are not alike for being short. To find candidates, sketches are cut into bands; a band remembers the
first of the documents that are alike and filled it so. The later ones are found by the bands in
which they differ from it: were the last remembered, a document would lose a band to each that
resembles it, and soon be found by none. Where answers may be reused a band also remembers the
first one of the same facts, or documents that differ in a number would hide each other.

Source: Li, Owen, Zhang 2012, "One permutation hashing"; Shrivastava, Li 2014, "Densifying one
permutation hashing", for the bands.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from docmill.report import Near
from preprocess.canonical import canonical
from preprocess.facts import facts
from preprocess.shingles import Hashes, shingles

Sketch = NDArray[np.uint32]  # [_BINS], 0: empty
Places = NDArray[np.intp]

#: Less similar documents are not named, unless the caller asks for less.
REPORT_FROM = 0.8
#: Documents as alike as this leave each other the bands that both fill alike; what is less alike
#: stands there by a chance of the hash, or took the slot of one that was forgotten.
_YIELD_FROM = 0.1
#: The estimate's standard error is 0.031 at most, and 0.019 at a similarity of 0.9.
_BINS = 256
_BIN_SHIFT = np.uint64(64 - 8)
_VALUE_SHIFT = np.uint64(64 - 8 - 32)
#: Four bins each: documents that are half alike have one in common with a probability of 0.98.
_BANDS = 64
_BAND = np.arange(_BANDS)[:, np.newaxis]
_BIN = np.arange(_BINS)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_STEPS = np.cumprod(np.full(_BINS // _BANDS, _STEP, np.uint64))


@dataclass(frozen=True, slots=True)
class Match:
    """An earlier document that is almost equal, and the fingerprint of its answer.

    `is_reusable`: similar enough for the caller, and no number, name or date differs.
    """

    near: Near
    fingerprint: str
    is_reusable: bool


@dataclass(frozen=True, slots=True)
class _Document:
    """An earlier document, and what was said of it.

    `facts` is empty where its answer is for nobody else.
    """

    scope: str
    custom_id: str
    job_id: str
    fingerprint: str
    facts: bytes
    match: Match | None = None

    def is_same(self, other: "_Document") -> bool:
        return (self.job_id, self.custom_id) == (other.job_id, other.custom_id)

    def keys(self) -> NDArray[np.uint64]:
        """Return what the places of its bands depend on: scope, and scope with facts, [1 or 2]."""
        scope = self.scope.encode("utf-8", "surrogatepass")
        keys = [_key(scope, checked) for checked in {b"", self.facts}]
        return np.array(keys, np.uint64)


@dataclass(frozen=True, slots=True)
class _Alike:
    slot: int
    similarity: float
    document: _Document

    def match(self, *, is_reusable: bool) -> Match:
        near = Near(
            custom_id=self.document.custom_id,
            job_id=self.document.job_id,
            similarity=round(self.similarity, 3),
        )
        return Match(near, self.document.fingerprint, is_reusable)

    def is_reusable(self, this: _Document, reuse_from: float | None) -> bool:
        is_near = reuse_from is not None and self.similarity >= reuse_from
        return is_near and this.facts != b"" and this.facts == self.document.facts


class NearIndex:
    """Remembers the documents that were of use last, each under its scope.

    Takes some 2 KB for each of `max_documents`, whatever their length.
    """

    def __init__(self, max_documents: int) -> None:
        self._max_documents = max_documents
        self._documents: OrderedDict[int, _Document] = OrderedDict()  # by slot, used last at last
        self._sketches = np.zeros((max_documents, _BINS), np.uint32)
        # up to four times as many places as documents: few of the 64 bands are lost to another one
        self._num_places = 2 << max_documents.bit_length()
        self._slots = np.zeros((_BANDS, self._num_places), np.int32)  # one more than the slot

    def __len__(self) -> int:
        return len(self._documents)

    def look(
        self,
        scope: str,
        text: str,
        custom_id: str,
        job_id: str,
        fingerprint: str,
        *,
        reuse_from: float | None = None,
    ) -> Match | None:
        """Return the most similar earlier document of the scope, and remember this one.

        One that may be reused is preferred to a more similar one that may not. Three kinds of
        documents are not remembered: those that reuse an answer, so that all who share one resemble
        the document it was given for; those that differ from earlier ones in no band; and those
        whose fingerprint an earlier one has: they are duplicates, not near ones, and None is
        returned. A document that is looked up again is told the same again.

        Args:
            scope: Documents of different scopes never meet: the tenant and all that is asked.
            text: What the model reads of the document.
            custom_id: The document's, in its job.
            job_id: The job's.
            fingerprint: The answer's; '' keeps it from being reused.
            reuse_from: From which similarity on the job takes another's answer; None: never.

        Cost: some 15 ns a character and 0.1 ms; with `reuse_from` 50 ns a character more.
        """
        text = canonical(text)
        sketch = _sketch(shingles(text))
        if sketch is None:
            return None
        may_reuse = reuse_from is not None and fingerprint != ""
        this = _Document(scope, custom_id, job_id, fingerprint, facts(text) if may_reuse else b"")
        places = self._places(sketch, this.keys())
        held = self._slots[_BAND, places]
        known = self._known(this, sketch, held)
        floor = min(REPORT_FROM, reuse_from or REPORT_FROM)
        alike = self._alike(known, floor)
        for one in alike:
            if one.document.is_same(this):
                return one.document.match
            if fingerprint and one.document.fingerprint == fingerprint:
                self._documents.move_to_end(one.slot)
                return None
        for one in alike:
            if one.is_reusable(this, reuse_from):
                self._documents.move_to_end(one.slot)
                return one.match(is_reusable=True)
        match = alike[0].match(is_reusable=False) if alike else None
        is_kin = np.zeros(self._max_documents + 1, np.bool_)
        is_kin[[slot + 1 for slot in known]] = True
        self._remember(replace(this, match=match), sketch, places, ~is_kin[held])
        return match

    def _places(self, sketch: Sketch, keys: NDArray[np.uint64]) -> Places:
        """Return where each band of the sketch has its places, [_BANDS, keys]."""
        filled = np.flatnonzero(sketch)
        # an empty bin borrows from the next filled one, and adds how far that is
        lenders = filled[np.searchsorted(filled, _BIN) % len(filled)]
        lent = sketch[lenders] + ((lenders - _BIN) % _BINS).astype(np.uint64) * _STEP
        bands = (lent.reshape(_BANDS, -1) * _STEPS).sum(axis=1)
        mixed = (bands[:, np.newaxis] ^ keys) * _STEP >> np.uint64(32)
        places: Places = mixed.astype(np.intp) % self._num_places
        return places

    def _known(self, this: _Document, sketch: Sketch, held: NDArray[np.int32]) -> dict[int, float]:
        """Return how similar the documents of the scope are that hold these places, by slot."""
        slots = [place - 1 for place in set(held.ravel().tolist()) - {0}]
        if not slots:
            return {}
        similarities = _similarities(self._sketches[slots], sketch).tolist()
        return {
            slot: similarity
            for slot, similarity in zip(slots, similarities, strict=True)
            if similarity >= _YIELD_FROM and self._documents[slot].scope == this.scope
        }

    def _alike(self, known: dict[int, float], floor: float) -> list[_Alike]:
        """Return the known documents from this similarity on, the most similar first."""
        alike = [
            _Alike(slot, similarity, self._documents[slot])
            for slot, similarity in known.items()
            if similarity >= floor
        ]
        return sorted(alike, key=lambda one: one.similarity, reverse=True)

    def _remember(
        self, document: _Document, sketch: Sketch, places: Places, is_free: NDArray[np.bool_]
    ) -> None:
        """Remember a document in those of its places that are free, if there are any."""
        if not is_free.any():
            return
        slot = len(self._documents)
        if slot == self._max_documents:
            slot, _ = self._documents.popitem(last=False)
        self._documents[slot] = document
        self._sketches[slot] = sketch
        bands, keys = np.nonzero(is_free)
        self._slots[bands, places[bands, keys]] = slot + 1


def _key(scope: bytes, checked: bytes) -> int:
    digest = hashlib.blake2b(scope, digest_size=8, key=checked).digest()
    return int.from_bytes(digest)


def _sketch(hashes: Hashes) -> Sketch | None:
    """Return the least hash of each bin, None for no hashes. Its bin is told by the upper bits."""
    if len(hashes) == 0:
        return None
    hashes = np.sort(hashes)
    bins = (hashes >> _BIN_SHIFT).astype(np.intp)
    is_first = np.ones(len(bins), np.bool_)
    np.not_equal(bins[1:], bins[:-1], out=is_first[1:])
    firsts = np.flatnonzero(is_first)
    sketch = np.zeros(_BINS, np.uint32)
    sketch[bins[firsts]] = (hashes[firsts] >> _VALUE_SHIFT).astype(np.uint32) | np.uint32(1)
    return sketch


def _similarities(sketches: Sketch, sketch: Sketch) -> NDArray[np.float64]:
    """Return in what share of the bins that either fills each of [N, _BINS] agrees."""
    is_filled = (sketches != 0) | (sketch != 0)
    agrees = (sketches == sketch) & is_filled
    shares: NDArray[np.float64] = agrees.sum(axis=1) / is_filled.sum(axis=1)
    return shares
