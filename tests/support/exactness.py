"""One architecture of the exactness matrix: its rows, its engines, and what transformers says.

Decides which prompts the matrix asks and how answers and scores are obtained; what must be equal is
the tests' own. Each subject is made once in a process, and its answers to rows alone are computed
once, because every part of the matrix compares with them. May import torch, transformers, numpy,
engine and tests.support.tiny_models.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine.base import Refill, Row, RowDone, Sampling, Step
from engine.options import Limits
from engine.torch_engine import TorchEngine
from tests.support.tiny_models import ARCHITECTURES

#: One token, around the windows and compression rates of 4 and 16, equal ones, and long ones.
LENGTHS = (200, 1, 17, 63, 3, 130, 16, 64, 5, 40, 5)

#: Median distance of a row's bf16 scores from its fp32 scores, relative to their length. Rounding
#: to 8 bits gives 0.8 to 2 % in these models, in transformers as in the engine.
BF16_BOUND = 0.06

#: Longer than any window, and no multiple of anything.
LONG, SHORT = 91, 33

Tokens = tuple[int, ...]


def make_prompt(seed: str, length: int) -> NDArray[np.uint32]:
    """Return a prompt that depends on its arguments alone; control tokens occur in it."""
    ids = np.random.default_rng([length, *seed.encode()]).integers(0, 320, length)
    return ids.astype(np.uint32)


def make_rows(
    lengths: Sequence[int] = LENGTHS, max_tokens: int | None = None, **sampling: Any
) -> list[Row]:
    """Return rows of these prompt lengths.

    Unless `max_tokens` is given, rows may say 10, 9, 8 … tokens, so that they end one by one.
    """
    return [
        Row(
            f"r{index}",
            make_prompt(f"r{index}", length),
            Sampling(max_tokens or max(1, 10 - index), **sampling),
        )
        for index, length in enumerate(lengths)
    ]


def _after(prefix: NDArray[np.uint32], suffix: str, length: int) -> NDArray[np.uint32]:
    """Return a prompt of a prefix and `length` tokens of its own."""
    return np.concatenate([prefix, make_prompt(suffix, length)])


def sharing_rows() -> list[Row]:
    """Return rows that share a long prefix, a part of it, all of it, or nothing."""
    prefix = make_prompt("prefix", LONG)
    rows = [
        # the first holder ends at once: what it computed is still read by the others
        Row("first", _after(prefix, "a", 17), Sampling(1), prefix_len=LONG),
        Row("last", _after(prefix, "b", 5), Sampling(12), prefix_len=LONG),
        Row("one more token", _after(prefix, "c", 1), Sampling(5), prefix_len=LONG),
        Row("longer", _after(prefix, "d", 60), Sampling(3), prefix_len=LONG),
        Row("equal", _after(prefix, "b", 5), Sampling(7), prefix_len=LONG),
        Row("equal again", _after(prefix, "b", 5), Sampling(12), prefix_len=LONG),
        Row("nothing of its own", prefix, Sampling(6), prefix_len=LONG),
        Row("the same, hint too long", prefix, Sampling(6), prefix_len=LONG + 50),
        Row("a part", _after(prefix[:SHORT], "e", 20), Sampling(8), prefix_len=SHORT),
        Row("a part, wrong hint", _after(prefix[:SHORT], "f", 70), Sampling(4), prefix_len=LONG),
        Row("a part, no hint", _after(prefix[:SHORT], "g", 2), Sampling(9)),
        Row("nothing shared", make_prompt("h", 50), Sampling(6), prefix_len=40),
    ]
    sampling: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9}
    drawn = [
        Row(f"drawn {seed}", _after(prefix, "b", 5), Sampling(6, **sampling, seed=seed))
        for seed in range(2)
    ]
    return rows + drawn


def waiting_list(rows: Sequence[Row], at_once: int = 1) -> Refill:
    """Return a refill that hands rows over in order, at most `at_once` each time it is asked."""
    waiting = list(rows)

    def refill(free: int) -> Sequence[Row]:
        taken = waiting[: min(free, at_once)]
        del waiting[: len(taken)]
        return taken

    return refill


def leaving_at(passes: dict[int, set[str]]) -> Step:
    """Return a step that lets rows go before the passes of these numbers, counted from 1."""
    count = 0

    def step() -> set[str]:
        nonlocal count
        count += 1
        return passes.get(count, set())

    return step


def run(
    engine: TorchEngine, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
) -> dict[str, Tokens]:
    """Return each row's tokens; a row that fails fails the test."""
    answers = {}
    for event in engine.run(rows, refill, step):
        assert isinstance(event, RowDone), event
        assert event.row_id not in answers
        answers[event.row_id] = event.token_ids
    return answers


