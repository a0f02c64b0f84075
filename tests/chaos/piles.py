"""The jobs of a run: which documents each holds, and what their results must be.

Pure: a pile follows from seed and number, so that a customer that was killed submits the same
again, and the verdict knows what was asked. May import docmill, preprocess and engine.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from docmill.errors import Reason
from docmill.results import Result
from docmill.wire import Body, Header, Prepared, Spec
from engine.base import Row, Sampling
from engine.fake import answer
from preprocess.base import Divided, Ready, Refused, Submission
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from workers.models import FAKE

#: What a customer does besides submitting and reading.
Whim = Literal["patient", "cancels", "picks", "pauses"]
#: How many deliveries a document has. Mild: more than bad luck can use up. Harsh: one, so that many
#: become dead letters; their customers let them run again.
Temper = Literal["mild", "harsh"]
DELIVERIES: dict[Temper, int] = {"mild": 1000, "harsh": 1}

#: So little that what counts as long here is cheap, and that answers are combined in rounds.
CONTEXT_LEN = 240

_WORDS = ("ash", "brook", "cliff", "dune", "eddy", "fen", "glade", "heath", "islet", "jetty")
#: Of the documents of a pile: texts that stand in it before (followers and cached answers), what
#: is answered in parts, and what cannot be used.
_INVALID: tuple[str | bytes, ...] = ("", b"\xff\xfe\x00broken \xc3", "\x00\x01\x02")
_EQUAL_SHARE, _LONG_SHARE, _INVALID_SHARE = 0.25, 0.1, 0.05
#: Words of a document in parts, of which there are two to ten.
_LONG_WORDS = (230, 1300)


@dataclass(frozen=True, slots=True)
class Pile:
    """One job of a run."""

    seed: str
    number: int
    num_documents: int
    temper: Temper = "mild"

    @classmethod
    def told(cls, arguments: Sequence[str]) -> Self:
        """Return the pile that a process was told of; see `arguments`."""
        seed, number, num_documents, temper = arguments
        return cls(seed, int(number), int(num_documents), "harsh" if temper == "harsh" else "mild")

    @property
    def arguments(self) -> tuple[str, ...]:
        """What to tell a process about this pile."""
        return (self.seed, str(self.number), str(self.num_documents), self.temper)

    @property
    def job_id(self) -> str:
        """The fixed id under which it is submitted, however often."""
        return f"pile-{self.number}"

    @property
    def tier(self) -> Literal["interactive", "batch"]:
        """Every fourth is in a hurry."""
        return "interactive" if self.number % 4 == 3 else "batch"

    @property
    def whim(self) -> Whim:
        """Most just wait; of eight, one job is cancelled, one in part, and one is paused.

        None is cancelled where documents fail by bad luck: those would not be tried again.
        """
        whims: dict[int, Whim] = {2: "cancels", 5: "picks", 6: "pauses"}
        whim = whims.get(self.number % 8, "patient")
        return "patient" if self.temper == "harsh" and whim != "pauses" else whim

    @property
    def picked(self) -> tuple[str, ...]:
        """The documents that a customer who picks cancels singly."""
        return tuple(f"d{at}" for at in range(1, self.num_documents, 7))

    def documents(self) -> dict[str, str | bytes]:
        """Return the documents by custom id."""
        chance = random.Random(f"{self.seed}/{self.number}")
        documents: list[str | bytes] = []
        for at in range(self.num_documents):
            documents.append(self._document(chance, at, documents))
        return {f"d{at}": document for at, document in enumerate(documents)}

    def _document(
        self, chance: random.Random, at: int, earlier: Sequence[str | bytes]
    ) -> str | bytes:
        draw = chance.random()
        if draw < _INVALID_SHARE:
            return chance.choice(_INVALID)
        if draw < _INVALID_SHARE + _EQUAL_SHARE and earlier:
            return chance.choice(earlier)
        is_long = draw > 1 - _LONG_SHARE
        num_words = chance.randint(*_LONG_WORDS) if is_long else chance.randint(3, 60)
        words = " ".join(chance.choices(_WORDS, k=num_words))
        return f"{self.seed} {self.number} {at} {words}"

    def submission(self) -> Iterator[tuple[str, str | bytes]]:
        """Yield what a customer submits: the documents, and one custom id a second time."""
        yield from self.documents().items()
        yield "d0", "the same id once more"

    @property
    def second_id(self) -> str:
        """The custom id under which the second use of an id is recorded."""
        return f"d0@document {self.num_documents + 1}"


class Oracle:
    """Knows what came of a document: the fake engine's answer is a pure function of the prompt."""

    def __init__(self) -> None:
        served = Served(FAKE.name, FAKE.version, CONTEXT_LEN, 16 * 1024 * 1024)
        self._preprocessor = Preprocessor(FakeTokenizer(), served, clock=lambda: 0.0)

    def problem_with(
        self, result: Result, pile: Pile, specs: Mapping[bytes, bytes], now: float
    ) -> str | None:
        """Return what is wrong with a result, if anything is."""
        if result.custom_id == pile.second_id:
            expected: Any = ("failed", None, Reason.DUPLICATE_CUSTOM_ID.value)
        else:
            expected = self._expected(result, pile.documents()[result.custom_id], specs, now)
        found = (result.outcome, result.text, result.error and result.error.code)
        return None if found == expected else f"{found} instead of {expected}"

    def _expected(
        self, result: Result, document: str | bytes, specs: Mapping[bytes, bytes], now: float
    ) -> tuple[str, str | None, str | None]:
        data = document if isinstance(document, bytes) else document.encode()
        header = Header(
            request_id=result.request_id,
            job_id=result.job_id,
            custom_id=result.custom_id,
            spec=result.spec,
            submitted_at=now,
        )
        spec = Spec.decode(specs[result.spec.encode()])
        verdict = self._verdict_on(Submission(header, spec, data), now)
        if isinstance(verdict, Refused):
            return verdict.outcome, None, verdict.failure.code
        return "succeeded", _answer(verdict.prepared), None

    def _verdict_on(self, submission: Submission, now: float) -> Ready | Refused:
        """Prepare a document as the service does: with the answers to its parts, if it has some."""
        (verdict,) = self._preprocessor.prepare([submission], now)
        if not isinstance(verdict, Divided):
            return verdict
        header = submission.header.model_copy(update={"spec": verdict.spec.digest()})
        answers: list[bytes] = []
        for text in verdict.parts:
            part = self._verdict_on(Submission(header, verdict.spec, text.encode()), now)
            assert isinstance(part, Ready), part
            answers.append(Body(text=_answer(part.prepared)).encode())
        rounds = submission.rounds + 1
        return self._verdict_on(replace(submission, answers=tuple(answers), rounds=rounds), now)


def _answer(prepared: Prepared) -> str:
    sampling = Sampling(prepared.max_tokens, prepared.temperature, prepared.top_p)
    prompt = np.frombuffer(prepared.tokens, dtype="<u4")
    return answer(Row("", prompt, sampling)).text
