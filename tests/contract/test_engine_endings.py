"""Where answers end: at stop strings however tokens cut them, at limits, in mid-character."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.base import Row, RowDone, Sampling
from engine.options import Limits
from engine.text import Detokenizer
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import build_tokenizer, tiny_deepseek_v4, tiny_llama

MODELS: dict[str, Callable[[], Path]] = {"llama": tiny_llama, "deepseek_v4": tiny_deepseek_v4}
DETOKENIZER = Detokenizer(build_tokenizer())
BROKEN = "\ufffd"


@pytest.fixture(params=MODELS, scope="module")
def engine(request: pytest.FixtureRequest) -> TorchEngine:
    """Each path's engine in turn, in the dtype that answers exactly."""
    path = MODELS[request.param]()
    return TorchEngine.load(path, dtype="float32", limits=Limits(max_rows=5))


def rows(**sampling: Any) -> list[Row]:
    """Build rows that are answered with some tokens, among them parts of characters."""
    random = np.random.default_rng(1)
    settings = Sampling(**({"max_tokens": 24} | sampling))
    return [
        Row(f"r{index}", random.integers(4, 320, 5 + 7 * index).astype(np.uint32), settings)
        for index in range(6)
    ]


def run(engine: TorchEngine, batch: list[Row]) -> dict[str, RowDone]:
    """Return each row's event; all must succeed."""
    events = {}
    for event in engine.run(batch):
        assert isinstance(event, RowDone), event
        events[event.row_id] = event
    return events


def stopped(row: Row, *stop: str) -> Row:
    """Return a row that ends at these strings."""
    return Row(row.row_id, row.prompt, Sampling(row.sampling.max_tokens, stop=stop))


def first_end(ids: tuple[int, ...], stop: str) -> int | None:
    """Return after how many tokens the text holds a stop string and no broken end."""
    for count in range(1, len(ids) + 1):
        text = DETOKENIZER.decode(ids[:count])
        if stop in text and not text.endswith(BROKEN):
            return count
    return None


@pytest.mark.parametrize("where", [0, 2, 7])
def test_a_stop_string_may_begin_and_end_inside_tokens(engine: TorchEngine, where: int) -> None:
    """Any three characters of an answer end it with the token that completes them."""
    whole = run(engine, rows())
    batch, ends = [], {}
    for row in rows():
        event = whole[row.row_id]
        stop = event.text[where : where + 3]
        end = first_end(event.token_ids, stop) if len(stop) == 3 else None
        if end is not None:
            batch.append(stopped(row, "never said", stop))
            ends[row.row_id] = end, event.text[: event.text.index(stop)]
    assert ends or where > 3

    for row_id, event in run(engine, batch).items():
        end, text = ends[row_id]
        assert whole[row_id].token_ids[:end] == event.token_ids
        assert (text, "stop", end) == (event.text, event.finish_reason, event.num_tokens)


def test_an_answer_may_stop_at_its_first_token(engine: TorchEngine) -> None:
    """Its text is what stands before the stop string, maybe nothing."""
    whole = run(engine, rows())
    texts = {key: DETOKENIZER.decode(event.token_ids[:1]) for key, event in whole.items()}
    batch = [
        stopped(row, texts[row.row_id][-1])
        for row in rows()
        if texts[row.row_id] and not texts[row.row_id].endswith(BROKEN)
    ]
    assert batch

    for event in run(engine, batch).values():
        assert ("stop", 1) == (event.finish_reason, event.num_tokens)
        assert texts[event.row_id][:-1].startswith(event.text)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5, 8])
def test_a_character_cut_by_the_limit_is_no_text(engine: TorchEngine, max_tokens: int) -> None:
    """The text is that of the whole characters; every token counts."""
    for event in run(engine, rows(max_tokens=max_tokens)).values():
        text = DETOKENIZER.decode([each for each in event.token_ids if each != 1])
        assert text.rstrip(BROKEN) == event.text.rstrip(BROKEN)
        assert not event.text.endswith(BROKEN)
        assert len(event.token_ids) == event.num_tokens <= max_tokens


def test_rows_of_one_token_among_others(engine: TorchEngine) -> None:
    """Their answers are the first tokens of longer ones; equal prompts share what they share."""
    whole = run(engine, rows())
    short = [Row(f"{row.row_id}-1", row.prompt, Sampling(1)) for row in rows()]

    events = run(engine, [*short, *rows()])

    for row in rows():
        assert whole[row.row_id].token_ids == events[row.row_id].token_ids
        assert whole[row.row_id].token_ids[:1] == events[f"{row.row_id}-1"].token_ids


def test_equal_prompts_are_sampled_each_by_its_own_seed(engine: TorchEngine) -> None:
    """However much of them was computed once."""
    prompt = rows()[3].prompt
    batch = [Row(f"s{seed}", prompt, Sampling(12, 1.0, 0.9, seed)) for seed in (1, 2, 3)]
    alone = {row.row_id: run(engine, [row])[row.row_id].token_ids for row in batch}
    twins = [Row(f"{row.row_id}-twin", row.prompt, row.sampling) for row in batch]

    together = run(engine, [*batch, *twins])

    assert 3 == len(set(alone.values()))
    for row in batch:
        assert alone[row.row_id] == together[row.row_id].token_ids
        assert alone[row.row_id] == together[f"{row.row_id}-twin"].token_ids
