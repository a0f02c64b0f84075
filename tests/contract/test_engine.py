"""What every engine promises a worker: one event per row, whatever happens to the others."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docmill.errors import EngineError
from engine.base import Capacity, Engine, Event, Row, RowDone, RowFailed, Sampling
from engine.fake import FakeEngine
from engine.options import Limits
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import tiny_deepseek_v4, tiny_llama

MAX_ROWS = 4
CONTEXT_LEN = 256


def fake() -> Engine:
    """Build a fake engine of the size all subjects have."""
    # each token is a pass of its own, as a model's is, and takes no time
    return FakeEngine(
        capacity=Capacity(CONTEXT_LEN, MAX_ROWS, 2048),
        token_delay_s=1.0,
        sleep=lambda seconds: None,
    )


def llama() -> Engine:
    """Build a torch engine over a tiny Llama, which runs on the packed path."""
    return torch_engine(tiny_llama())


def deepseek_v4() -> Engine:
    """Build a torch engine over a tiny DeepSeek-V4, which runs on the ragged path."""
    return torch_engine(tiny_deepseek_v4())


def torch_engine(path: Path) -> Engine:
    """Build a torch engine of the size all subjects have, in the dtype that answers exactly."""
    limits = Limits(max_rows=MAX_ROWS, max_batch_tokens=2048, chunk_tokens=64)
    return TorchEngine.load(path, dtype="float32", max_context_len=CONTEXT_LEN, limits=limits)


BUILDERS: dict[str, Callable[[], Engine]] = {
    "fake": fake,
    "llama": llama,
    "deepseek_v4": deepseek_v4,
}


@pytest.fixture(params=BUILDERS, scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Each engine in turn."""
    engine = BUILDERS[request.param]()
    yield engine
    engine.close()


def row(row_id: str, prompt_len: int, **sampling: Any) -> Row:
    """Build a row whose prompt depends on its id and length alone."""
    ids = np.random.default_rng([prompt_len, *row_id.encode()]).integers(4, 300, prompt_len)
    return Row(row_id, ids.astype(np.uint32), Sampling(**({"max_tokens": 8} | sampling)))


def answers(engine: Engine, rows: Sequence[Row]) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """Run rows and return what each row's answer says, without its timings."""
    return {
        event.row_id: (event.text, event.token_ids, event.finish_reason)
        for event in engine.run(rows)
        if isinstance(event, RowDone)
    }


def ids(events: Sequence[Event]) -> list[str]:
    """Return the row ids of events in a fixed order."""
    return sorted(event.row_id for event in events)


def test_is_an_engine(engine: Engine) -> None:
    """Each implementation has the whole protocol, and capacities that make sense."""
    assert isinstance(engine, Engine)
    assert Capacity(CONTEXT_LEN, MAX_ROWS, 2048) == engine.capacity()
    assert engine.model_name


def test_no_rows_no_events(engine: Engine) -> None:
    """An empty batch ends at once."""
    assert not list(engine.run([]))


def test_each_row_has_exactly_one_event(engine: Engine) -> None:
    """More rows than fit at once are all answered, each once."""
    rows = [row(f"r{number}", 1 + 7 * number) for number in range(3 * MAX_ROWS + 1)]

    events = list(engine.run(rows))

    assert sorted(item.row_id for item in rows) == ids(events)


def test_an_answer_does_not_depend_on_neighbours(engine: Engine) -> None:
    """A row's answer is the same alone, in a batch, and in another order."""
    rows = [row(f"r{number}", 3 + 11 * number) for number in range(6)]

    alone = {key: value for item in rows for key, value in answers(engine, [item]).items()}

    assert alone == answers(engine, rows)
    assert alone == answers(engine, rows[::-1])


def test_counts_and_limits_hold(engine: Engine) -> None:
    """No answer is longer than its limit, and cut answers say so."""
    rows = [row(f"m{limit}", 20, max_tokens=limit) for limit in (1, 2, 5, 60)]

    for event in engine.run(rows):
        assert isinstance(event, RowDone)
        limit = int(event.row_id[1:])
        assert 1 <= event.num_tokens <= limit
        assert len(event.token_ids) == event.num_tokens
        assert event.finish_reason == "stop" or event.num_tokens == limit
        assert event.prefill_s >= 0.0 <= event.decode_s


def test_a_prompt_of_one_token_is_answered(engine: Engine) -> None:
    """One token is prompt enough."""
    [event] = engine.run([row("short", 1)])

    assert isinstance(event, RowDone)


def test_the_whole_context_can_be_used(engine: Engine) -> None:
    """A prompt and an output that exactly fill the context are accepted."""
    [event] = engine.run([row("full", CONTEXT_LEN - 8)])

    assert isinstance(event, RowDone)


