"""Which rows run next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.batching import (
    DEEP,
    LULL_S,
    MAX_PASSES,
    MAX_TURNOVERS,
    Limits,
    Waiting,
    next_turn,
    reduced,
    refill,
)

LIMITS = Limits(max_rows=16, max_batch_tokens=1000, max_wait_s=0.5)


def _row(
    item: int = 0,
    *,
    rank: int = 1,
    prompt_len: int = 10,
    output: int = 10,
    since: float = 0.0,
    is_suspect: bool = False,
) -> Waiting[int]:
    return Waiting(item, rank, prompt_len, prompt_len + output, since, is_suspect)


rows = st.builds(
    _row,
    st.integers(),
    rank=st.integers(0, 1),
    prompt_len=st.integers(1, 2000),
    output=st.integers(1, 500),
    since=st.floats(0, 100),
    is_suspect=st.booleans(),
)
windows = st.dictionaries(st.integers(0, 2), st.lists(rows, max_size=30), max_size=3)


def test_nothing_waits_for_an_empty_window() -> None:
    """Without rows there is no batch and nothing to wait for."""
    window: dict[int, list[Waiting[int]]] = {0: []}
    turn = next_turn(window, 0.0, LIMITS)

    assert (turn.batch, turn.wait_s) == (None, None)


def test_a_shallow_bucket_waits_while_more_keep_coming() -> None:
    """Rows that follow each other wait together, until there is a lull or one waited too long."""
    window = {0: [_row(since=1.0), _row(since=1.2)]}

    assert next_turn(window, 1.2, LIMITS).wait_s == pytest.approx(LULL_S)
    assert next_turn(window, 1.2 + LULL_S, LIMITS).batch is not None

    window[0].append(_row(since=1.495))

    assert next_turn(window, 1.495, LIMITS).wait_s == pytest.approx(0.005)
    assert next_turn(window, 1.5, LIMITS).batch is not None


def test_a_lone_row_that_finds_the_engine_at_rest_runs_at_once() -> None:
    """On an idle system nobody waits for company that is not in sight."""
    window = {0: [_row(since=1.0)]}

    assert next_turn(window, 1.0, LIMITS, idle_since=1.0 - LULL_S).batch is not None
    assert next_turn(window, 1.0, LIMITS, idle_since=1.0 - LULL_S / 2).batch is None
    assert next_turn(window, 1.0, LIMITS, idle_since=1.0 + LULL_S).batch is None


def test_a_row_that_was_delivered_before_runs_alone() -> None:
    """It may be what ended the worker that had it, and takes no neighbour along this time."""
    suspects = [_row(item, since=item, is_suspect=True) for item in (1, 3)]
    window = {0: [_row(2, since=2.0), *suspects, _row(4, since=4.0)]}
    led: list[list[int]] = []
    while batch := next_turn(window, 10.0, LIMITS).batch:
        led.append([row.item for row in batch.rows])
        assert batch.runs_alone == (led[-1] in ([1], [3]))
        for row in batch.rows:
            window[0].remove(row)

    assert [[1], [2, 4], [3]] == led


def test_a_deep_bucket_runs_at_once() -> None:
    """More than eight rows do not wait."""
    window = {0: [_row() for _ in range(DEEP)]}

    assert next_turn(window, 0.0, LIMITS).batch is None

    window[0].append(_row())

    assert next_turn(window, 0.0, LIMITS).batch is not None


def test_a_full_batch_runs_at_once() -> None:
    """Where a batch holds fewer rows than a deep bucket has, a full one does not wait."""
    limits = Limits(max_rows=2, max_batch_tokens=1000, max_wait_s=0.5)

    assert next_turn({0: [_row(), _row()]}, 0.0, limits).batch is not None


def test_the_oldest_leads() -> None:
    """Over all buckets, the row that has waited longest gets its bucket served."""
    window = {0: [_row(1, since=2.0)], 1: [_row(2, since=1.0), _row(3, since=3.0)]}
    batch = next_turn(window, 10.0, LIMITS).batch

    assert batch is not None
    assert (batch.bucket, batch.rows[0].item) == (1, 2)


def test_interactive_goes_first() -> None:
    """A young interactive row leads before an old one of the batch tier."""
    window = {0: [_row(1, since=0.0)], 1: [_row(2, rank=0, since=9.0)]}
    batch = next_turn(window, 10.0, LIMITS).batch

    assert batch is not None
    assert [row.item for row in batch.rows] == [2]


def test_nearest_lengths_run_together() -> None:
    """When not all fit, those nearest to the leader's length come along."""
    limits = Limits(max_rows=3, max_batch_tokens=10_000, max_wait_s=0.0)
    lengths = [100, 900, 110, 500, 80]
    window = {0: [_row(n, prompt_len=n, since=at) for at, n in enumerate(lengths)]}
    batch = next_turn(window, 10.0, limits).batch

    assert batch is not None
    assert {row.item for row in batch.rows} == {100, 110, 80}


def test_a_row_above_the_token_limit_runs_alone() -> None:
    """What fits no batch is not kept waiting for ever."""
    window = {0: [_row(1, prompt_len=5000), _row(2, since=1.0)]}
    batch = next_turn(window, 10.0, LIMITS).batch

    assert batch is not None
    assert [row.item for row in batch.rows] == [1]


