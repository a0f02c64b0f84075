"""The Lua scripts: each does its step whole or not at all, and the counters always add up."""

import pytest

from docmill.keys import GROUP
from tests.support.ready_documents import SPEC, Documents
from tests.support.script_worker import FAILED, LIMIT, Worker


def test_a_document_goes_from_submitted_to_succeeded(documents: Documents, worker: Worker) -> None:
    """Each step moves the document and counts it once."""
    documents.open()

    assert documents.submit("a") == b"OK"
    assert documents.counts() == {"submitted": 1}
    assert documents.backlog() == {"docs": 1, "bytes": 4}
    assert documents.prepare() == [b"READY"]

    (taken,) = worker.take()

    assert worker.begin(taken) == [b"RUN"]
    assert documents.counts() == {"submitted": 1, "running": 1}
    assert worker.complete(taken) == [b"OK"]
    assert documents.counts() == {"submitted": 1, "succeeded": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert [(result.custom_id, result.how) for result in documents.results()] == [("a", "run")]
    assert documents.client.xlen(documents.ready()) == 0


def test_the_list_of_jobs_keeps_the_latest(documents: Documents) -> None:
    """Opening a job forgets the oldest beyond 10,000: the list does not grow with history."""
    old = {f"old-{number}": number for number in range(10_000)}
    documents.client.zadd(documents.keys.jobs, old)
    documents.scripts.call("open", "newest", 60, b"")

    assert documents.client.zcard(documents.keys.jobs) == 10_000
    assert documents.client.zscore(documents.keys.jobs, "old-0") is None
    assert documents.client.zscore(documents.keys.jobs, "newest") is not None


def test_a_custom_id_is_accepted_once(documents: Documents) -> None:
    """Sending a document again, as after a lost reply, changes nothing."""
    documents.open()
    documents.submit("a")

    assert documents.submit("a") == b"SEEN"
    assert documents.counts() == {"submitted": 1}
    assert documents.backlog() == {"docs": 1, "bytes": 4}


def test_a_custom_id_is_accepted_once_within_a_call(documents: Documents) -> None:
    """The first of two equal custom ids in one call is taken."""
    documents.open()

    assert documents.submit_all([("a", b"1"), ("b", b"2"), ("a", b"3")]) == [b"OK", b"OK", b"SEEN"]
    assert documents.counts() == {"submitted": 2}
    assert documents.backlog() == {"docs": 2, "bytes": 2}


def test_a_full_backlog_refuses_without_a_trace(documents: Documents) -> None:
    """A refused document can be sent again later."""
    documents.client.hset(documents.keys.backlog, "max_docs", 1)
    documents.open()
    documents.submit("a")

    assert documents.submit("b") == b"FULL"
    assert documents.counts() == {"submitted": 1}

    documents.client.hset(documents.keys.backlog, "max_docs", 2)

    assert documents.submit("b") == b"OK"


def test_an_empty_backlog_takes_any_one_document(documents: Documents) -> None:
    """A document above the limit in bytes does not wait for ever."""
    documents.client.hset(documents.keys.backlog, "max_bytes", 2)
    documents.open()

    assert documents.submit("a") == b"OK"
    assert documents.submit("b") == b"FULL"


def test_only_the_owner_completes(documents: Documents, worker: Worker) -> None:
    """An entry handed back is lost to its former owner, whose answer is dropped."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)

    assert worker.redeliver(taken) == b"BACK"
    assert worker.complete(taken) == [b"LOST"]
    assert worker.begin(taken) == [b"LOST"]
    assert documents.counts() == {"submitted": 1}
    assert documents.results() == []

    other = Worker(documents, "w2")
    (again,) = other.take()

    assert again[2][b"n"] == b"2"
    assert other.begin(again) == [b"RUN"]
    assert other.complete(again) == [b"OK"]
    assert other.complete(again) == [b"LOST"]
    assert documents.counts() == {"submitted": 1, "succeeded": 1}


def test_one_call_completes_what_it_owns_and_no_more(documents: Documents, worker: Worker) -> None:
    """In a batch of endings, a lost one does not disturb the others."""
    documents.put(["a", "b", "c"])
    first, second, third = worker.take()
    worker.begin(first, second, third)
    worker.redeliver(second)

    assert worker.complete(first, second, third, third) == [b"OK", b"LOST", b"OK", b"LOST"]
    assert documents.counts() == {"submitted": 3, "succeeded": 2}
    assert documents.backlog()["docs"] == 1


def test_entries_are_found_however_they_lie_among_others(
    documents: Documents, worker: Worker
) -> None:
    """One call may name entries in any order, of two streams, far apart, and a stranger's."""
    documents.put([f"d{number}" for number in range(40)])
    documents.client.xgroup_create(documents.ready("interactive"), GROUP, id="0", mkstream=True)
    documents.submit("urgent", tier="interactive")
    documents.prepare(tier="interactive")
    other = Worker(documents, "w2")
    (lost,) = other.take(1)
    taken = worker.take()
    (urgent,) = worker.take(stream=documents.ready("interactive"))
    named = [taken[38], lost, urgent, taken[0], taken[19]]

    assert worker.begin(*named) == [b"RUN", b"LOST", b"RUN", b"RUN", b"RUN"]
    assert worker.complete(*named) == [b"OK", b"LOST", b"OK", b"OK", b"OK"]
    assert worker.complete(*named) == [b"LOST"] * 5
    assert documents.counts() == {"submitted": 41, "succeeded": 4}
    assert documents.backlog()["docs"] == 37


def test_an_entry_that_cannot_be_made_ready_stays(documents: Documents) -> None:
    """A document whose writing fails is still its owner's, and can be handed back."""
    documents.client.set(documents.ready(bucket=1), "not a stream")
    documents.open()
    documents.submit("a")

    (verdict,) = documents.prepare(bucket=1, fingerprint="fp")

    assert verdict.startswith(b"WRONGTYPE")
    assert documents.backlog() == {"docs": 1, "bytes": 4}

    intake = documents.keys.intake("batch")
    ((entry_id, _),) = documents.client.xrange(intake)
    preparer = Worker(documents, "preparer")

    assert preparer.redeliver((intake, entry_id, {})) == b"BACK"
    assert documents.prepare(fingerprint="fp") == [b"READY"]


def test_a_failing_entry_leaves_the_others_counted(documents: Documents, worker: Worker) -> None:
    """When one ending cannot be written, those beside it are."""
    documents.open("bad")
    documents.submit("x", job_id="bad")
    documents.put(["a"])
    bad, good = worker.take()
    worker.begin(bad, good)
    documents.client.set(documents.keys.results("bad"), "not a stream")

    verdicts = worker.complete(bad, good)

    assert verdicts[0].startswith(b"WRONGTYPE")
    assert verdicts[1] == b"OK"
    assert documents.counts() == {"submitted": 1, "succeeded": 1}
    assert documents.backlog()["docs"] == 0


def test_the_living_are_not_robbed(documents: Documents, worker: Worker) -> None:
    """An entry is not handed back while its owner's heartbeat is there."""
    documents.put(["a"])
    (taken,) = worker.take()
    heartbeat = documents.keys.heartbeat("w1")
    documents.client.set(heartbeat, 1)

    assert worker.redeliver(taken, heartbeat=heartbeat) == b"LOST"

    documents.client.delete(heartbeat)

    assert worker.redeliver(taken, heartbeat=heartbeat) == b"BACK"


def test_too_many_deliveries_end_in_a_failed_result_and_a_dead_letter(
    documents: Documents, worker: Worker
) -> None:
    """A document that kills its workers is given up, with everything it consists of."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)

    assert worker.redeliver(taken) == b"BACK"

    (taken,) = worker.take()
    worker.begin(taken)

    assert worker.redeliver(taken) == b"DEAD"

    (result,) = documents.results()
    ((_, letter),) = documents.client.xrange(documents.keys.dead)
    ((result_id, _),) = documents.client.xrange(documents.keys.results("job"))

    assert result.body == FAILED
    assert documents.counts() == {"submitted": 1, "failed": 1}
    assert documents.backlog()["docs"] == 0
    assert letter[b"reason"] == b"delivery_limit"
    assert letter[b"consumer"] == b"w1"
    assert (letter[b"error"], letter[b"trace"], letter[b"n"]) == (b"given up", b"abc", b"2")
    assert letter[b"result"] == result_id
    assert letter[b"p"] == taken[2][b"p"]


def test_what_no_engine_had_begun_is_not_blamed(documents: Documents, worker: Worker) -> None:
    """A document that only waited in a dead worker's window keeps its count of deliveries."""
    documents.put(["a"])
    for _ in range(2 * LIMIT):
        (taken,) = worker.take()

        assert worker.redeliver(taken) == b"BACK"

    (taken,) = worker.take()

    assert taken[2][b"n"] == b"1"


def test_handing_back_oneself_counts_no_delivery(documents: Documents, worker: Worker) -> None:
    """A worker that stops may hand back as often as it likes."""
    documents.put(["a"])
    for _ in range(2 * LIMIT):
        (taken,) = worker.take()

        assert worker.redeliver(taken, counts=0) == b"BACK"


def test_strangers_entries_are_buried(documents: Documents, worker: Worker) -> None:
    """An entry without the fields of a document becomes a dead letter and disturbs no counter."""
    for script in ("bury", "redeliver"):
        documents.client.xadd(documents.ready(), {"hello": "world"})
        ((stream, entry_id, _),) = worker.take()
        if script == "bury":
            verdict = worker.bury((stream, entry_id, {}))
        else:
            verdict = worker.redeliver((stream, entry_id, {}))

        assert verdict in (b"OK", b"DEAD")

    letters = [fields for _, fields in documents.client.xrange(documents.keys.dead)]

    assert [letter[b"hello"] for letter in letters] == [b"world", b"world"]
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert documents.client.xlen(documents.ready()) == 0


def test_burying_fails_the_document(documents: Documents, worker: Worker) -> None:
    """An unreadable record ends its document with the given body."""
    documents.put(["a"], record=b"garbage")
    (taken,) = worker.take()

    assert worker.bury(taken) == b"OK"
    assert worker.bury(taken) == b"LOST"
    assert documents.counts() == {"submitted": 1, "failed": 1}
    assert [result.body for result in documents.results()] == [FAILED]


def test_duplicates_are_answered_once_and_delivered_to_all(
    documents: Documents, worker: Worker
) -> None:
    """Followers get the leader's body, and later duplicates the stored one."""
    documents.open()
    documents.open("other")
    documents.submit("a")
    documents.submit("b")
    documents.submit("c", job_id="other")

    assert documents.prepare(fingerprint="fp") == [b"READY", b"FOLLOWS", b"FOLLOWS"]

    (taken,) = worker.take()
    worker.begin(taken)
    worker.complete(taken)
    documents.submit("d")

    assert documents.prepare(fingerprint="fp") == [b"CACHED"]
    assert [(result.custom_id, result.how) for result in documents.results()] == [
        ("a", "run"),
        ("b", "follower"),
        ("d", "cached"),
    ]
    assert [result.custom_id for result in documents.results("other")] == ["c"]
    assert documents.counts() == {"submitted": 3, "succeeded": 3}
    assert documents.counts("other") == {"submitted": 1, "succeeded": 1}
    assert documents.backlog()["docs"] == 0


def test_a_failed_leader_lets_its_followers_try(documents: Documents, worker: Worker) -> None:
    """Failure is not shared: the first of those who waited leads, and the others wait on."""
    documents.open()
    for custom_id in "abc":
        documents.submit(custom_id)
    documents.prepare(fingerprint="fp")
    (taken,) = worker.take()
    worker.begin(taken)
    worker.bury(taken)

    assert documents.counts() == {"submitted": 3, "failed": 1}

    (taken,) = worker.take()

    assert taken[2][b"i"] == b"job.b"
    assert worker.begin(taken) == [b"RUN"]

    worker.complete(taken)

    assert documents.counts() == {"submitted": 3, "failed": 1, "succeeded": 2}


def test_cancelling_counts_what_waits_and_lets_what_runs_end(
    documents: Documents, worker: Worker
) -> None:
    """After a cancellation the job ends with the last running document, and adds up."""
    documents.put(["a", "b"])
    running, waiting = worker.take()
    worker.begin(running)
    documents.submit("c")

    assert documents.scripts.call("cancel", "job") == 2
    assert documents.counts() == {"submitted": 3, "cancelled": 2, "running": 1}
    assert documents.submit("d") == b"CANCELLED"
    assert worker.begin(waiting) == [b"DROPPED"]
    assert documents.prepare() == [b"DROPPED"]
    assert worker.complete(running) == [b"OK"]
    assert documents.counts() == {"submitted": 3, "cancelled": 2, "succeeded": 1}
    assert documents.backlog()["docs"] == 0
    assert documents.client.ttl(documents.keys.job("job")) > 0


def test_a_finished_job_cannot_be_cancelled(documents: Documents, worker: Worker) -> None:
    """Cancelling what has ended changes nothing, so the job stays finished."""
    documents.put(["a"])
    taken = worker.take()
    worker.begin(*taken)
    worker.complete(*taken)
    documents.scripts.call("seal", "job")

    assert documents.scripts.call("cancel", "job") == 0
    assert not documents.client.hexists(documents.keys.job("job"), "cancelled_at")


@pytest.mark.parametrize("how", ["begin", "redeliver"])
def test_what_ran_when_its_job_was_cancelled_is_counted_when_it_is_dropped(
    documents: Documents, worker: Worker, how: str
) -> None:
    """A running entry of a cancelled job that is begun or handed back again counts as cancelled."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    documents.scripts.call("cancel", "job")
    verdict = worker.begin(taken)[0] if how == "begin" else worker.redeliver(taken)

    assert verdict == b"DROPPED"
    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.backlog()["docs"] == 0


def test_a_job_that_is_gone_is_not_brought_back(documents: Documents, worker: Worker) -> None:
    """Completing a document whose job was deleted leaves no key behind."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    documents.client.delete(documents.keys.job("job"))

    assert worker.complete(taken) == [b"OK"]
    assert documents.client.exists(documents.keys.job("job")) == 0
    assert documents.backlog()["docs"] == 0


def test_a_finished_job_expires_with_all_its_keys(documents: Documents, worker: Worker) -> None:
    """The lifetime starts when a sealed job's last document is done, and reopening stops it."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    documents.scripts.call("seal", "job")

    assert documents.client.ttl(documents.keys.job("job")) == -1

    worker.complete(taken)
    keys = documents.keys
    of_job = [keys.job("job"), keys.custom_ids("job"), keys.specs("job"), keys.results("job")]

    assert all(3590 < documents.client.ttl(key) <= 3600 for key in of_job)

    documents.open()

    assert {documents.client.ttl(key) for key in of_job} == {-1}


def test_a_consumer_is_forgotten_only_when_it_holds_nothing(
    documents: Documents, worker: Worker
) -> None:
    """Removing a consumer never loses entries."""
    documents.put(["a"])
    (taken,) = worker.take()
    gone = (documents.ready(), GROUP, "w1", documents.keys.heartbeat("w1"))

    assert documents.scripts.call("forget", *gone) == b"KEPT"

    worker.redeliver(taken)

    assert documents.scripts.call("forget", *gone) == b"OK"
    assert documents.client.xinfo_consumers(documents.ready(), GROUP) == []


def test_specs_are_kept_once(documents: Documents) -> None:
    """Submitting many documents stores what is asked of them once."""
    documents.put(["a", "b"])

    assert documents.client.hgetall(documents.keys.specs("job")) == {
        SPEC.digest().encode(): SPEC.encode()
    }