class Subject:
    """A tiny model, the engines over it, and what is known about its answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = ARCHITECTURES[name]()
        self._engines: dict[tuple[str, str], TorchEngine] = {}
        self._alone: dict[tuple[Any, ...], Tokens] = {}
        self._generated: dict[tuple[Any, ...], Tokens] = {}
        self._scores: dict[bytes, Tensor] = {}

    def engine(self, dtype: str = "float32", device: str = "cpu", **limits: Any) -> TorchEngine:
        """Return an engine with these limits; the model behind it is loaded once."""
        key = dtype, device
        if key not in self._engines:
            self._engines[key] = TorchEngine.load(self.path, dtype=dtype, device=device)
        engine = copy(self._engines[key])
        engine._limits = Limits(**limits)
        return engine

    @cached_property
    def reference(self) -> Any:
        """The model as transformers loads it, in float32 on the CPU."""
        return AutoModelForCausalLM.from_pretrained(self.path, dtype=torch.float32).eval()

    def alone(self, rows: Sequence[Row], dtype: str = "float32") -> dict[str, Tokens]:
        """Return what the engine answers to each row by itself, whole."""
        return self._each(
            self._alone, rows, dtype, lambda row: run(self.engine(dtype), [row])[row.row_id]
        )

    def generated(self, rows: Sequence[Row]) -> dict[str, Tokens]:
        """Return what transformers' own `generate` answers to each row by itself."""
        return self._each(self._generated, rows, "float32", self._generate)

    def _each(
        self,
        known: dict[tuple[Any, ...], Tokens],
        rows: Sequence[Row],
        dtype: str,
        answer: Callable[[Row], Tokens],
    ) -> dict[str, Tokens]:
        answers = {}
        for row in rows:
            key = (row.prompt.tobytes(), row.sampling, dtype)
            if key not in known:
                known[key] = answer(row)
            answers[row.row_id] = known[key]
        return answers

    def _generate(self, row: Row) -> Tokens:
        ids = torch.from_numpy(row.prompt.astype(np.int64))[None]
        out = self.reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=row.sampling.max_tokens,
        )
        return tuple(out[0, len(row.prompt) :].tolist())

    def expected_scores(self, row: Row) -> Tensor:
        """Return the scores of one forward pass of transformers over a row and its own answer.

        Shapes:
            returns: [T, V], the scores that chose each token of the answer.
        """
        ids = np.append(row.prompt, self.generated([row])[row.row_id][:-1]).astype(np.int64)
        if ids.tobytes() not in self._scores:
            with torch.inference_mode():
                output = self.reference(input_ids=torch.from_numpy(ids)[None], use_cache=False)
            self._scores[ids.tobytes()] = output.logits[0]
        return self._scores[ids.tobytes()][len(row.prompt) - 1 :]


@cache
def subject(name: str) -> Subject:
    """Return the subject of an architecture, the same one each time."""
    return Subject(name)


@contextmanager
def observed_scores(engine: TorchEngine) -> Iterator[list[Tensor]]:
    """Collect all scores that an engine's model computes, each [T, V], in no promised order."""
    seen: list[Tensor] = []
    assert engine._loaded is not None
    handle = engine._loaded.model.register_forward_hook(
        lambda module, inputs, output: seen.append(output.logits.flatten(0, -2).float().cpu())
    )
    try:
        yield seen
    finally:
        handle.remove()


def errors(expected: Tensor, observed: Sequence[Tensor]) -> Tensor:
    """Return how far from each expected score vector the nearest one observed lies.

    Shapes:
        expected: [T, V].   observed: any number of [T', V].   returns: [T], relative to the
        length of the expected vector.
    """
    assert observed, "the model computed no scores where they can be seen"
    # by differences: the faster way, by products, is exact to a thousandth only
    distances: Tensor = torch.cdist(
        expected, torch.cat(list(observed)), compute_mode="donot_use_mm_for_euclid_dist"
    )
    lengths: Tensor = expected.norm(dim=1)
    return distances.amin(1) / lengths


def score_errors(model: Subject, engine: TorchEngine, rows: Sequence[Row]) -> Tensor:
    """Run rows; return how far the scores behind each answer token lie from transformers' fp32.

    Right only for rows whose answers the engine gives, or of one token.
    """
    with observed_scores(engine) as seen:
        run(engine, rows)
    return errors(torch.cat([model.expected_scores(row) for row in rows]), seen)
