"""Answers that documents share: who computes them, who waits, and what is kept for later ones."""

import pytest

from docmill.keys import GROUP
from docmill.wire import Body
from tests.support.ready_documents import Documents
from tests.support.script_worker import Taken, Worker
from tests.support.shard_answers import ANSWER_OVERHEAD

DAY_S = 86_400


def body(num_bytes: int, text: str = "x") -> bytes:
    """Return a body that takes exactly so many bytes of the store."""
    frame = len(Body(text=text * 300).encode()) - 300
    return Body(text=text * (num_bytes - ANSWER_OVERHEAD - frame)).encode()


def store(
    documents: Documents, worker: Worker, *texts: str, num_bytes: int = 1500, max_bytes: int = 4500
) -> None:
    """Answer documents of these texts one after the other; their answers are kept."""
    documents.open()
    for text in texts:
        documents.submit(f"{text} {documents.counts().get('submitted')}", document=text.encode())
        documents.prepare(fingerprint=str)
        (taken,) = worker.take()
        worker.begin(taken)
        worker.complete(taken, body=body(num_bytes), max_bytes=max_bytes)


def kept(documents: Documents) -> list[bytes]:
    """Return the fingerprints of the kept answers, the least recently used first."""
    fps: list[bytes] = documents.client.zrange(documents.keys.answers, 0, -1)
    start = documents.keys.cached_result("")
    there = {name.removeprefix(start.encode()) for name in documents.client.keys(f"{start}*")}
    sizes = documents.client.hgetall(documents.keys.answer_bytes)

    assert there == set(sizes) == set(fps)
    assert figures(documents).get("answer_bytes", 0) == sum(map(int, sizes.values()))
    return fps


def figures(documents: Documents) -> dict[str, int]:
    """Return how answers were shared."""
    told = documents.client.hgetall(documents.keys.sharing)
    return {name.decode(): int(num) for name, num in told.items() if int(num)}


def ready(documents: Documents, worker: Worker, *custom_ids: str) -> list[Taken]:
    """Make equal documents ready, and take those that are."""
    documents.open()
    for custom_id in custom_ids:
        documents.submit(custom_id)
    documents.prepare(fingerprint="fp")
    return worker.take()


# what is kept


def test_the_least_recently_used_answers_go_first(documents: Documents, worker: Worker) -> None:
    """Only as many as must; what was asked for is used."""
    store(documents, worker, "1", "2", "3")

    assert kept(documents) == [b"1", b"2", b"3"]

    documents.submit("again", document=b"1")

    assert documents.prepare(fingerprint=str) == [b"CACHED"]

    store(documents, worker, "4")

    assert kept(documents) == [b"3", b"1", b"4"]
    assert figures(documents)["evicted"] == 1


def test_an_answer_above_the_quota_pushes_no_other_out(
    documents: Documents, worker: Worker
) -> None:
    """It is not kept, and what is kept stays."""
    store(documents, worker, "1", "2")
    store(documents, worker, "large", num_bytes=4501)

    assert kept(documents) == [b"1", b"2"]


def test_many_answers_make_room_for_a_large_one(documents: Documents, worker: Worker) -> None:
    """However many must go."""
    texts = [f"{number:02}" for number in range(40)]
    store(documents, worker, *texts, num_bytes=900, max_bytes=36_000)
    store(documents, worker, "large", num_bytes=4500, max_bytes=5400)

    assert kept(documents) == [b"39", b"large"]


def test_an_answer_that_is_kept_again_counts_once(documents: Documents, worker: Worker) -> None:
    """Its new size replaces the old one."""
    store(documents, worker, "1")
    documents.client.delete(documents.keys.cached_result("1"))  # its lifetime has ended
    store(documents, worker, "1", num_bytes=1200)

    assert kept(documents) == [b"1"]
    assert figures(documents)["answer_bytes"] == 1200


def test_nothing_is_kept_without_a_lifetime(documents: Documents, worker: Worker) -> None:
    """The store can be switched off; followers get their answers all the same."""
    (taken,) = ready(documents, worker, "a", "b")
    worker.begin(taken)
    worker.complete(taken, ttl_s=0)

    assert kept(documents) == []
    assert documents.counts() == {"submitted": 2, "succeeded": 2}


