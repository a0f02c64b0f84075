"""Which token a row continues with."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from engine.base import Sampling
from engine.sampling import Chooser, choose, likeliest


def sampled(seed: int | None, temperature: float = 1.0, top_p: float = 1.0) -> Chooser:
    """Build a chooser that samples."""
    return Chooser(Sampling(8, temperature=temperature, top_p=top_p, seed=seed))


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@DTYPES
def test_greedy_takes_the_best(dtype: torch.dtype) -> None:
    """Without a temperature the likeliest token is taken, the first of equal ones."""
    scores = torch.tensor([[0.0, 3.0, 3.0], [5.0, 3.0, 1.0]], dtype=dtype)

    assert [1, 0] == choose(scores, [Chooser(Sampling(8)), Chooser(Sampling(8))])


@pytest.mark.parametrize(
    "row", [[float("nan"), 1.0], [1.0, float("inf")], [float("-inf"), float("-inf")]]
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@DTYPES
def test_a_row_that_is_not_finite_gets_no_token(
    row: list[float], temperature: float, dtype: torch.dtype
) -> None:
    """Its neighbours get theirs."""
    scores = torch.tensor([[0.0, 1.0], row, [1.0, 0.0]], dtype=dtype)
    choosers = [Chooser(Sampling(8)), sampled(1, temperature), Chooser(Sampling(8))]

    assert [1, None, 0] == choose(scores, choosers)


def test_a_seed_alone_decides_what_is_drawn() -> None:
    """The same seed draws the same tokens, alone or beside others; another seed does not."""
    scores = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    chooser, beside = sampled(7), sampled(7)
    alone = [chooser.draw(scores[step].numpy()) for step in range(20)]

    together = [choose(scores[[step, 19 - step]], [beside, sampled(3)])[0] for step in range(20)]
    other = sampled(8)

    assert alone == together
    assert alone != [other.draw(scores[step].numpy()) for step in range(20)]


def weights(*values: float) -> Any:
    """Return weights whose highest is 1."""
    return np.array(values, dtype=np.float32) / max(values)


def test_draws_follow_the_probabilities() -> None:
    """Over many draws each token comes up as often as its probability says."""
    probs = weights(0.5, 0.3, 0.15, 0.05)
    chooser = sampled(0)

    drawn = Counter(chooser.draw(np.log(probs)) for _ in range(4000))

    for token, prob in enumerate((probs / probs.sum()).tolist()):
        # four standard deviations of a share over 4,000 draws
        assert abs(drawn[token] / 4000 - prob) < 4 * (prob * (1 - prob) / 4000) ** 0.5


def test_draws_reach_all_of_a_large_vocabulary() -> None:
    """Evenly, and never a token without weight, at the ends or between."""
    scores = np.zeros(1000, dtype=np.float32)
    scores[[0, 255, 256, 500, 999]] = -np.inf
    chooser = sampled(0)

    drawn = [chooser.draw(scores) for _ in range(6000)]

    assert not {0, 255, 256, 500, 999} & set(drawn)
    assert 990 <= len(set(drawn))
    assert abs(np.mean(drawn) - 499) < 4 * 289 / 6000**0.5  # four standard deviations of the mean


def test_a_tiny_temperature_is_greedy() -> None:
    """Dividing by almost nothing neither overflows nor strays from the best token."""
    scores = np.array([1.0, 2.0, 1.9999, -3e38], dtype=np.float32)

    for temperature in (1e-300, 1e-30, 1e-6):
        assert {1} == {sampled(seed, temperature).draw(scores) for seed in range(20)}


def test_top_p_keeps_the_likeliest_that_reach_it() -> None:
    """The token that crosses the bound is kept, the rest can never be drawn."""
    probs = weights(0.1, 0.5, 0.1, 0.3)

    assert [1] == likeliest(probs, 0.4).tolist()
    assert [1, 3] == likeliest(probs, 0.6).tolist()
    assert {1, 3} == {sampled(seed, top_p=0.6).draw(np.log(probs)) for seed in range(50)}


def test_top_p_looks_past_the_first_candidates() -> None:
    """A flat distribution keeps as many tokens as the bound needs, however many that are."""
    flat = weights(*[1.0] * 5000)
    long_tailed = np.concatenate([weights(1.0), np.full(5000, 1e-5, dtype=np.float32)])

    assert 4500 == pytest.approx(len(likeliest(flat, 0.9)), abs=1)
    assert 1 == len(likeliest(long_tailed, 0.9))
    assert 3951 == pytest.approx(len(likeliest(long_tailed, 0.99)), abs=1)