@given(windows, st.floats(0, 200), st.integers(0, MAX_PASSES))
def test_batches_keep_to_the_limits(
    window: dict[int, list[Waiting[int]]], now: float, passes: int
) -> None:
    """A batch is of one bucket, has no row twice, and fits, unless one row alone does not."""
    turn = next_turn(window, now, LIMITS, passes)
    if turn.batch is None:
        return
    chosen = turn.batch.rows

    assert len(chosen) == 1 or not any(row.is_suspect for row in chosen)
    assert set(chosen) <= set(window[turn.batch.bucket])
    assert 1 <= len(chosen) == len(set(chosen)) <= LIMITS.max_rows
    assert len(chosen) == 1 or sum(row.num_tokens for row in chosen) <= LIMITS.max_batch_tokens


@given(windows, st.floats(0, 200))
def test_waiting_is_bounded(window: dict[int, list[Waiting[int]]], now: float) -> None:
    """While rows wait, there is a batch or a positive time until there is one."""
    turn = next_turn(window, now, LIMITS)
    if turn.batch is None and any(window.values()):
        assert turn.wait_s is not None
        assert turn.wait_s > 0
        assert next_turn(window, now + turn.wait_s + 1e-6, LIMITS).batch is not None


@given(windows, st.lists(st.tuples(st.integers(0, 2), rows), max_size=10))
def test_nobody_starves(
    window: dict[int, list[Waiting[int]]], arrivals: list[tuple[int, Waiting[int]]]
) -> None:
    """Whatever urgent rows keep arriving, every row that waited at the start gets its turn."""
    window = {bucket: list(window.get(bucket, ())) for bucket in range(3)}
    first = {row for waiting in window.values() for row in waiting}
    now, passes = 200.0, 0
    for _ in range((MAX_PASSES + 1) * (len(first) + 1)):
        for bucket, row in arrivals:  # as urgent as can be, at every turn anew
            window[bucket].append(_row(rank=0, prompt_len=row.prompt_len, since=now))
        turn = next_turn(window, now + 1.0, LIMITS, passes)
        if turn.batch is None:
            break
        passes = turn.passes
        for row in turn.batch.rows:
            window[turn.batch.bucket].remove(row)
            first.discard(row)
        now += 1.0

    assert first == set()


def _refilled(
    window: dict[int, list[Waiting[int]]], *, num_rows: int = 0, num_served: int = 0
) -> list[int]:
    room = reduced(LIMITS, num_rows, num_rows * 20)
    rows = refill(window, 0, room, num_served, LIMITS.max_rows)
    return [row.item for row in rows]


def test_refills_come_from_the_same_bucket() -> None:
    """Rows of other lengths do not join a running batch."""
    assert _refilled({0: [_row(1)], 1: [_row(2)]}) == [1]


def test_refills_fit_into_what_is_free() -> None:
    """Neither rows nor tokens beyond the room are taken."""
    many = {0: [_row(item) for item in range(20)]}

    assert _refilled(many, num_rows=14) == [0, 1]
    assert _refilled(many, num_rows=16) == []
    assert _refilled({0: [_row(1, prompt_len=900)]}, num_rows=10) == []


def test_an_urgent_row_elsewhere_ends_refilling() -> None:
    """The batch drains so that an interactive document of another length gets its turn."""
    assert _refilled({0: [_row(1)], 1: [_row(2, rank=0)]}) == []


def test_a_row_that_runs_alone_gets_its_turn() -> None:
    """It never joins a running batch; an urgent one, or one that is long overdue, lets it drain."""
    long_served = MAX_TURNOVERS * LIMITS.max_rows
    suspect, young = _row(1, is_suspect=True), _row(2, since=1.0)

    assert _refilled({0: [suspect, young]}) == [2]
    assert _refilled({0: [suspect, young]}, num_served=long_served) == []
    assert _refilled({0: [_row(1, rank=0, is_suspect=True), young]}) == []


def test_a_batch_is_not_refilled_for_ever_while_others_wait() -> None:
    """After some turnovers only the oldest row of all may still join."""
    long_served = MAX_TURNOVERS * LIMITS.max_rows
    young, old = _row(1, since=2.0), _row(2, since=1.0)

    assert _refilled({0: [young]}, num_served=long_served) == [1]
    assert _refilled({0: [young], 1: [old]}, num_served=long_served) == []
    assert _refilled({0: [old], 1: [young]}, num_served=long_served) == [2]


def test_a_long_row_is_not_passed_over_for_ever() -> None:
    """After some turnovers, an older row that does not fit stops shorter ones from joining."""
    window = {0: [_row(1, prompt_len=900), _row(2, since=1.0)]}

    assert _refilled(window, num_rows=10) == [2]
    assert _refilled(window, num_rows=10, num_served=MAX_TURNOVERS * LIMITS.max_rows) == []


@given(windows, st.integers(0, 20), st.integers(0, 2000), st.integers(0, 100))
def test_refills_keep_to_the_limits(
    window: dict[int, list[Waiting[int]]], num_rows: int, num_tokens: int, num_served: int
) -> None:
    """Refilled rows always fit, even one alone."""
    room = reduced(LIMITS, num_rows, num_tokens)
    chosen = refill(window, 0, room, num_served, LIMITS.max_rows)

    assert not any(row.is_suspect for row in chosen)
    assert set(chosen) <= set(window.get(0, ()))
    assert len(chosen) == len(set(chosen)) <= max(0, room.max_rows)
    assert not chosen or sum(row.num_tokens for row in chosen) <= room.max_batch_tokens