@pytest.mark.parametrize("prompt_len", [0, CONTEXT_LEN - 7])
def test_a_row_that_cannot_fit_fails_alone(engine: Engine, prompt_len: int) -> None:
    """An empty prompt, or one token too many, fails its row; the neighbours are answered."""
    rows = [row("a", 9), row("bad", prompt_len), row("b", 10)]

    events = {event.row_id: event for event in engine.run(rows)}

    assert isinstance(events["bad"], RowFailed)
    assert isinstance(events["bad"].error, EngineError)
    assert str(CONTEXT_LEN) in events["bad"].error.message
    assert answers(engine, [rows[0], rows[2]]) == {
        key: (event.text, event.token_ids, event.finish_reason)
        for key, event in events.items()
        if isinstance(event, RowDone)
    }


def test_refill_admits_rows_into_a_running_batch(engine: Engine) -> None:
    """Rows handed over while a batch runs are answered like any other, and never too many."""
    late = [row(f"late{number}", 5 + number) for number in range(7)]
    waiting = list(late)
    asked: list[int] = []

    def refill(free: int) -> list[Row]:
        asked.append(free)
        taken, waiting[:] = waiting[:free], waiting[free:]
        return taken

    first = row("first", 30)
    events = list(engine.run([first], refill))

    assert sorted(["first", *(item.row_id for item in late)]) == ids(events)
    assert all(1 <= free <= MAX_ROWS for free in asked)
    assert answers(engine, [first, *late]) == {
        event.row_id: (event.text, event.token_ids, event.finish_reason)
        for event in events
        if isinstance(event, RowDone)
    }


def test_closing_early_leaves_the_engine_usable(engine: Engine) -> None:
    """A caller may stop after any event and run something else."""
    rows = [row(f"r{number}", 12 + number) for number in range(MAX_ROWS)]
    running = engine.run(rows)
    next(running)

    running.close()  # type: ignore[attr-defined] # an iterator here is always a generator

    assert len(rows) == len(answers(engine, rows))


class Steps:
    """Counts the passes of a batch, and asks rows to leave before the one of a given number."""

    def __init__(self, leaving: dict[int, set[str]]) -> None:
        self.count = 0
        self._leaving = leaving

    def __call__(self) -> set[str]:
        """Take note of a pass that is about to begin."""
        self.count += 1
        return self._leaving.get(self.count, set())


def test_a_caller_hears_of_every_pass(engine: Engine) -> None:
    """However long a batch is, there is a sign of life before each token."""
    steps = Steps({})
    events = list(engine.run([row("a", 30), row("b", 200)], step=steps))

    assert ["a", "b"] == ids(events)
    assert steps.count >= max(event.num_tokens for event in events if isinstance(event, RowDone))


@pytest.mark.parametrize("when", [1, 2, 3])
def test_rows_leave_a_running_batch(engine: Engine, when: int) -> None:
    """Rows that nobody wants any more, running or waiting, end without an event; others answer.

    The prompts take several passes each, so that rows leave in mid-prefill too.
    """
    rows = [row(f"r{number}", 150 + number) for number in range(2 * MAX_ROWS + 1)]
    unwanted = {"r1", "r3", "r6"}

    events = list(engine.run(rows, step=Steps({when: unwanted | {"unknown"}})))

    assert sorted({item.row_id for item in rows} - unwanted) == ids(events)
    kept = [item for item in rows if item.row_id not in unwanted]
    assert answers(engine, kept) == {
        event.row_id: (event.text, event.token_ids, event.finish_reason)
        for event in events
        if isinstance(event, RowDone)
    }


@pytest.mark.parametrize("when", [1, 2, 4])
def test_a_batch_that_everybody_leaves_goes_on_with_what_refills_it(
    engine: Engine, when: int
) -> None:
    """Slots of rows that left are free for others, and an abandoned batch ends."""
    rows = [row(f"r{number}", 100 + number) for number in range(MAX_ROWS)]
    late = row("late", 9)
    waiting = [late]

    def refill(free: int) -> list[Row]:
        return [waiting.pop()] if waiting else []

    everybody = {item.row_id for item in rows}
    events = list(engine.run(rows, refill, Steps({when: everybody})))

    assert ["late"] == ids(events)
    assert answers(engine, [late]).keys() == {"late"}


def test_warm_changes_no_answer(engine: Engine) -> None:
    """Warming up is invisible in what is answered."""
    before = answers(engine, [row("w", 14)])

    engine.warm([row("w", 14).prompt[:6]])

    assert before == answers(engine, [row("w", 14)])


@pytest.mark.parametrize("name", BUILDERS)
def test_a_closed_engine_refuses_work(name: str) -> None:
    """After `close` there is an error rather than a wrong answer."""
    engine = BUILDERS[name]()
    engine.close()

    with pytest.raises(EngineError, match="closed"):
        list(engine.run([row("x", 3)]))
