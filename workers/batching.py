"""Which waiting rows run next: pure decisions over a window of leased rows.

Decides the bucket, the rows of a batch, what joins a running batch, and how long to wait for more.
Knows neither Redis nor engines; the clock is passed in. May import the standard library.

Interactive rows go before batch rows, and what leads a batch is its tier's oldest row over all
buckets. Nobody starves: after `MAX_PASSES` batches in a row that passed over waiting batch-tier
rows the oldest of those leads, and a batch that was refilled for long takes the oldest row or none.

A row that was delivered before may be what ended the worker that had it, so it runs alone: it takes
nobody along if it does so again.

Rows wait for company only while it is likely to come, because rows have come in quick succession:
an engine that has rested takes a lone row at once, and a lull ends the waiting. Starting early
costs little, since whoever comes next joins the running batch or the next one; waiting for nobody
cost the whole of `max_wait_s`, 50 of the 53 ms that a lone document took on an idle system.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")

#: A bucket deeper than this forms a batch at once.
DEEP = 8
#: Rows come in quick succession while the gaps are shorter. Twice the reading thread's pause
#: between two reads.
LULL_S = 0.01
#: Batches that interactive rows may lead in a row while batch-tier rows wait.
MAX_PASSES = 4
#: How often over a batch's rows may be replaced by refills while another bucket waits.
MAX_TURNOVERS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[T]):
    """A row that waits: `rank` 0 is interactive; `since` in seconds of the caller's clock.

    `num_tokens` is what it occupies in a batch: prompt plus output limit. `item` is the caller's.
    `is_suspect`: it was delivered before, and runs alone.
    """

    item: T
    rank: int
    prompt_len: int
    num_tokens: int
    since: float
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch may hold, and how long a shallow bucket waits for more rows."""

    max_rows: int
    max_batch_tokens: int
    max_wait_s: float


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Rows to run together; the first of them leads."""

    bucket: int
    rows: tuple[Waiting[T], ...]

    @property
    def runs_alone(self) -> bool:
        """Whether nothing may join it."""
        return self.rows[0].is_suspect


@dataclass(frozen=True, slots=True)
class Turn(Generic[T]):
    """What to do: run `batch`, or ask again in `wait_s` (None: when something has arrived).

    `passes` is to be handed to the next decision.
    """

    batch: Batch[T] | None
    wait_s: float | None
    passes: int


def next_turn(
    window: Mapping[int, Collection[Waiting[T]]],
    now: float,
    limits: Limits,
    passes: int = 0,
    idle_since: float = math.inf,
) -> Turn[T]:
    """Decide what an idle engine does with the window: bucket -> rows.

    A bucket is due when it is deep, when its oldest row has waited `max_wait_s` or found the engine
    at rest, or when no further row has come for `LULL_S`.

    Args:
        window: Bucket -> rows that wait.
        now: The moment, in the clock of the rows' `since`.
        limits: What a batch may hold.
        passes: Of the turn before.
        idle_since: When the engine ran out of work.

    Cost: O(n log n).
    """
    waiting = {bucket: rows for bucket, rows in window.items() if rows}
    due_at = {bucket: _due_at(rows, limits, idle_since) for bucket, rows in waiting.items()}
    due = {bucket: rows for bucket, rows in waiting.items() if due_at[bucket] <= now}
    if not due:
        first = min(due_at.values(), default=None)
        return Turn(None, None if first is None else first - now, passes)
    patient = [row for rows in due.values() for row in rows if row.rank > 0]
    order = _reversed_urgency if patient and passes >= MAX_PASSES else _urgency
    leaders = {bucket: min(rows, key=order) for bucket, rows in due.items()}
    bucket, leader = min(leaders.items(), key=lambda found: order(found[1]))
    rows = _pack(leader, due[bucket], limits)
    is_passed_over = bool(patient) and leader.rank == 0
    return Turn(Batch(bucket, rows), None, passes + 1 if is_passed_over else 0)


def refill(
    window: Mapping[int, Collection[Waiting[T]]],
    bucket: int,
    room: Limits,
    num_served: int,
    max_rows: int,
) -> tuple[Waiting[T], ...]:
    """Choose rows of `bucket` that join its running batch.

    None while an interactive row waits that cannot join: the batch then drains, and its turn comes.
    A batch that was turned over `MAX_TURNOVERS` times takes the oldest row of the whole window or
    none.

    Args:
        window: Bucket -> rows that wait.
        bucket: The running batch's bucket.
        room: The rows and tokens that are free.
        num_served: Rows that this batch has taken so far.
        max_rows: Rows of a full batch.
    """
    if room.max_rows < 1:
        return ()
    alike = [row for row in window.get(bucket, ()) if not row.is_suspect]
    everybody = [row for rows in window.values() for row in rows]
    num_urgent = sum(row.rank == 0 for row in everybody)
    if num_urgent > sum(row.rank == 0 for row in alike):
        return ()
    own = [row for row in alike if row.num_tokens <= room.max_batch_tokens]
    if num_served >= MAX_TURNOVERS * max_rows:
        own = own if own and min(everybody, key=_age) in own else []
        return _pack(min(own, key=_age), own, room) if own else ()
    return _pack(min(own, key=_urgency), own, room) if own else ()


def _due_at(rows: Collection[Waiting[T]], limits: Limits, idle_since: float) -> float:
    oldest_since = min(row.since for row in rows)
    if len(rows) > DEEP or len(rows) >= limits.max_rows or oldest_since - idle_since >= LULL_S:
        return -math.inf
    return min(oldest_since + limits.max_wait_s, max(row.since for row in rows) + LULL_S)


def _age(row: Waiting[T]) -> float:
    return row.since


def _urgency(row: Waiting[T]) -> tuple[int, float]:
    return row.rank, row.since


def _reversed_urgency(row: Waiting[T]) -> tuple[int, float]:
    return -row.rank, row.since


def _pack(leader: Waiting[T], rows: Iterable[Waiting[T]], limits: Limits) -> tuple[Waiting[T], ...]:
    """Return the leader and the rows nearest to it in length that fit, urgent ones first.

    The leader goes even where it alone exceeds the tokens: nobody else could ever take it.
    """
    chosen, tokens = [leader], leader.num_tokens
    if leader.is_suspect:
        return (leader,)
    others = (row for row in rows if row is not leader and not row.is_suspect)
    for row in sorted(others, key=lambda r: (r.rank, abs(r.prompt_len - leader.prompt_len))):
        if len(chosen) >= limits.max_rows:
            break
        if tokens + row.num_tokens <= limits.max_batch_tokens:
            chosen.append(row)
            tokens += row.num_tokens
    return tuple(chosen)


def reduced(limits: Limits, rows: int, tokens: int) -> Limits:
    """Return what is left of `limits` while that many rows and tokens are in use."""
    return replace(
        limits, max_rows=limits.max_rows - rows, max_batch_tokens=limits.max_batch_tokens - tokens
    )
