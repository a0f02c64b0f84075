"""Who is the reaper, and that signs of life and the reaper's work need no free memory."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from docmill.keys import Keys
from docmill.scripts import Scripts
from tests.support.ready_documents import Documents
from tests.support.script_worker import Worker
from workers.streams import ensure_groups

LEASE_MS = 60_000


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test."""
    return Documents(redis_client, keys)


@pytest.fixture
def scripts(documents: Documents) -> Scripts:
    """Its scripts."""
    return documents.scripts


def lead(scripts: Scripts, holder: str) -> int:
    """Call lead.lua."""
    token: int = scripts.call("lead", holder, LEASE_MS)
    return token


def test_one_leads_until_it_stops(scripts: Scripts) -> None:
    """The holder keeps its token as often as it asks; another gets none meanwhile."""
    token = lead(scripts, "first")

    assert token > 0
    assert lead(scripts, "second") == 0
    assert lead(scripts, "first") == token
    assert scripts.call("resign", "second") == 0
    assert lead(scripts, "second") == 0
    assert scripts.call("resign", "first") == 1
    assert scripts.call("resign", "first") == 0
    assert lead(scripts, "second") > token


def test_asking_again_renews_the_lease(documents: Documents, scripts: Scripts) -> None:
    """A reaper that goes on asking is never too late; the lease itself always ends."""
    lead(scripts, "first")
    documents.client.pexpire(documents.keys.reaper, 1000)
    lead(scripts, "second")

    assert documents.client.pttl(documents.keys.reaper) <= 1000

    lead(scripts, "first")

    assert 1000 < documents.client.pttl(documents.keys.reaper) <= LEASE_MS


def test_a_holder_may_have_any_name(scripts: Scripts) -> None:
    """Spaces, digits and pattern characters do not confuse whose lease it is."""
    for holder in ("7 of 9", "a%d+", "1"):
        token = lead(scripts, holder)

        assert token > 0
        assert lead(scripts, holder) == token
        assert lead(scripts, f"{holder} ") == 0
        assert scripts.call("resign", holder) == 1


@pytest.mark.parametrize("how", ["overtaken", "lapsed", "resigned"])
def test_a_reaper_that_was_replaced_hands_nothing_back(documents: Documents, how: str) -> None:
    """Its token says so, even when nobody has taken over yet."""
    worker = Worker(documents, "dead")
    documents.put(["a"])
    (taken,) = worker.take()
    heartbeat = documents.keys.heartbeat("dead")
    token = lead(documents.scripts, "first")
    if how == "resigned":
        documents.scripts.call("resign", "first")
    else:
        documents.client.delete(documents.keys.reaper)  # as its expiry does
    new_token = lead(documents.scripts, "second") if how == "overtaken" else 0

    assert worker.redeliver(taken, heartbeat=heartbeat, token=str(token)) == b"LOST"

    new_token = new_token or lead(documents.scripts, "second")

    assert worker.redeliver(taken, heartbeat=heartbeat, token=str(new_token)) == b"BACK"
    assert worker.redeliver(taken, heartbeat=heartbeat, token=str(new_token)) == b"LOST"


def test_a_beat_says_who_lives_and_what_it_does(documents: Documents) -> None:
    """The heartbeat lapses by itself; what is shown stays for the reaper to take away."""
    documents.scripts.call("beat", "w1", 5000, '{"state":"idle"}')
    documents.scripts.call("beat", "w1", 5000, '{"state":"busy"}')

    assert 0 < documents.client.pttl(documents.keys.heartbeat("w1")) <= 5000
    assert documents.client.hgetall(documents.keys.consumers) == {b"w1": b'{"state":"busy"}'}


@pytest.fixture
def crowded(small_redis: Any, keys: Keys) -> Iterator[Documents]:
    """A shard with five documents ready, in a Redis that is full from now on."""
    small_redis.config_set("maxmemory", 0)
    documents = Documents(small_redis, keys)
    documents.put("abcde")
    ensure_groups(small_redis, [documents.ready()])  # a worker that starts later has to wait
    small_redis.config_set("maxmemory", 1)
    yield documents
    small_redis.config_set("maxmemory", 0)


def test_signs_of_life_need_no_free_memory(crowded: Documents) -> None:
    """The living are not taken for dead while clients are refused."""
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        crowded.client.set("any", 1)

    assert crowded.scripts.call("beat", "w1", 5000, "{}") == b"OK"
    assert crowded.client.exists(crowded.keys.heartbeat("w1"))
    assert lead(crowded.scripts, "first") > 0
    assert crowded.scripts.call("resign", "first") == 1
    assert crowded.submit("f").startswith(b"OOM")


def test_documents_end_while_memory_is_full(crowded: Documents) -> None:
    """Everything that makes room works on: answers, retries, deaths, pauses, hand-backs."""
    worker, token = Worker(crowded), lead(crowded.scripts, "first")
    a, b, c, d, e = worker.take()

    assert worker.begin(a, b, c, d) == [b"RUN"] * 4
    assert worker.complete(a) == [b"OK"]
    assert worker.bury(b) == b"OK"
    assert worker.redeliver(c, delay_s=3600) == b"LATER"
    assert worker.redeliver(d, heartbeat="none", token=str(token)) == b"BACK"
    assert crowded.scripts.call("pause", "job", 1) == 1
    assert worker.begin(e) == [b"PARKED"]
    assert crowded.scripts.call("pause", "job", 0) == 1
    assert crowded.scripts.call("unpark", 10) == 1
    assert crowded.scripts.call("abandoned", 3600, 10) == 0

    # Redis' own clock cannot be moved, and ZADD is refused: write the moment by a script
    move = "redis.call('ZREM', KEYS[1], '') redis.call('ZADD', KEYS[1], 1, 'job.c')"
    crowded.client.eval(move, 1, crowded.keys.later)

    assert crowded.scripts.call("due", 10) == 1
    assert crowded.scripts.call("retry", crowded.client.xrange(crowded.keys.dead)[0][0]) == [b"OK"]

    rest = worker.take()
    worker.begin(*rest)

    assert worker.complete(*rest) == [b"OK"] * 4
    assert crowded.scripts.call("seal", "job") == 1
    assert crowded.counts() == {"submitted": 5, "succeeded": 5}
    assert crowded.backlog() == {"docs": 0, "bytes": 0}
    assert crowded.client.ttl(crowded.keys.job("job")) > 0


def test_jobs_can_be_cancelled_while_memory_is_full(crowded: Documents) -> None:
    """Cancelling is how an operator makes room."""
    assert crowded.scripts.call("cancel", "job", "a") == 1
    assert crowded.scripts.call("cancel", "job") == 5

    worker = Worker(crowded)

    assert worker.begin(*worker.take()) == [b"DROPPED"] * 5
    assert crowded.backlog() == {"docs": 0, "bytes": 0}
