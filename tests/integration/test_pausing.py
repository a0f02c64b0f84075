"""Pausing jobs: their documents step aside, come back as they were, and hold up nobody else."""

from tests.support.ready_documents import Documents
from tests.support.script_worker import Taken, Worker


def pause(documents: Documents, job_id: str = "job") -> int:
    """Call pause.lua, to pause."""
    said: int = documents.scripts.call("pause", job_id, 1)
    return said


def resume(documents: Documents, job_id: str = "job") -> int:
    """Call pause.lua, to go on."""
    said: int = documents.scripts.call("pause", job_id, 0)
    return said


def park(documents: Documents, worker: Worker, *custom_ids: str) -> list[Taken]:
    """Make documents of a paused job ready, and let an engine meet them."""
    documents.put(custom_ids)
    pause(documents)
    taken = worker.take()

    assert worker.begin(*taken) == [b"PARKED"] * len(custom_ids)

    return taken


def test_a_paused_jobs_documents_step_aside_and_come_back(
    documents: Documents, worker: Worker
) -> None:
    """No engine runs them meanwhile; after that they are where they were, as they were."""
    (taken,) = park(documents, worker, "a")

    assert documents.scripts.call("unpark", 10) == 0
    assert worker.take() == []
    assert worker.complete(taken) == [b"LOST"]
    assert documents.counts() == {"submitted": 1}
    assert documents.backlog() == {"docs": 1, "bytes": 4}
    assert resume(documents) == 1
    assert documents.scripts.call("unpark", 10) == 1
    assert documents.scripts.call("unpark", 10) == 0

    (again,) = worker.take()

    assert again[2] == taken[2]
    assert not documents.client.exists(documents.keys.parked("job"), documents.keys.parked_jobs)


def test_what_runs_when_its_job_is_paused_ends(documents: Documents, worker: Worker) -> None:
    """Pausing stops no engine; it only lets none begin."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    pause(documents)

    assert worker.complete(taken) == [b"OK"]
    assert documents.counts() == {"submitted": 1, "succeeded": 1}


def test_what_was_begun_twice_and_is_parked_does_not_run(
    documents: Documents, worker: Worker
) -> None:
    """A worker that lost the first reply asks again; a pause between the two is heeded."""
    documents.put(["a"])
    (taken,) = worker.take()
    worker.begin(taken)
    pause(documents)

    assert worker.begin(taken) == [b"PARKED"]
    assert documents.counts() == {"submitted": 1}
    assert documents.client.zcard(documents.keys.running) == 0


def test_other_jobs_go_on(documents: Documents, worker: Worker) -> None:
    """In one read of an engine, only the paused job's documents step aside."""
    documents.put(["a"])
    documents.open("other")
    documents.submit("b", job_id="other")
    documents.prepare()
    pause(documents)

    assert worker.begin(*worker.take()) == [b"PARKED", b"RUN"]
    assert documents.counts("other") == {"submitted": 1, "running": 1}


def test_only_resumed_jobs_come_back_and_no_more_than_asked(
    documents: Documents, worker: Worker
) -> None:
    """One call moves a bounded number, in the order in which they were parked."""
    documents.open("other")
    documents.submit("x", job_id="other")
    documents.put("abc")
    pause(documents)
    pause(documents, "other")
    worker.begin(*worker.take())
    resume(documents)

    assert documents.scripts.call("unpark", 2) == 2
    assert [fields[b"i"] for _, _, fields in worker.take()] == [b"job.a", b"job.b"]
    assert documents.scripts.call("unpark", 2) == 1
    assert documents.scripts.call("unpark", 2) == 0
    assert documents.client.smembers(documents.keys.parked_jobs) == {b"other"}


