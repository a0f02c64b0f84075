"""Passes of the packed path: what is computed, what is copied, and that no answer changes."""

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from docmill.errors import DeviceOutOfMemory, NonFiniteLogits
from engine.base import Event, Row, RowDone, RowFailed, Sampling
from engine.options import Limits
from engine.sampling import Chooser
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import tiny_llama

Tokens = dict[str, tuple[int, ...]]


class Watched:
    """An engine over the tiny Llama that counts the tokens of each pass."""

    def __init__(self, **limits: Any) -> None:
        self.engine = TorchEngine.load(tiny_llama(), dtype="float32", limits=Limits(**limits))
        self.passes: list[int] = []
        loaded = self.engine._loaded
        assert loaded is not None
        self.model = loaded.model
        self._forward = self.model.forward
        self.model.forward = self.forward

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        """Count a pass and compute it."""
        self.passes.append(input_ids.numel())
        return self._forward(input_ids=input_ids, **kwargs)

    def events(self, batch: Sequence[Row], **kwargs: Any) -> dict[str, Event]:
        """Run rows, counting from zero."""
        self.passes.clear()
        return {event.row_id: event for event in self.engine.run(batch, **kwargs)}

    def done(self, batch: Sequence[Row], **kwargs: Any) -> dict[str, RowDone]:
        """Run rows that must all succeed."""
        events = self.events(batch, **kwargs)
        assert all(isinstance(event, RowDone) for event in events.values()), events
        return {key: event for key, event in events.items() if isinstance(event, RowDone)}

    def alone(self, batch: Sequence[Row]) -> Tokens:
        """Answer each row on its own."""
        return {key: self.done([row])[key].token_ids for row in batch for key in [row.row_id]}


@pytest.fixture(scope="module")
def usual() -> Watched:
    """An engine with room for all rows."""
    return Watched()


def ids(length: int, seed: int = 0) -> list[int]:
    """Return random tokens."""
    drawn: list[int] = np.random.default_rng(seed).integers(4, 320, length).tolist()
    return drawn


def row(row_id: str, prompt: Sequence[int], **sampling: Any) -> Row:
    """Build a row that is answered with four tokens unless told otherwise."""
    settings = Sampling(**({"max_tokens": 4} | sampling))
    return Row(row_id, np.array(prompt, dtype=np.uint32), settings)


def tokens(done: dict[str, RowDone]) -> Tokens:
    """Return what rows say."""
    return {key: event.token_ids for key, event in done.items()}


def family() -> list[Row]:
    """Prompts that begin alike at several depths, exact duplicates among them."""
    a, b = ids(40, 1), ids(30, 2)
    return [
        row("plain", ids(25, 3)),
        row("deep", a + b + ids(9, 4)),
        row("first", a + ids(12, 5)),
        row("twin", a + ids(12, 5)),
        row("deeper", a + b + ids(9, 4) + ids(5, 6)),
        row("stem", a),
        row("short", ids(3, 7)),
    ]


def test_what_rows_share_is_computed_once(usual: Watched) -> None:
    """The prompt tokens computed are the distinct ones, and one more for each duplicate."""
    expected = usual.alone(family())

    done = usual.done(family())

    assert expected == tokens(done)
    # the stem is a beginning of others, so its last token is computed twice, as the twin's is
    distinct = 25 + 40 + 30 + 9 + 12 + 5 + 3
    assert distinct + 1 + (0 if done["stem"].num_cached_tokens == 0 else 1) == usual.passes[0]
    computed = sum(len(each.prompt) for each in family()) - usual.passes[0]
    assert computed == sum(event.num_cached_tokens for event in done.values())
    assert 51 in (done["first"].num_cached_tokens, done["twin"].num_cached_tokens)


@pytest.mark.parametrize("chunk_tokens", [1, 7, 41])
def test_borders_of_passes_change_no_answer(usual: Watched, chunk_tokens: int) -> None:
    """A beginning may be computed over several passes before it is copied."""
    small = Watched(chunk_tokens=chunk_tokens)

    done = small.done(family())

    assert usual.alone(family()) == tokens(done)
    assert 0 < sum(event.num_cached_tokens for event in done.values())
    # each row adds the one token that it is at; the rest are parts of prompts
    assert max(small.passes) <= chunk_tokens + len(family())