def test_trimming_forgets_what_nobody_asked_for(documents: Documents, worker: Worker) -> None:
    """Old ones first, then the least recently used that are too many, a bounded number a call."""
    store(documents, worker, "1", "2", "3")
    documents.client.zadd(documents.keys.answers, {"2": 1})

    assert documents.scripts.call("trim_answers", DAY_S, 2**30, 100) == 1
    assert kept(documents) == [b"1", b"3"]
    assert documents.scripts.call("trim_answers", DAY_S, 1500, 100) == 1
    assert kept(documents) == [b"3"]
    assert documents.scripts.call("trim_answers", DAY_S, 1500, 100) == 0
    assert documents.scripts.call("trim_answers", DAY_S, 0, 100) == 1
    assert kept(documents) == []


def test_trimming_forgets_what_has_expired(documents: Documents, worker: Worker) -> None:
    """Also where an answer was given less time than the caller would: its books go with it."""
    store(documents, worker, "1", "2")
    documents.client.delete(documents.keys.cached_result("1"))

    assert documents.scripts.call("trim_answers", DAY_S, 2**30, 100) == 1
    assert kept(documents) == [b"2"]


def test_trimming_is_bounded(documents: Documents, worker: Worker) -> None:
    """One call forgets no more than it was told, so that it blocks nobody for long."""
    store(documents, worker, *(f"{number}" for number in range(5)), max_bytes=2**20)
    documents.client.zadd(documents.keys.answers, dict.fromkeys("01234", 1))

    assert documents.scripts.call("trim_answers", DAY_S, 2**20, 2) == 2
    assert kept(documents) == [b"2", b"3", b"4"]


def test_answers_that_lost_their_size_can_be_forgotten(
    documents: Documents, worker: Worker
) -> None:
    """A size that somebody deleted keeps no answer for ever."""
    store(documents, worker, "1", "2")
    documents.client.hdel(documents.keys.answer_bytes, "1")
    documents.scripts.call("trim_answers", DAY_S, 500, 100)

    assert documents.client.zrange(documents.keys.answers, 0, -1) == []


@pytest.mark.parametrize("key", ["answers", "answers:bytes", "sharing", "result:fp"])
def test_spoiled_answers_cost_nobody_their_counts(
    documents: Documents, worker: Worker, key: str
) -> None:
    """What somebody wrote over the store is not used; the documents end as they should."""
    name = f"{documents.keys.prefix}:{key}"
    documents.client.xadd(name, {"spoiled": "yes"})
    (taken,) = ready(documents, worker, "a", "b")

    assert worker.begin(taken) == [b"RUN"]
    assert worker.complete(taken) == [b"OK"]
    assert documents.counts() == {"submitted": 2, "succeeded": 2}
    assert documents.backlog() == {"docs": 0, "bytes": 0}

    documents.submit("c")
    documents.prepare(fingerprint="fp")
    worker.complete(*worker.take())

    assert documents.counts() == {"submitted": 3, "succeeded": 3}


def test_figures_say_how_answers_are_shared(documents: Documents, worker: Worker) -> None:
    """Each way is counted, and the prompts that were not computed."""
    leader, *_ = ready(documents, worker, "a", "b", "c")
    worker.begin(leader)
    worker.bury(leader)
    (promoted,) = worker.take()
    worker.begin(promoted)
    worker.complete(promoted, body=body(1300))
    ready(documents, worker, "d")

    assert figures(documents) == {
        "lookups": 4,
        "followed": 2,
        "promoted": 1,
        "cached": 1,
        "tokens_saved": 2 * 16,
        "answer_bytes": 1300,
    }


