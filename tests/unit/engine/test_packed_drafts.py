"""Drafts on the packed path: fewer passes, and the answers of a run without them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from docmill.errors import NonFiniteLogits
from engine import speculation
from engine.base import Event, Row, RowDone, RowFailed, Sampling
from engine.drafts import Drafter
from engine.live import LiveRow
from engine.options import Limits
from engine.speculation import PassCost, Prospect, Speculation
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import tiny_llama

LENGTHS = (1, 5, 9, 40, 5, 150)


@pytest.fixture(scope="module")
def plain() -> TorchEngine:
    """An engine that never drafts."""
    return load(max_drafts=0)


def load(**limits: Any) -> TorchEngine:
    """Load the tiny Llama in the dtype in which answers are exact."""
    return TorchEngine.load(tiny_llama(), dtype="float32", limits=Limits(**limits))


def rows(**sampling: Any) -> list[Row]:
    """Build rows of unlike lengths, answered with 30 tokens unless told otherwise."""
    random = np.random.default_rng(0)
    settings = Sampling(**({"max_tokens": 30} | sampling))
    return [
        Row(f"r{index}", random.integers(4, 320, length).astype(np.uint32), settings)
        for index, length in enumerate(LENGTHS)
    ]


def run(engine: TorchEngine, batch: Sequence[Row], **kwargs: Any) -> dict[str, Event]:
    """Return each row's event."""
    return {event.row_id: event for event in engine.run(batch, **kwargs)}


def said(events: dict[str, Event]) -> dict[str, tuple[str, tuple[int, ...], str]]:
    """Return what rows say, without their seconds; all must succeed."""
    answers: dict[str, tuple[str, tuple[int, ...], str]] = {}
    for key, event in events.items():
        assert isinstance(event, RowDone), event
        answers[key] = (event.text, event.token_ids, event.finish_reason)
    return answers


class Passes:
    """Counts the passes of an engine; may spoil the scores at one position of some of them."""

    def __init__(self, engine: TorchEngine, spoilt: Mapping[int, int] | None = None) -> None:
        loaded = engine._loaded
        assert loaded is not None
        self.count = 0
        self._spoilt = spoilt or {}
        self._forward = loaded.model.forward
        loaded.model.forward = self.forward

    def forward(self, **kwargs: Any) -> Any:
        """Compute a pass."""
        self.count += 1
        output = self._forward(**kwargs)
        if self.count in self._spoilt:
            output.logits[0, self._spoilt[self.count]] = float("nan")
        return output


def foresee(
    monkeypatch: pytest.MonkeyPatch, events: dict[str, Event], wrong: Sequence[int] = ()
) -> None:
    """Draft what rows are known to say; what is drafted at the places `wrong` is something else."""
    known = {key: event.token_ids for key, event in events.items() if isinstance(event, RowDone)}

    def plan(_: Speculation, live: Sequence[LiveRow], *, drains: bool) -> list[list[int]]:
        return [drafts(each) for each in live]

    def drafts(live: LiveRow) -> list[int]:
        start = len(live.answer.token_ids)
        ids = known[live.answer.row.row_id][start : start + min(4, live.draft_room)]
        return [(token + 1) % 320 if start + at in wrong else token for at, token in enumerate(ids)]

    monkeypatch.setattr(Speculation, "plan", plan)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_p": 0.9, "seed": 3}], ids=str)
@pytest.mark.parametrize(
    ("wrong", "most_passes"), [((), 8), ((3, 4, 11, 20), 16), (range(30), 31)], ids=str
)
def test_drafts_change_no_answer(
    plain: TorchEngine,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Sequence[int],
    most_passes: int,
    sampling: dict[str, Any],
) -> None:
    """Right, partly right or all wrong, greedy or sampled; right ones save passes."""
    expected = run(plain, rows(**sampling))
    foresee(monkeypatch, expected, wrong)
    engine = load()
    passes = Passes(engine)

    assert said(expected) == said(run(engine, rows(**sampling)))
    assert passes.count <= most_passes