def test_a_row_that_joins_begins_with_what_a_live_row_holds(usual: Watched) -> None:
    """However far that row has come with its answer."""
    first, late = row("first", ids(50, 1), max_tokens=20), row("late", [*ids(50, 1), 9, 8])
    waiting = [[], [], [], [late]]

    done = usual.done([first], refill=lambda _: waiting.pop(0) if waiting else [])

    assert 50 == done["late"].num_cached_tokens
    assert [50, 1, 1, 3] == usual.passes[:4]
    assert usual.alone([first, late]) == tokens(done)


def test_a_row_whose_source_has_ended_computes_everything() -> None:
    """With room for one row at a time there is nobody to copy from."""
    single = Watched(max_rows=1)
    twins = [row("a", ids(50, 1)), row("b", ids(50, 1))]

    done = single.done(twins)

    assert 0 == done["b"].num_cached_tokens
    assert done["a"].token_ids == done["b"].token_ids


@pytest.mark.parametrize("when", [1, 2, 3, 5])
def test_sources_may_leave_at_any_pass(usual: Watched, when: int) -> None:
    """Rows that would have copied from them say the same; those that moved are copied rightly."""
    small = Watched(chunk_tokens=20)
    batch = [*family(), row("other", ids(49, 8)), row("another", ids(52, 9))]
    unwanted = {"stem", "first", "plain"}
    step = leaving({when: unwanted})

    done = small.done(batch, step=step)

    kept = [each for each in batch if each.row_id not in unwanted]
    expected = usual.alone(kept)
    assert expected == {key: value for key, value in tokens(done).items() if key in expected}


def leaving(when: dict[int, set[str]]) -> Callable[[], Collection[str]]:
    """Return a step function that names rows before passes of given numbers."""
    calls = iter(range(1, 10_000))
    return lambda: when.get(next(calls), set())


def test_live_rows_go_on_while_others_join() -> None:
    """Each pass over part of a long prompt holds one token of the row that runs."""
    small = Watched(chunk_tokens=10)
    first, late = row("first", ids(8), max_tokens=12), row("late", ids(35, 1))
    waiting = [[], [late]]

    done = small.done([first], refill=lambda _: waiting.pop(0) if waiting else [])

    assert [8, 11, 11, 11, 6, 2] == small.passes[:6]
    assert small.alone([first, late]) == tokens(done)


def corrupted(token: int, **limits: Any) -> Watched:
    """Return an engine that has no finite scores once a token was read."""
    watched = Watched(**limits)
    with torch.no_grad():
        watched.model.get_input_embeddings().weight[token] = float("nan")
    return watched


@pytest.mark.parametrize("chunk_tokens", [16, 2048])
def test_a_row_that_begins_as_a_bad_one_does_not_fail_with_it(chunk_tokens: int) -> None:
    """What it copied may have been touched by what came after; it is computed again on its own."""
    broken = corrupted(4, chunk_tokens=chunk_tokens)
    a = [token for token in ids(40, 1) if token != 4]
    bad, good = row("bad", [*a, 4, 9, 9]), row("good", [*a, 9, 9])

    events = broken.events([bad, good])

    failed, done = events["bad"], events["good"]
    assert isinstance(failed, RowFailed)
    assert isinstance(failed.error, NonFiniteLogits)
    assert isinstance(done, RowDone)
    assert broken.alone([good])["good"] == done.token_ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_scores_that_are_not_finite_fail_one_row(temperature: float, value: float) -> None:
    """One of four at its third token; the others say what they say alone."""
    watched = Watched()
    batch = [row(f"r{n}", ids(9 + n, n), temperature=temperature, seed=n) for n in range(4)]
    expected = watched.alone(batch)
    watched.passes.clear()
    spoil(watched, 1, at_pass=3, value=value)

    events = watched.events(batch)

    failed = [event for event in events.values() if isinstance(event, RowFailed)]
    assert [NonFiniteLogits] == [type(event.error) for event in failed]
    assert {"step": 2}.items() <= failed[0].error.context.items()
    others = {key: event.token_ids for key, event in events.items() if isinstance(event, RowDone)}
    assert 3 == len(others)
    assert others.items() <= expected.items()


