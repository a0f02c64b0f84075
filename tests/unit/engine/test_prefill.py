"""Which prompt tokens a pass computes, and which it copies."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.answer import Answer
from engine.base import Row, Sampling
from engine.live import LiveRow, Part
from engine.prefill import Prefill
from engine.sharing import MIN_SHARED, num_shared
from engine.slab import Slot
from engine.text import Detokenizer
from tests.support.tiny_model import build_tokenizer

DETOKENIZER = Detokenizer(build_tokenizer())


def live(*ids: int, shares: bool = True) -> LiveRow:
    """Build a row of these tokens."""
    row = Row("row", np.array(ids, dtype=np.uint32), Sampling(max_tokens=1))
    return LiveRow(Answer(row, DETOKENIZER, {1}), Slot(len(ids)), shares)


def queue(*rows: LiveRow) -> Prefill:
    """Let rows queue."""
    prefill = Prefill()
    prefill.join(rows)
    return prefill


def compute(parts: list[Part]) -> list[tuple[int, int, int]]:
    """Count parts as computed; return where each begins and ends and how many scores it wants."""
    for part in parts:
        part.row.slot.length = part.end
    return [(part.start, part.end, part.num_scored) for part in parts]


def passes(prefill: Prefill, budget: int) -> list[list[Part]]:
    """Compute all there is, pass by pass."""
    taken = []
    while parts := prefill.next_parts(budget):
        compute(parts)
        taken.append(parts)
    return taken


def test_passes_are_filled_and_prompts_cut_where_they_end() -> None:
    """Only a prompt's last part wants scores."""
    prefill = queue(live(1, 2, 3), live(4, 5, 6, 7), live(8))

    assert [(0, 3, 1), (0, 2, 0)] == compute(prefill.next_parts(5))
    assert [(2, 4, 1), (0, 1, 1)] == compute(prefill.next_parts(5))
    assert not prefill.next_parts(5)


def test_a_row_that_begins_alike_is_computed_from_there_on() -> None:
    """Also within the pass that computes the beginning; the answer tells."""
    first, second = live(*range(20), 98), live(*range(20), 99)

    parts = queue(first, second).next_parts(100)

    assert [(0, 21, 1), (20, 21, 1)] == compute(parts)
    assert [None, first] == [part.source for part in parts]
    assert (0, 20) == (first.answer.num_cached, second.answer.num_cached)


def test_a_row_may_be_told_to_compute_everything_itself() -> None:
    """It can still be copied from."""
    first, second = live(*range(20)), live(*range(20), shares=False)
    third = live(*range(20))

    parts = queue(first, second, third).next_parts(100)

    assert [None, None] == [part.source for part in parts[:2]]
    assert parts[2].source in (first, second)


def test_a_row_that_left_is_not_copied_from() -> None:
    """Who comes after it computes its own beginning, or takes it from another."""
    first, second, third = (live(*range(30)) for _ in range(3))
    prefill = queue(first)
    compute(prefill.next_parts(100))
    prefill.leave(first)
    prefill.join([second, third])

    parts = prefill.next_parts(100)

    assert [None, second] == [part.source for part in parts]


def test_a_row_may_leave_half_computed() -> None:
    """The next one in the queue goes on."""
    first, second = live(*range(30)), live(7, 8)
    prefill = queue(first, second)
    compute(prefill.next_parts(10))

    prefill.leave(first)

    assert [(0, 2, 1)] == compute(prefill.next_parts(10))


#: Prompts that share beginnings of some multiples of nine tokens.
PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), max_size=5), st.integers(1, 30)).map(
        lambda drawn: [bit for bit in drawn[0] for _ in range(9)] + [2] * drawn[1]
    ),
    max_size=10,
)


@given(PROMPTS, st.integers(1, 60))
def test_distinct_tokens_are_computed_once(prompts: list[list[int]], budget: int) -> None:
    """Copied or computed, a row is whole; what another held by then is computed by nobody twice."""
    rows = [live(*ids) for ids in prompts]
    taken = passes(queue(*rows), budget)

    assert all(sum(len(part.ids) for part in parts) <= budget for parts in taken)
    assert all(row.slot.length == len(row.prompt) for row in rows)
    held: list[LiveRow] = []
    for parts in taken:
        for part in parts:
            assert list(part.ids) == list(part.row.prompt[part.start : part.end])
            if part.row in held:
                continue
            best = max((num_shared(part.row.prompt, other.prompt) for other in held), default=0)
            best = min(best, len(part.row.prompt) - 1)
            assert part.start == (best if best >= MIN_SHARED else 0)
            assert (part.source is not None) == (part.start > 0)
            if part.source is not None:
                assert part.source in held
                assert part.source.slot.length == len(part.source.prompt)
                assert num_shared(part.row.prompt, part.source.prompt) >= part.start
            held.append(part.row)