def test_drafts_change_no_answer_while_rows_come_and_go(
    plain: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In few slots, beside parts of prompts, in slots that others have left."""
    expected = run(plain, rows())
    foresee(monkeypatch, expected, (2, 9, 10))

    assert said(expected) == said(run(load(max_rows=2, chunk_tokens=16), rows()[::-1]))


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_no_more_is_drafted_than_may_be_said(
    plain: TorchEngine, monkeypatch: pytest.MonkeyPatch, max_tokens: int
) -> None:
    """Up to the very end of an answer, and of its slot."""
    foresee(monkeypatch, run(plain, rows()))

    expected = said(run(plain, rows(max_tokens=max_tokens)))
    assert expected == said(run(load(), rows(max_tokens=max_tokens)))


def test_an_answer_may_end_inside_drafts(
    plain: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the token that completes a stop string; what was drafted behind it is not counted."""
    whole = run(plain, rows())
    stops = []
    for event in whole.values():
        assert isinstance(event, RowDone)
        stops.append(event.text[5:7] or "never")
    batch = [
        Row(row.row_id, row.prompt, Sampling(30, stop=(stop,)))
        for row, stop in zip(rows(), stops, strict=True)
    ]
    expected = run(plain, batch)
    foresee(monkeypatch, whole)

    assert said(expected) == said(run(load(), batch))
    assert said(expected) != said(whole)


def test_scores_behind_a_right_draft_that_are_not_finite_fail_the_row(
    plain: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they would without drafts: at that token, which is computed once more without them."""
    [row] = rows()[3:4]
    foresee(monkeypatch, run(plain, [row]))
    engine = load()
    Passes(engine, spoilt={2: 1, 3: 0})

    [event] = run(engine, [row]).values()

    assert isinstance(event, RowFailed)
    assert isinstance(event.error, NonFiniteLogits)
    assert 2 == event.error.context["step"]


def test_scores_behind_a_wrong_draft_do_not_matter(
    plain: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what was computed of it: a token whose values are not finite is drafted in vain."""
    row = next(each for each in rows() if len(each.prompt) > 1 and 319 not in each.prompt)
    engine = load()
    loaded = engine._loaded
    assert loaded is not None
    with torch.no_grad():
        loaded.model.get_input_embeddings().weight[319] = float("nan")
    monkeypatch.setattr(Speculation, "plan", lambda _, live, drains: [[] for _ in live])
    expected = said(run(engine, [row]))
    assert 319 not in expected[row.row_id][1]
    monkeypatch.setattr(
        Speculation,
        "plan",
        lambda _, live, drains: [[319, 319][: each.draft_room] for each in live],
    )

    assert expected == said(run(engine, [row]))


def test_where_drafts_cost_nothing_all_proposals_are_computed(
    plain: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer passes than tokens are needed if they are right."""
    batch = rows(max_tokens=60)[:1]
    expected = run(plain, batch)
    ids = said(expected)["r0"][1]
    spoken: list[int] = []
    monkeypatch.setattr(Drafter, "push", lambda _, token: spoken.append(token))
    monkeypatch.setattr(
        Drafter, "propose", lambda _, limit: (list(ids[len(spoken) :][:limit]), 0.9)
    )
    monkeypatch.setattr(PassCost, "per_token", 0.0)
    monkeypatch.setattr(PassCost, "per_run", 0.0)
    monkeypatch.setattr(PassCost, "base", 1.0)
    engine = load()
    passes = Passes(engine)

    assert said(expected) == said(run(engine, batch))
    # one at a time until enough passes were measured, then eight at a time
    assert 5 + (60 - 5) // 8 + 1 >= passes.count


def test_measured_passes_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass is observed, and nothing is drafted before some were."""
    seen: list[tuple[int, int]] = []
    planned: list[int] = []

    def observe(_: PassCost, num_tokens: int, num_runs: int, seconds: float) -> None:
        assert seconds > 0
        seen.append((num_tokens, num_runs))

    def plan(prospects: Sequence[Prospect], cost: PassCost, *, drains: bool) -> list[int]:
        planned.append(len(seen))
        return [0] * len(prospects)

    monkeypatch.setattr(PassCost, "observe", observe)
    monkeypatch.setattr(speculation, "plan_drafts", plan)

    run(load(), rows(max_tokens=8)[3:5])

    assert [(45, 2), (2, 0), (2, 0)] == seen[:3]
    assert [5, 6, 7] == planned


def test_a_batch_drains_once_nobody_joins_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from those that wait nor from those that are asked for."""
    planned: list[tuple[int, bool]] = []

    def plan(_: Speculation, live: Sequence[LiveRow], *, drains: bool) -> list[list[int]]:
        if live:
            planned.append((len(live), drains))
        return [[] for _ in live]

    monkeypatch.setattr(Speculation, "plan", plan)
    batch = [
        Row(row.row_id, row.prompt, Sampling(limit))
        for row, limit in zip(rows(), (2, 9, 2, 3, 3, 3), strict=True)
    ]
    late = batch[4:]

    run(
        load(max_rows=2, refill_share=0.0), batch[:4], refill=lambda _: [late.pop()] if late else []
    )

    assert {False, True} == {drains for _, drains in planned}
    assert not planned[0][1]
    assert sorted(planned, key=lambda each: each[1]) == planned
