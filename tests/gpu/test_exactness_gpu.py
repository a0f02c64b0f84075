"""Every architecture on CUDA against itself on the CPU: fp32 token for token, half within a bound.

The reference is what the CPU answers to each row alone, which tests/contract holds to transformers.
TF32 is off by default, so that fp32 on CUDA differs by the order of sums only; the best scores lead
by more, as tests/contract/test_exactness_scores.py makes sure.
"""

from typing import Any

import pytest
import torch

from bench.divergence import agreeing_positions
from engine.base import Row, Sampling
from tests.support.exactness import (
    BF16_BOUND,
    Subject,
    leaving_at,
    make_prompt,
    make_rows,
    run,
    score_errors,
    sharing_rows,
    subject,
    waiting_list,
)
from tests.support.tiny_model import CONTEXT_LEN
from tests.support.tiny_models import ARCHITECTURES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

DEVICE = "cuda"

#: What each row runs beside decides which kernels compute it: all at once, cut into parts of
#: prompts, alone, and parts of prompts beside new tokens.
LIMITS: dict[str, dict[str, Any]] = {
    "whole": {},
    "chunked": {"chunk_tokens": 13},
    "alone": {"max_rows": 1},
    "joining": {"max_rows": 3, "refill_share": 0.0, "chunk_tokens": 13},
    "undrafted": {"max_drafts": 0},
}

#: Distance of a row's scores from those of the CPU in fp32, relative to their length: fp32 sums in
#: another order, recurrences most of all; see tests/contract/test_exactness_scores.py.
FP32_BOUND = 2e-4

#: Share of tokens before the first difference in bf16, from the same run in another batch.
AGREEING = 0.5


@pytest.fixture(params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> Subject:
    """Each architecture in turn."""
    return subject(request.param)


@pytest.mark.parametrize("limits", LIMITS)
def test_fp32_answers_are_those_of_the_cpu(model: Subject, limits: str) -> None:
    """Greedy and drawn rows say the same on either device, whatever runs beside them."""
    drawn = [
        Row(f"drawn {index}", row.prompt, Sampling(6, temperature=1.0, top_p=0.9, seed=index))
        for index, row in enumerate(make_rows()[::3])
    ]
    rows = [*make_rows(), *drawn]

    assert model.alone(rows) == run(model.engine(device=DEVICE, **LIMITS[limits]), rows)


def test_rows_that_join_and_leave_answer_as_on_the_cpu(model: Subject) -> None:
    """Slots that are left and taken again on the device leave no trace."""
    rows = make_rows()
    engine = model.engine(device=DEVICE, **LIMITS["joining"])
    expected = model.alone(rows)

    joined = run(engine, rows[:2], waiting_list(rows[2:]))
    left = run(engine, rows, step=leaving_at({3: {"r0", "r8"}, 9: {"r5"}}))

    assert expected == joined
    assert {row_id: expected[row_id] for row_id in left} == left


@pytest.mark.parametrize("limits", ["whole", "joining"])
def test_rows_that_share_a_prefix_answer_as_on_the_cpu(model: Subject, limits: str) -> None:
    """A prefix that is computed once on the device is read by all rows that begin with it."""
    rows = sharing_rows()

    assert model.alone(rows) == run(model.engine(device=DEVICE, **LIMITS[limits]), rows)


def test_answers_end_with_the_context(model: Subject) -> None:
    """A row that fills the context to its last token answers as on the CPU."""
    rows = [
        Row("fills", make_prompt("fills", CONTEXT_LEN - 6), Sampling(6)),
        Row("one", make_prompt("one", 1), Sampling(1)),
    ]

    assert model.alone(rows) == run(model.engine(device=DEVICE), rows)


@pytest.mark.parametrize("limits", ["whole", "joining"])
def test_fp32_scores_are_those_of_the_cpu(model: Subject, limits: str) -> None:
    """The scores after each prompt lie within the bound."""
    rows = make_rows(max_tokens=1)
    engine = model.engine(device=DEVICE, **LIMITS[limits])

    assert float(score_errors(model, engine, rows).max()) <= FP32_BOUND


@pytest.mark.parametrize("limits", ["whole", "joining"])
def test_bf16_scores_are_those_of_the_cpu_rounded(model: Subject, limits: str) -> None:
    """Eight bits are kept of each number; an expert that changes moves single rows further."""
    rows = make_rows(max_tokens=1)
    engine = model.engine("bfloat16", DEVICE, **LIMITS[limits])

    assert float(score_errors(model, engine, rows).median()) <= BF16_BOUND


def test_bf16_answers_drift_within_a_bound(model: Subject) -> None:
    """In bf16, batching moves few answers; which ones is for bench.divergence to say."""
    rows = make_rows()
    engine = model.engine("bfloat16", DEVICE)
    alone = {key: tokens for row in rows for key, tokens in run(engine, [row]).items()}

    assert agreeing_positions(alone, run(engine, rows)) >= AGREEING
