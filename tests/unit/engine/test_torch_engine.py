"""The torch engine's answers: what they are, and that nothing else changes them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from docmill.errors import DeviceOutOfMemory, EngineError, NonFiniteLogits
from engine.base import Row, RowDone, RowFailed, Sampling
from engine.loading import LoadedModel
from engine.options import Limits
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import tiny_deepseek_v4, tiny_llama
from tests.support.tiny_models.dense import mistral

LENGTHS = (1, 5, 9, 40, 5, 150, 63, 9)


MODELS: dict[str, Callable[[], Path]] = {
    "llama": tiny_llama,
    "mistral": mistral,
    "deepseek_v4": tiny_deepseek_v4,
}


@pytest.fixture(params=MODELS, scope="module")
def model_dir(request: pytest.FixtureRequest) -> Path:
    """Each model in turn."""
    return MODELS[request.param]()


@pytest.fixture
def llama() -> TorchEngine:
    """A fresh engine over the tiny Llama, for tests that break it."""
    return load(tiny_llama())


def load(path: Path, **limits: Any) -> TorchEngine:
    """Load in the dtype in which answers are exact."""
    return TorchEngine.load(path, dtype="float32", limits=Limits(**limits))


def rows(lengths: Sequence[int] = LENGTHS, **sampling: Any) -> list[Row]:
    """Build rows of these prompt lengths, each with a prompt of its own."""
    random = np.random.default_rng(0)
    settings = Sampling(**({"max_tokens": 8} | sampling))
    return [
        Row(f"r{index}", random.integers(4, 320, length).astype(np.uint32), settings)
        for index, length in enumerate(lengths)
    ]


def tokens(engine: TorchEngine, batch: Sequence[Row]) -> dict[str, tuple[int, ...]]:
    """Return each row's tokens; every row must succeed."""
    answers = {}
    for event in engine.run(batch):
        assert isinstance(event, RowDone), event
        answers[event.row_id] = event.token_ids
    return answers


def generated(path: Path, batch: Sequence[Row]) -> dict[str, tuple[int, ...]]:
    """Return what transformers' own `generate` says, row by row."""
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    answers = {}
    for row in batch:
        ids = torch.from_numpy(row.prompt.astype(np.int64))[None]
        out = model.generate(ids, do_sample=False, max_new_tokens=row.sampling.max_tokens)
        answers[row.row_id] = tuple(out[0, len(row.prompt) :].tolist())
    return answers


def test_greedy_answers_are_those_of_generate(model_dir: Path) -> None:
    """Token for token, for prompts of mixed lengths in one batch."""
    assert generated(model_dir, rows()) == tokens(load(model_dir), rows())


@pytest.mark.parametrize(
    "limits",
    [
        {"chunk_tokens": 7},
        {"max_rows": 1},
        {"max_rows": 3, "refill_share": 0.0},
        {"max_rows": 3, "refill_share": 1.0},
        {"max_batch_tokens": 100},
    ],
    ids=str,
)
@pytest.mark.parametrize("model_dir", ["llama", "mistral"], indirect=True)
def test_limits_change_no_answer(model_dir: Path, limits: dict[str, Any]) -> None:
    """Chunked, alone, in waves, or as slots get free: every row says the same."""
    assert tokens(load(model_dir), rows()) == tokens(load(model_dir, **limits), rows())


def test_order_changes_no_answer(model_dir: Path) -> None:
    """Shuffled rows are answered like ordered ones."""
    engine = load(model_dir, max_rows=3)

    assert tokens(engine, rows()) == tokens(engine, rows()[::-1])


def test_a_sampled_answer_depends_on_its_seed_alone(model_dir: Path) -> None:
    """The same seed says the same in any company; another seed says something else."""
    engine = load(model_dir, max_rows=3)
    sampled = rows((9, 30), temperature=1.0, top_p=0.9, seed=5)
    alone = {key: value for row in sampled for key, value in tokens(engine, [row]).items()}
    crowd = [Row(f"x{row.row_id}", row.prompt, row.sampling) for row in rows()]

    together = tokens(engine, [*crowd, *sampled])
    other = tokens(engine, rows((9, 30), temperature=1.0, top_p=0.9, seed=6))

    assert alone == {key: value for key, value in together.items() if key in alone}
    assert alone != other


def test_rows_without_a_seed_differ(llama: TorchEngine) -> None:
    """No seed means fresh randomness for each row."""
    [row] = rows((9,), temperature=1.0, max_tokens=20)
    twins = [Row(name, row.prompt, row.sampling) for name in "ab"]

    answers = tokens(llama, twins)

    assert answers["a"] != answers["b"]