def test_what_the_worker_knew_is_counted(documents: Documents) -> None:
    """Of each call, how many documents its process had seen before; beside the lookups."""
    documents.open()
    documents.submit("a")
    intake = documents.keys.intake("batch")
    documents.client.xgroup_create(intake, GROUP, id="0")
    ((entry, fields),) = documents.client.xreadgroup(GROUP, "w1", {intake: ">"})[0][1]
    told = [intake, entry, *(fields[name] for name in (b"i", b"j", b"b", b"h"))]
    told += ["ready", documents.ready(), b"p", "fp", "1"]
    documents.scripts.call("prepare", GROUP, "w1", 1, *told)

    assert figures(documents) == {"lookups": 1, "process": 1}


# who computes and who waits


def test_two_that_failed_are_enough(documents: Documents, worker: Worker) -> None:
    """FLD-D05: once a second one fails with a prompt, all that wait for it fail as it did."""
    (leader,) = ready(documents, worker, "a", "b", "c", "d")
    worker.begin(leader)
    worker.bury(leader, trace="0123")

    assert documents.counts() == {"submitted": 4, "failed": 1}

    (promoted,) = worker.take()

    assert promoted[2][b"i"] == b"job.b"

    worker.begin(promoted)
    worker.bury(promoted, trace="4567")
    letters = [fields for _, fields in documents.client.xrange(documents.keys.dead)]

    assert documents.counts() == {"submitted": 4, "failed": 4}
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert [(one[b"i"][-1:], one[b"trace"], one.get(b"d")) for one in letters] == [
        (b"a", b"0123", None),
        (b"b", b"4567", None),
        (b"c", b"4567", b"text"),
        (b"d", b"4567", b"text"),
    ]
    assert {one[b"stream"] for one in letters[2:]} == {documents.keys.intake("batch").encode()}


def test_who_died_of_others_can_be_retried(documents: Documents, worker: Worker) -> None:
    """Each letter holds its own document, which is prepared anew."""
    ready(documents, worker, "a", "b", "c")
    for _ in range(2):
        for taken in worker.take() or documents_held(documents, worker):
            worker.begin(taken)
            worker.bury(taken)
    last = documents.client.xrevrange(documents.keys.dead, count=1)[0][0]

    assert documents.scripts.call("retry", last) == [b"OK"]
    assert documents.prepare(fingerprint="fp") == [b"READY"]
    assert documents.counts() == {"submitted": 3, "failed": 2}


def documents_held(documents: Documents, worker: Worker) -> list[Taken]:
    """Return the ready entries that the worker was given before."""
    stream = documents.ready()
    held = documents.client.xreadgroup(GROUP, worker.name, {stream: "0"})[0][1]
    return [(stream, entry.decode(), fields) for entry, fields in held]


def test_a_hand_back_forgives_no_failure(documents: Documents, worker: Worker) -> None:
    """Whoever leads after one that failed and is tried twice has the last word for all."""
    (leader,) = ready(documents, worker, "a", "b", "c")
    worker.bury(leader)
    (leader,) = worker.take()

    assert worker.redeliver(leader, counts=0) == b"BACK"

    (leader,) = worker.take()
    worker.bury(leader)

    assert documents.counts() == {"submitted": 3, "failed": 3}


def test_endings_that_are_no_failure_do_not_count(documents: Documents, worker: Worker) -> None:
    """However many leaders expire or are cancelled, the next is tried."""
    (leader,) = ready(documents, worker, *"abcde")
    for outcome in ("expired", "cancelled", "expired"):
        worker.begin(leader)
        worker.complete(leader, outcome=outcome)
        (leader,) = worker.take()
    worker.begin(leader)
    worker.bury(leader)  # the first that fails
    (leader,) = worker.take()
    worker.begin(leader)
    worker.complete(leader)

    assert documents.counts() == {
        "submitted": 5,
        "expired": 2,
        "cancelled": 1,
        "failed": 1,
        "succeeded": 1,
    }


