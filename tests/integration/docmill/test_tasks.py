"""Tasks as they are asked for: once each, found again, listed."""

from collections.abc import Iterator
from typing import Any

import pytest

from docmill.keys import Keys
from docmill.link import Link
from docmill.tasks import Task, ask, find, list_tasks


@pytest.fixture
def link(redis_url: str, namespace: str) -> Iterator[Link]:
    """A connection to the test's own namespace."""
    link = Link(redis_url, namespace, reconnect_s=0.0)
    yield link
    link.close()


def _task(task_id: str, asked_at: float = 1.0, **more: Any) -> Task:
    return Task(
        task_id=task_id, kind="export", job_id="job", paths=("o",), asked_at=asked_at, **more
    )


def test_asking_twice_is_asking_once(link: Link, redis_client: Any, keys: Keys) -> None:
    """A reply that was lost may be asked for anew: what the service noted meanwhile stays."""
    ask(link, _task("t1"))
    redis_client.hset(keys.tasks, "t1", _task("t1", state="running").encode())
    ask(link, _task("t1"))

    assert _task("t1", state="running") == find(link, "t1")


def test_a_task_is_found_until_it_is_forgotten(link: Link, redis_client: Any, keys: Keys) -> None:
    """Open or ended, by its id; what ended counts, should both be there for a moment."""
    assert find(link, "t1") is None

    ask(link, _task("t1"))
    redis_client.hset(keys.tasks_ended, "t1", _task("t1", state="done").encode())
    found = find(link, "t1")

    assert found is not None
    assert found.has_ended
    assert [found] == list_tasks(link)


def test_the_newest_tasks_come_first(link: Link, redis_client: Any, keys: Keys) -> None:
    """Open and ended ones together; a record of another version hides none of them."""
    ask(link, _task("middle", 2.0))
    ask(link, _task("old", 1.0))
    ended = {"new": _task("new", 3.0, state="failed").encode(), "odd": b"not msgpack"}
    redis_client.hset(keys.tasks_ended, mapping=ended)

    assert ["new", "middle", "old"] == [task.task_id for task in list_tasks(link)]