def test_a_stop_string_ends_its_row_early(llama: TorchEngine) -> None:
    """The text ends before the match; the tokens are those of the longer answer so far."""
    [whole] = llama.run(rows((9,), max_tokens=30))
    assert isinstance(whole, RowDone)
    stop = whole.text[6:8]

    [cut] = llama.run(rows((9,), max_tokens=30, stop=(stop,)))

    assert isinstance(cut, RowDone)
    assert (whole.text[: whole.text.index(stop)], "stop") == (cut.text, cut.finish_reason)
    assert whole.token_ids[: cut.num_tokens] == cut.token_ids
    assert cut.num_tokens < whole.num_tokens


def corrupt(engine: TorchEngine, token: int) -> None:
    """Make a token's embedding NaN, so that rows which contain it fail."""
    loaded = engine._loaded
    assert loaded is not None
    with torch.no_grad():
        loaded.model.get_input_embeddings().weight[token] = float("nan")


def test_a_row_of_nan_fails_alone(model_dir: Path) -> None:
    """Its neighbours say what they say without it, also those that take its place."""
    engine = load(model_dir, max_rows=3, refill_share=0.0)
    corrupt(engine, 4)
    clean = [Row(row.row_id, row.prompt.clip(5), row.sampling) for row in rows()]
    alone: dict[str, tuple[int, ...]] = {}
    for row in clean:
        alone |= tokens(engine, [row])
    bad = Row("bad", np.array([7, 4, 9, 9, 9], dtype=np.uint32), Sampling(12))

    events = {event.row_id: event for event in engine.run([clean[0], bad, *clean[1:]])}

    failed = events.pop("bad")
    assert isinstance(failed, RowFailed)
    assert isinstance(failed.error, NonFiniteLogits)
    assert alone == {
        key: event.token_ids for key, event in events.items() if isinstance(event, RowDone)
    }


def exhaust(monkeypatch: pytest.MonkeyPatch, engine: TorchEngine, max_tokens: int) -> None:
    """Let the model run out of memory on passes over more than `max_tokens` tokens."""
    loaded = engine._loaded
    assert loaded is not None
    forward = loaded.model.forward

    def small_only(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        if input_ids.numel() > max_tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(loaded.model, "forward", small_only)


def test_out_of_memory_halves_the_batch(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit together is answered in smaller batches, with the same answers."""
    batch = rows((10, 10, 10, 10, 10))
    expected = tokens(load(model_dir), batch)
    engine = load(model_dir)
    exhaust(monkeypatch, engine, max_tokens=25)

    assert expected == tokens(engine, batch)


def test_a_row_too_large_for_the_memory_fails_alone(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is `DeviceOutOfMemory`; the others are answered."""
    engine = load(model_dir)
    exhaust(monkeypatch, engine, max_tokens=25)

    events = {event.row_id: event for event in engine.run(rows((10, 90, 11)))}

    failed = events["r1"]
    assert isinstance(failed, RowFailed)
    assert isinstance(failed.error, DeviceOutOfMemory)
    assert [RowDone, RowDone] == [type(events[name]) for name in ("r0", "r2")]


def test_a_model_that_fails_is_an_engine_error(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the model raises reaches the caller as one of our errors."""
    engine = load(model_dir)
    loaded = engine._loaded
    assert isinstance(loaded, LoadedModel)

    def broken(**_: Any) -> Any:
        raise ValueError("a wire is loose")

    monkeypatch.setattr(loaded.model, "forward", broken)

    with pytest.raises(EngineError, match="a wire is loose"):
        list(engine.run(rows((5,))))


def test_an_error_in_refill_passes_unchanged(model_dir: Path) -> None:
    """What the caller's own function raises is the caller's."""

    def refill(_: int) -> list[Row]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(load(model_dir).run(rows((5,)), refill))


def test_rows_join_while_others_run(llama: TorchEngine) -> None:
    """A row that joins late ends late, and says what it says alone."""
    first, *late = rows((30, 5, 7), max_tokens=40)
    batches: Iterator[list[Row]] = iter([[], [], late, []])
    calls: list[int] = []

    def refill(free: int) -> list[Row]:
        calls.append(free)
        return next(batches, [])

    answers = {
        event.row_id: event.token_ids
        for event in llama.run([first], refill)
        if isinstance(event, RowDone)
    }

    assert tokens(llama, [first, *late]) == answers
    assert 3 < len(calls)


def test_warming_runs_prefixes_of_any_length(llama: TorchEngine) -> None:
    """A prefix longer than the context, or empty, is no error."""
    llama.warm([np.zeros(0, dtype=np.uint32), np.full(5000, 9, dtype=np.uint32)])