def test_who_goes_on_lies_in_its_own_tier(documents: Documents, worker: Worker) -> None:
    """A document is served in the order that its own caller asked for, with the leader's bucket."""
    documents.open()
    documents.submit("a", tier="interactive")
    documents.prepare(tier="interactive", bucket=3, fingerprint="fp")
    documents.submit("b")
    documents.prepare(fingerprint="fp")
    (leader,) = worker.take(stream=documents.ready("interactive", 3))
    worker.bury(leader)
    (promoted,) = worker.take(stream=documents.ready("batch", 3))

    assert promoted[2] == {
        **leader[2],
        b"i": b"job.b",
        b"h": promoted[2][b"h"],
    }
    assert documents.counts() == {"submitted": 2, "failed": 1}


def test_followers_that_were_cancelled_are_passed_over(
    documents: Documents, worker: Worker
) -> None:
    """The first that is still wanted leads."""
    (leader,) = ready(documents, worker, "a", "b", "c")
    documents.scripts.call("cancel", "job", "b")
    worker.bury(leader)

    assert [fields[b"i"] for _, _, fields in worker.take()] == [b"job.c"]
    assert documents.counts() == {"submitted": 3, "failed": 1, "cancelled": 1}


def test_a_leader_takes_nobody_along_when_it_waits_for_another_try(
    documents: Documents, worker: Worker
) -> None:
    """Those who wait go on waiting; the failure of the last try hands the lead on."""
    (leader,) = ready(documents, worker, "a", "b")
    worker.begin(leader)

    assert worker.redeliver(leader) == b"BACK"

    (leader,) = worker.take()
    worker.begin(leader)

    assert worker.redeliver(leader) == b"DEAD"
    assert [fields[b"i"] for _, _, fields in worker.take()] == [b"job.b"]


def test_no_two_compute_one_answer(documents: Documents, worker: Worker) -> None:
    """What comes back when an equal one runs, waits for its answer."""
    (first,) = ready(documents, worker, "a", "b")
    worker.bury(first)
    (second,) = worker.take()
    (letter,) = [entry for entry, _ in documents.client.xrange(documents.keys.dead)]
    documents.scripts.call("retry", letter)
    (first,) = worker.take()

    assert worker.begin(first, second) == [b"FOLLOWS", b"RUN"]
    assert worker.complete(second) == [b"OK"]
    assert [(one.custom_id, one.how) for one in documents.results()] == [
        ("b", "run"),
        ("a", "follower"),
    ]


def test_of_two_without_a_leader_one_runs(documents: Documents, worker: Worker) -> None:
    """Begun by one call after a pause, the first leads and the second waits for it."""
    documents.open()
    documents.scripts.call("pause", "job", 1)
    taken = ready(documents, worker, "a", "b")
    documents.scripts.call("pause", "job", 0)

    assert worker.begin(*taken) == [b"RUN", b"FOLLOWS"]


def test_what_was_answered_meanwhile_does_not_run(documents: Documents, worker: Worker) -> None:
    """An answer that was kept since the document became ready is given to it, and is used then."""
    documents.open()
    documents.open("other")
    documents.scripts.call("pause", "job", 1)
    (rests,) = ready(documents, worker, "a")
    worker.begin(rests)
    documents.submit("b", job_id="other")
    documents.prepare(fingerprint="fp")
    (taken,) = worker.take()
    worker.begin(taken)
    worker.complete(taken)
    documents.client.zadd(documents.keys.answers, {"fp": 1})
    documents.scripts.call("pause", "job", 0)
    documents.scripts.call("unpark", 10)
    (rests,) = worker.take()

    assert worker.begin(rests) == [b"CACHED"]
    assert [(one.custom_id, one.how) for one in documents.results()] == [("a", "cached")]
    assert documents.backlog() == {"docs": 0, "bytes": 0}
    assert documents.client.zscore(documents.keys.answers, "fp") > 1


def test_nobody_waits_for_another_jobs_pause(documents: Documents, worker: Worker) -> None:
    """Who was paused with the leader goes on when its own job does."""
    documents.open("other")
    (leader,) = ready(documents, worker, "a")
    documents.submit("b", job_id="other")

    assert documents.prepare(fingerprint="fp") == [b"FOLLOWS"]

    for job in ("job", "other"):
        documents.scripts.call("pause", job, 1)

    assert worker.begin(leader) == [b"PARKED"]

    documents.scripts.call("pause", "other", 0)

    assert documents.scripts.call("unpark", 10) == 1

    (taken,) = worker.take()

    assert worker.begin(taken) == [b"RUN"]

    worker.complete(taken)

    assert documents.counts("other") == {"submitted": 1, "succeeded": 1}

    documents.scripts.call("pause", "job", 0)
    documents.scripts.call("unpark", 10)

    assert worker.begin(*worker.take()) == [b"CACHED"]
    assert documents.client.smembers(documents.keys.parked_jobs) == set()


