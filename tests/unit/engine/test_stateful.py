"""Answers of stateful models: what they are, and that nothing else changes them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from docmill.errors import DeviceOutOfMemory, EngineFault, NonFiniteLogits
from engine.base import Event, Refill, Row, RowDone, RowFailed, Sampling, Step
from engine.batch import RunningBatch
from engine.loading import LoadedModel, load
from engine.options import Limits
from engine.ragged_batch import RaggedBatch
from engine.ragged_setup import use_ragged
from engine.stateful import GroupedBatch
from tests.support.tiny_model import tiny_deepseek_v4
from tests.support.tiny_models.stateful import qwen3_next

#: The tiny DeepSeek-V4 compresses 4 and 16 tokens and looks back 16.
LENGTHS = (1, 3, 4, 5, 15, 16, 17, 33, 64, 90)
FEW = (4, 17, 9, 30)
MAX_TOKENS = 6

PATHS: dict[str, tuple[Callable[[], Path], type[RunningBatch]]] = {
    "deepseek_v4 ragged": (tiny_deepseek_v4, RaggedBatch),
    "qwen3_next ragged": (qwen3_next, RaggedBatch),
    "deepseek_v4 grouped": (tiny_deepseek_v4, GroupedBatch),
}

Tokens = dict[str, tuple[int, ...]]


def rows(lengths: Sequence[int], **sampling: Any) -> list[Row]:
    """Build rows of these prompt lengths; what a row says depends on its length alone."""
    settings = Sampling(**({"max_tokens": MAX_TOKENS} | sampling))
    return [
        Row(
            f"r{length}",
            np.random.default_rng(length).integers(5, 320, length).astype(np.uint32),
            settings,
        )
        for length in lengths
    ]


@dataclass(eq=False, slots=True)
class Served:
    """A model on one path, and what `generate` says to each row alone."""

    loaded: LoadedModel
    batch: type[RunningBatch]
    alone: Tokens

    def events(
        self,
        batch: Sequence[Row],
        refill: Refill | None = None,
        step: Step | None = None,
        **limits: Any,
    ) -> dict[str, Event]:
        """Run rows; return what became of each."""
        running = self.batch(self.loaded, Limits(**limits), refill, step)
        return {event.row_id: event for event in running.run(batch)}

    def tokens(self, batch: Sequence[Row], *asked: Any, **limits: Any) -> Tokens:
        """Run rows, none of which may fail; return what each says."""
        answers = {}
        for row_id, event in self.events(batch, *asked, **limits).items():
            assert isinstance(event, RowDone), event
            answers[row_id] = event.token_ids
        return answers

    def expected(self, batch: Sequence[Row]) -> Tokens:
        """Return what rows say alone."""
        return {row.row_id: self.alone[row.row_id] for row in batch}


@pytest.fixture(scope="module", params=PATHS)
def served(request: pytest.FixtureRequest) -> Served:
    """Each model on each path."""
    make, batch = PATHS[request.param]
    loaded = load(make(), torch.device("cpu"), torch.float32, None)
    alone = {}
    for row in rows(sorted({*LENGTHS, *FEW})):
        ids = torch.from_numpy(row.prompt.astype(np.int64))[None]
        out = loaded.model.generate(ids, do_sample=False, max_new_tokens=MAX_TOKENS)
        alone[row.row_id] = tuple(out[0, len(row.prompt) :].tolist())
    if batch is RaggedBatch:
        assert use_ragged(loaded) is None
    return Served(loaded, batch, alone)


@pytest.fixture
def passes(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each pass of the model computes."""
    counts: list[int] = []
    forward = served.loaded.model.forward

    def counted(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        counts.append(input_ids.numel())
        return forward(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(served.loaded.model, "forward", counted)
    return counts


def test_rows_of_mixed_lengths_say_what_generate_says(served: Served) -> None:
    """Token for token, with lengths around the windows that are compressed."""
    batch = rows(LENGTHS)

    assert served.expected(batch) == served.tokens(batch)


@pytest.mark.parametrize(
    "limits",
    [
        {"chunk_tokens": 3},
        {"chunk_tokens": 16},
        {"max_rows": 1},
        {"max_rows": 3, "refill_share": 0.0},
        {"max_rows": 3, "refill_share": 1.0},
        {"max_batch_tokens": 100},
    ],
    ids=str,
)
def test_limits_and_order_change_no_answer(served: Served, limits: dict[str, Any]) -> None:
    """Cut anywhere, alone, in waves or as places get free, backwards: every row says the same."""
    batch = rows(FEW)

    assert served.expected(batch) == served.tokens(batch[::-1], **limits)


@pytest.mark.parametrize("when", range(1, 9))
def test_a_row_that_leaves_changes_no_other(served: Served, when: int) -> None:
    """Whichever pass it leaves before, in its prompt or in its answer, it has no event."""
    first, leaver, *others = rows(FEW)
    calls = 0

    def step() -> Collection[str]:
        nonlocal calls
        calls += 1
        return [leaver.row_id] if calls == when else []

    answers = served.tokens([first, leaver, *others], None, step, chunk_tokens=12)

    answers.pop(leaver.row_id, None)
    assert served.expected([first, *others]) == answers


@pytest.mark.parametrize("when", range(6))
def test_a_row_that_joins_changes_no_other(served: Served, when: int) -> None:
    """Whenever it comes, each says what it says alone."""
    *batch, late = rows(FEW)
    arrivals: Iterator[list[Row]] = iter([[] for _ in range(when)] + [[late]])

    answers = served.tokens(batch, lambda _: next(arrivals, []), refill_share=0.0)

    # a batch that has ended before anybody came ends without them
    assert served.expected([*batch, late] if late.row_id in answers else batch) == answers


def test_sampled_rows_depend_on_their_seed_alone(served: Served) -> None:
    """Company changes nothing."""
    batch = rows(FEW, temperature=1.0, top_p=0.9, seed=7)
    alone: Tokens = {}
    for row in batch:
        alone |= served.tokens([row])

    assert alone == served.tokens(batch)


def test_a_row_of_nan_fails_alone(served: Served) -> None:
    """Its neighbours say what they say without it, also one that takes its place."""
    weight = served.loaded.model.get_input_embeddings().weight
    kept = weight[4].clone()
    weight.data[4] = float("nan")  # no other row contains token 4
    first, *others = rows(FEW)
    bad = Row("bad", np.array([7, 9, 9, 9, 4], dtype=np.uint32), Sampling(max_tokens=3))

    events = served.events([first, bad, *others], max_rows=3, refill_share=0.0)
    weight.data[4] = kept

    failed = events.pop("bad")
    assert isinstance(failed, RowFailed)
    assert isinstance(failed.error, NonFiniteLogits)
    answers = {key: each.token_ids for key, each in events.items() if isinstance(each, RowDone)}
    assert served.expected([first, *others]) == answers


def test_no_pass_is_longer_than_a_chunk(served: Served, passes: list[int]) -> None:
    """A long prompt gives a sign of life before each of its chunks."""
    signs: list[int] = []
    batch = rows((90,))

    def step() -> Collection[str]:
        signs.append(len(passes))
        return []

    answers = served.tokens(batch, None, step, chunk_tokens=20)

    assert served.expected(batch) == answers
    assert [20, 20, 20, 20, 10] == passes[:5]
    assert list(range(len(passes))) == signs[: len(passes)]


def sharers() -> list[Row]:
    """Return rows that share a long beginning, part of it, all of it, or nothing."""
    long, other = (row.prompt for row in rows((90, 64)))
    prompts = {
        "first": long,
        "parts": np.concatenate([long[:50], other[:20]]),
        "equal": long,
        "within": long[:70],
        "parts early": np.concatenate([long[:40], other[:9]]),
        "nothing": other,
    }
    return [Row(name, prompt, Sampling(MAX_TOKENS)) for name, prompt in prompts.items()]


@pytest.mark.parametrize("limits", [{}, {"chunk_tokens": 11}, {"max_rows": 2}], ids=str)
def test_rows_that_share_a_beginning_say_what_each_says_alone(
    served: Served, limits: dict[str, Any]
) -> None:
    """However much is shared, and wherever passes end."""
    batch = sharers()
    alone: Tokens = {}
    for row in batch:
        alone |= served.tokens([row])

    assert alone == served.tokens(batch, **limits)


def test_a_shared_beginning_is_computed_once(served: Served, passes: list[int]) -> None:
    """What two prompts have in common is one computation; each row says what it was spared."""
    if served.batch is GroupedBatch:
        pytest.skip("rows of one group all compute their own")
    batch = sharers()

    events = served.events(batch)

    prompts = [row.prompt.tolist() for row in batch]
    distinct = {tuple(each[:end]) for each in prompts for end in range(1, len(each) + 1)}
    num_prompt = len(distinct) + 1  # of two equal prompts, each computes the last token
    spared = [each.num_cached_tokens for each in events.values() if isinstance(each, RowDone)]
    assert num_prompt == sum(map(len, prompts)) - sum(spared)
    assert num_prompt + (MAX_TOKENS - 1) * len(batch) == sum(passes)


@pytest.mark.parametrize("when", range(1, 7))
def test_a_source_that_leaves_takes_nobody_along(served: Served, when: int) -> None:
    """Rows that waited for it compute their beginning themselves."""
    batch = sharers()
    expected = served.tokens(batch[1:])
    calls = 0

    def step() -> Collection[str]:
        nonlocal calls
        calls += 1
        return ["first"] if calls == when else []

    answers = served.tokens(batch, None, step, chunk_tokens=20)

    answers.pop("first", None)
    assert expected == answers


def exhaust(served: Served, monkeypatch: pytest.MonkeyPatch, max_tokens: int) -> None:
    """Let the model run out of memory on passes over more than `max_tokens` tokens."""
    forward = served.loaded.model.forward

    def small_only(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        if input_ids.numel() > max_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(served.loaded.model, "forward", small_only)


def test_out_of_memory_halves_the_batch(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit together is answered in smaller batches; what never fits fails alone."""
    exhaust(served, monkeypatch, max_tokens=40)
    batch = rows((*FEW, 64))

    events = served.events(batch)

    failed = events.pop("r64")
    assert isinstance(failed, RowFailed)
    assert isinstance(failed.error, DeviceOutOfMemory)
    answers = {key: each.token_ids for key, each in events.items() if isinstance(each, RowDone)}
    assert served.expected(batch[:-1]) == answers


def test_a_model_that_fails_is_an_engine_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the model raises reaches the caller as one of our errors."""

    def broken(**_: Any) -> Any:
        raise ValueError("a wire is loose")

    monkeypatch.setattr(served.loaded.model, "forward", broken)

    with pytest.raises(EngineFault, match="a wire is loose"):
        served.events(rows((5,)))