def test_pausing_says_what_it_changed(documents: Documents) -> None:
    """Twice is once; what does not exist or has ended cannot be paused."""
    assert pause(documents) == -1
    assert resume(documents) == -1

    documents.open()

    assert [pause(documents), pause(documents)] == [1, 0]
    assert [resume(documents), resume(documents)] == [1, 0]

    documents.scripts.call("seal", "job")

    assert pause(documents) == 0
    assert not documents.client.hexists(documents.keys.job("job"), "paused_at")


def test_a_job_cancelled_while_it_was_paused_leaves_nothing(
    documents: Documents, worker: Worker
) -> None:
    """Its parked entries come back to be dropped, counted once."""
    park(documents, worker, "a", "b")

    assert documents.scripts.call("cancel", "job") == 2
    assert pause(documents) == 0
    assert documents.scripts.call("unpark", 10) == 2
    assert worker.begin(*worker.take()) == [b"DROPPED", b"DROPPED"]
    assert documents.counts() == {"submitted": 2, "cancelled": 2}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_a_job_ids_next_life_begins_after_its_entries_are_gone(
    documents: Documents, worker: Worker
) -> None:
    """A cancelled job's keys stay while its entries wait, lest they count for its successor."""
    documents.put(["runs", "waits"])
    running, waiting = worker.take()
    worker.begin(running)
    documents.submit("new")
    documents.scripts.call("cancel", "job")
    worker.complete(running)
    job = documents.keys.job("job")

    assert documents.client.hexists(job, "finished_at")
    assert documents.client.ttl(job) == -1
    assert documents.scripts.call("open", "job", 60, b"") == b"CANCELLED"

    documents.prepare()

    assert documents.client.ttl(job) == -1
    assert worker.begin(waiting) == [b"DROPPED"]
    assert 0 < documents.client.ttl(job) <= 3600
    assert documents.counts() == {"submitted": 3, "succeeded": 1, "cancelled": 2}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_what_somebody_parked_keeps_no_job_back(documents: Documents, worker: Worker) -> None:
    """Entries that nobody can bring back do not keep other jobs' documents parked."""
    documents.put(["a"])
    taken = worker.take()
    documents.scripts.call("pause", "job", 1)
    worker.begin(*taken)
    documents.client.set(documents.keys.parked("odd"), "no stream")
    documents.client.xadd(documents.keys.parked("nowhere"), {"i": "x"})
    documents.client.sadd(documents.keys.parked_jobs, "odd", "nowhere")
    documents.scripts.call("pause", "job", 0)
    documents.scripts.call("unpark", 10)

    assert [fields[b"i"] for _, _, fields in worker.take()] == [b"job.a"]
    assert documents.client.smembers(documents.keys.parked_jobs) == {b"odd"}


def test_a_pause_holds_up_no_other_job(documents: Documents, worker: Worker) -> None:
    """Who waited for the answer of a paused job's document does not wait for the pause to end."""
    documents.open()
    documents.open("other")
    documents.submit("a")
    documents.submit("b", job_id="other")

    assert documents.prepare(fingerprint="fp") == [b"READY", b"FOLLOWS"]

    pause(documents)
    worker.work_off(fingerprint="fp")

    assert documents.counts("other") == {"submitted": 1, "succeeded": 1}

    resume(documents)
    documents.scripts.call("unpark", 10)
    worker.work_off()

    assert documents.counts() == {"submitted": 1, "succeeded": 1}


def test_nobody_follows_a_document_of_a_paused_job(documents: Documents, worker: Worker) -> None:
    """What is prepared during a pause leads nobody; it may follow others itself."""
    documents.put(["a"])
    documents.open("other")
    pause(documents)
    documents.submit("b")
    documents.prepare(fingerprint="fp")
    documents.submit("c", job_id="other")
    documents.submit("d")

    assert documents.prepare(fingerprint="fp") == [b"READY", b"FOLLOWS"]

    worker.work_off(fingerprint="fp")

    assert documents.counts("other") == {"submitted": 1, "succeeded": 1}
    assert [result.custom_id for result in documents.results()] == ["d"]