def spoil(watched: Watched, position: int, *, at_pass: int, value: float) -> None:
    """Spoil the scores at one position of one pass: all of them if minus infinity, else one."""
    forward = watched._forward

    def spoiled(**kwargs: Any) -> Any:
        output = forward(**kwargs)
        if len(watched.passes) == at_pass:
            scores = output.logits[0, position]
            scores[slice(None) if value == float("-inf") else slice(7, 8)] = value
        return output

    watched._forward = spoiled


def test_refilled_slots_run_without_pause(usual: Watched) -> None:
    """With continuous refill a row begins in the pass after another's end."""
    eager = Watched(max_rows=2, refill_share=0.0)
    batch = [row(f"r{n}", ids(6 + n, n), max_tokens=2 + n) for n in range(5)]
    waiting: Iterator[Row] = iter(batch[2:])

    done = eager.done(
        batch[:2], refill=lambda free: [each for _, each in zip(range(free), waiting, strict=False)]
    )

    assert usual.alone(batch) == tokens(done)
    assert min(eager.passes) <= 2 <= sum(size > 2 for size in eager.passes)


class SmallMemory(Watched):
    """An engine that runs out of memory on passes over more than `most` tokens."""

    def __init__(self, most: int, **limits: Any) -> None:
        super().__init__(**limits)
        self.most = most
        self.failures = 0
        self._tensor: weakref.ref[torch.Tensor] | None = None

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        """Compute a pass that fits; of one that does not, nothing may be left by the next."""
        assert self._tensor is None or self._tensor() is None
        if input_ids.numel() > self.most:
            self.failures += 1
            activations = torch.zeros(input_ids.numel())
            self._tensor = weakref.ref(activations)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(input_ids, **kwargs)


@pytest.mark.parametrize("place", [0, 20, 31])
def test_a_row_that_never_fits_costs_the_others_little(usual: Watched, place: int) -> None:
    """It is found by halving, and the others run together again."""
    small = SmallMemory(most=340)
    batch = [row(f"r{n}", ids(10, n), max_tokens=6) for n in range(31)]
    expected = usual.alone(batch)
    batch.insert(place, row("big", ids(400)))

    events = small.events(batch)

    big = events.pop("big")
    assert isinstance(big, RowFailed)
    assert isinstance(big.error, DeviceOutOfMemory)
    assert expected == {
        key: event.token_ids for key, event in events.items() if isinstance(event, RowDone)
    }
    assert small.failures <= 6
    assert len(small.passes) <= 40


def test_a_batch_too_large_for_the_memory_is_halved(usual: Watched) -> None:
    """Also where it ran for a while, until others joined."""
    small = SmallMemory(most=45)
    first = [row(f"r{n}", ids(10, n), max_tokens=9) for n in range(4)]
    late = row("late", ids(43, 9))
    waiting = [[], [], [late]]

    done = small.done(first, refill=lambda _: waiting.pop(0) if waiting else [])

    assert usual.alone([*first, late]) == tokens(done)
    assert small.failures >= 1


def test_a_row_that_has_ended_is_told_though_another_fails_in_the_same_pass(
    usual: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may run out while a token is drawn; whoever ended before is not forgotten."""
    sampled: dict[str, Any] = {"temperature": 1.0, "seed": 1}
    batch = [row("ends", ids(9), max_tokens=1), *(row(x, ids(20, 1), **sampled) for x in "ab")]
    expected = usual.alone(batch)
    draw, failures = Chooser.draw, [MemoryError()]

    def failing(self: Chooser, scores: Any) -> int:
        if failures:
            raise failures.pop()
        return draw(self, scores)

    monkeypatch.setattr(Chooser, "draw", failing)

    assert expected == tokens(usual.done(batch))
