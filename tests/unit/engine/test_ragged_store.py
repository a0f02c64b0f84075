"""The state of rows: it stays theirs while others come and go."""

import torch

from engine.ragged_store import RowStore


def filled(num_rows: int, capacity: int) -> RowStore:
    """Return a store in which every row's states hold its number, counted from 1."""
    store = RowStore()
    store.admit(num_rows, capacity)
    for row in range(num_rows):
        store.fixed("ring", (3,), torch.zeros(0))[row] = row + 1
        store.growing("entries", 4, (2,), torch.zeros(0))[row] = row + 1
    return store


def numbers(store: RowStore) -> list[list[float]]:
    """Return what each row's states hold."""
    states = [state for key in ("ring", "entries") if (state := store.find(key)) is not None]
    return [
        sorted(set(torch.cat([state[row].flatten() for state in states]).tolist()))
        for row in range(store.num_rows)
    ]


def test_sizes_follow_the_longest_row() -> None:
    """What grows has one slot per so many tokens of the capacity, no more."""
    store = filled(2, 11)

    assert (2, 2, 2) == store.growing("entries", 4, (2,), torch.zeros(0)).shape
    assert (2, 3) == store.fixed("ring", (3,), torch.zeros(0)).shape


def test_the_last_row_takes_the_place_of_one_that_leaves() -> None:
    """`drop` says which row has moved."""
    store = filled(3, 8)

    assert 2 == store.drop(0)
    assert [[3.0], [2.0]] == numbers(store)
    assert 1 == store.drop(1)
    assert [[3.0]] == numbers(store)


def test_rows_that_join_find_zeros() -> None:
    """Nothing of a row that has left is seen by the one in its place; others keep their own."""
    store = filled(3, 8)
    store.drop(1)

    store.admit(2, 8)

    assert [[1.0], [3.0], [0.0], [0.0]] == numbers(store)


def test_a_longer_row_makes_room() -> None:
    """What rows hold stays where it was, and zeros follow."""
    store = filled(1, 8)

    store.admit(1, 16)

    entries = store.find("entries")
    assert entries is not None
    assert [[1, 1, 0, 0], [0, 0, 0, 0]] == entries[..., 0].tolist()


def test_a_row_goes_on_from_where_another_is() -> None:
    """A copy is the row's own: what becomes of the source is no matter."""
    store = filled(2, 8)

    store.copy(0, 1)
    store.fixed("ring", (3,), torch.zeros(0))[0] = 9

    assert [[1.0, 9.0], [1.0]] == numbers(store)


def test_the_last_row_that_leaves_frees_everything() -> None:
    """An empty batch holds no memory."""
    store = filled(1, 8)

    store.drop(0)

    assert store.find("ring") is None
    assert 0 == store.capacity
