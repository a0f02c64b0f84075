"""bench.stateful: which figures it reports, and that it measures nothing where answers differ."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bench import stateful
from engine.base import Row
from tests.support.tiny_models.stateful import qwen3_next


def test_all_sides_answer_and_are_measured() -> None:
    """Every side has its rate, and the ratios are those of the sides."""
    rows = stateful.unequal_rows((3, 9), 2)

    figures = stateful.measure("tiny", qwen3_next(), 1, rows)

    rates = {f"tiny_{side}_tokens_per_s" for side in ("together", "one_by_one", "generate")}
    assert {"tiny_batch_ratio", "tiny_batch_ratio_vs_generate"} | rates == set(figures)
    together, alone = (
        figures[f"tiny_{side}_tokens_per_s"]["median"] for side in ("together", "one_by_one")
    )
    assert together / alone == pytest.approx(figures["tiny_batch_ratio"]["median"], rel=1e-3)


def test_answers_that_differ_end_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast wrong answer is no figure."""

    def wrong(_: Any) -> Callable[[Sequence[Row]], stateful.Answers]:
        return lambda rows: {row.row_id: (0, 0) for row in rows}

    monkeypatch.setattr(stateful, "generate", wrong)

    with pytest.raises(SystemExit, match="answers differ"):
        stateful.measure("tiny", qwen3_next(), 1, stateful.unequal_rows((3, 9), 2))