def test_a_marker_that_somebody_deleted_costs_nobody_the_answer(
    documents: Documents, worker: Worker
) -> None:
    """Whoever computes an answer gives it to all that wait for it."""
    (leader,) = ready(documents, worker, "a", "b")
    worker.begin(leader)
    documents.client.delete(documents.keys.leader("fp"))
    worker.complete(leader)

    assert documents.counts() == {"submitted": 2, "succeeded": 2}
    assert not documents.client.exists(documents.keys.followers("fp"))


def test_a_marker_that_misleads_goes_with_the_answer(documents: Documents, worker: Worker) -> None:
    """A name that somebody wrote into it, of nobody who computes anything, stays for nobody."""
    (leader,) = ready(documents, worker, "a", "b")
    worker.begin(leader)
    documents.client.set(documents.keys.leader("fp"), "somebody")
    worker.complete(leader)

    assert documents.counts() == {"submitted": 2, "succeeded": 2}
    assert not documents.client.exists(documents.keys.leader("fp"))


def test_a_followers_spoiled_job_costs_the_others_nothing(
    documents: Documents, worker: Worker
) -> None:
    """One answer that cannot be written keeps none of the others back, and nobody gets two."""
    documents.open("bad")
    (leader,) = ready(documents, worker, "a")
    documents.submit("x", job_id="bad")
    documents.submit("b")
    documents.prepare(fingerprint="fp")
    documents.client.set(documents.keys.results("bad"), "spoiled")
    worker.begin(leader)

    assert worker.complete(leader, ttl_s=0) == [b"OK"]
    assert documents.counts() == {"submitted": 2, "succeeded": 2}

    (again,) = ready(documents, worker, "c")
    worker.complete(again)

    assert documents.num_results() == 3


def test_endings_of_one_call_give_each_follower_one_answer(
    documents: Documents, worker: Worker
) -> None:
    """Also when one that does not lead ends before the one that does, which ends without one."""
    documents.open()
    documents.scripts.call("pause", "job", 1)
    ready(documents, worker, "rests")
    documents.scripts.call("pause", "job", 0)
    ready(documents, worker, "a", "b")
    rests, leads = documents_held(documents, worker)
    told: list[str | bytes] = []
    for (stream, entry, fields), outcome in ((rests, "succeeded"), (leads, "expired")):
        told += [stream, entry, *(fields[name] for name in (b"i", b"j", b"b", b"f", b"h"))]
        told += [outcome, Body(outcome="succeeded", text="answer").encode()]

    assert documents.scripts.call("complete", GROUP, "w1", 0, 0, *told) == [b"OK", b"OK"]
    assert documents.counts() == {"submitted": 3, "succeeded": 2, "expired": 1}
    assert documents.num_results() == 3
    assert documents.client.xlen(documents.ready()) == 0
    assert not documents.client.exists(documents.keys.leader("fp"))


def test_what_was_begun_twice_and_waits_does_not_run(documents: Documents, worker: Worker) -> None:
    """A worker that lost the first reply asks again; if another leads by then, one of them runs."""
    documents.open()
    documents.scripts.call("pause", "job", 1)
    first, second = ready(documents, worker, "a", "b")
    documents.scripts.call("pause", "job", 0)
    worker.begin(first)
    documents.client.delete(documents.keys.leader("fp"))
    worker.begin(second)

    assert worker.begin(first) == [b"FOLLOWS"]
    assert documents.counts() == {"submitted": 2, "running": 1}
    assert documents.client.zrange(documents.keys.running, 0, -1) == [b"job.b"]
