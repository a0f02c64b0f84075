"""How many drafts are computed, under a model of what passes cost."""

import random
from dataclasses import dataclass

import pytest

from engine.speculation import PassCost, Prospect, plan_drafts

#: Seconds of a pass: whatever it holds, for each token, for each run of several tokens.
BANDWIDTH_BOUND = (0.028, 0.0016, 0.0)
BOUND_BY_PRODUCTS = (0.002, 0.002, 0.0)
SLOW_RUNS = (0.028, 0.0016, 0.02)


def learned(base: float, per_token: float, per_run: float, *, noise: float = 0.0) -> PassCost:
    """Return what is known after some passes of several kinds."""
    cost, choose = PassCost(), random.Random(0)
    for tokens, runs in [(2048, 3), (900, 2), (32, 0), (31, 0), (30, 0), (40, 3), (52, 6)] * 3:
        spread = 1 + noise * choose.random()
        cost.observe(tokens, runs, (base + per_token * tokens + per_run * runs) * spread)
    return cost


@pytest.mark.parametrize("seconds", [BANDWIDTH_BOUND, BOUND_BY_PRODUCTS, SLOW_RUNS])
def test_costs_are_learned_from_passes(seconds: tuple[float, float, float]) -> None:
    """Within a tenth of what a pass takes."""
    base, per_token, per_run = seconds
    cost = learned(*seconds)

    for tokens, runs in ((1, 0), (8, 1), (32, 0), (256, 32)):
        expected = base + per_token * tokens + per_run * runs
        assert expected == pytest.approx(cost.seconds(tokens, runs), rel=0.1)


def test_what_was_never_seen_is_shared_evenly() -> None:
    """Passes of one size do not tell what a token costs: half of the pass is put down to it."""
    cost = PassCost()
    for _ in range(5):
        cost.observe(8, 0, 0.8)

    assert 0.8 == pytest.approx(cost.seconds(8, 0), rel=0.01)
    assert 0.05 == pytest.approx(cost.per_token, rel=0.05)


def plan(cost: PassCost, *prospects: tuple[int, float, int], drains: bool = True) -> list[int]:
    """Plan for rows of so many drafts, such acceptance, and so many tokens to say."""
    return plan_drafts([Prospect(*each) for each in prospects], cost, drains=drains)


def test_drafts_are_worth_most_to_few_rows() -> None:
    """The same row drafts far alone, and less among 32."""
    cost = learned(*BANDWIDTH_BOUND)

    [alone] = plan(cost, (7, 0.6, 50))
    among = plan(cost, *[(7, 0.6, 50)] * 32)

    assert alone >= 4
    assert 0 == max(among)


def test_a_row_whose_drafts_fail_gets_none() -> None:
    """While its neighbour's go on; and nobody gets more than there are."""
    rows = (7, 0.02, 50), (7, 0.95, 50), (0, 0.95, 50), (2, 0.95, 50)

    assert [0, 7, 0, 2] == plan(learned(*BANDWIDTH_BOUND), *rows)


def test_no_drafts_where_tokens_cost_what_they_bring() -> None:
    """A pass bound by products gets no faster for them, nor one that takes runs one by one."""
    rows = [(7, 0.6, 50)] * 8

    assert [0] * 8 == plan(learned(*BOUND_BY_PRODUCTS), *rows)
    assert [0] * 8 == plan(learned(*SLOW_RUNS), *rows)


def test_who_is_ahead_waits_for_the_others_unless_its_place_is_wanted() -> None:
    """A row that ends early saves no pass if nobody takes its place."""
    rows = (7, 0.9, 20), (7, 0.9, 60)

    assert [0, 7] == plan(learned(*BANDWIDTH_BOUND), *rows)
    assert [7, 7] == plan(learned(*BANDWIDTH_BOUND), *rows, drains=False)


@dataclass
class Simulation:
    """Rows whose drafts are right with a given chance, on a machine of given costs."""

    chances: list[float]
    seconds: tuple[float, float, float]
    max_drafts: int

    def run(self) -> float:
        """Return the seconds until each row has said 60 tokens."""
        choose, cost, elapsed = random.Random(1), PassCost(), 0.0
        base, per_token, per_run = self.seconds
        cost.observe(1000, 2, base + per_token * 1000 + per_run * 2)
        said = [0] * len(self.chances)
        while live := [row for row, count in enumerate(said) if count < 60]:
            prospects = [
                Prospect(min(self.max_drafts, 59 - said[row]), self.chances[row], 60 - said[row])
                for row in live
            ]
            counts = plan_drafts(prospects, cost, drains=True)
            tokens, runs = len(live) + sum(counts), sum(count > 0 for count in counts)
            pass_s = (base + per_token * tokens + per_run * runs) * choose.uniform(1.0, 1.2)
            cost.observe(tokens, runs, pass_s)
            elapsed += pass_s
            for row, count in zip(live, counts, strict=True):
                right = 0
                while right < count and choose.random() < self.chances[row]:
                    right += 1
                said[row] += 1 + right
        return elapsed


@pytest.mark.parametrize("seconds", [BANDWIDTH_BOUND, BOUND_BY_PRODUCTS, SLOW_RUNS], ids=str)
@pytest.mark.parametrize("rows", [1, 8, 32])
@pytest.mark.parametrize("chance", [0.05, 0.4, 0.8])
def test_drafts_make_no_batch_slower(
    seconds: tuple[float, float, float], rows: int, chance: float
) -> None:
    """Beyond the passes that it takes to learn what they cost."""
    chances = [chance * (0.5 + row % 3 / 2) for row in range(rows)]

    off = Simulation(chances, seconds, 0).run()
    on = Simulation(chances, seconds, 7).run()

    assert on <= 1.07 * off


@pytest.mark.parametrize(("rows", "least"), [(1, 2.0), (4, 1.5)])
def test_drafts_that_are_right_make_few_rows_faster(rows: int, least: float) -> None:
    """Where reading the weights is what passes cost; the slowest row sets the pace."""
    chances = [0.8] * rows

    off = Simulation(chances, BANDWIDTH_BOUND, 0).run()
    on = Simulation(chances, BANDWIDTH_BOUND, 7).run()

    assert off >= least * on
