"""The engine worker: every ready document gets exactly one result, whatever the engine does."""

import json
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgpack
import pytest

from docmill.connection import connect
from docmill.errors import DeviceOutOfMemory, EngineError, NonFiniteLogits
from docmill.keys import GROUP, Keys
from docmill.wire import Body, Prepared
from engine.base import Event, Refill, Row, Step
from engine.fake import FakeEngine, answer
from tests.support.engine_workers import serving
from tests.support.processes import running
from tests.support.ready_documents import NOW, Documents
from tests.support.wait import wait_until
from workers import engine_worker
from workers.lifecycle import EXIT_LEFT, wall_clock
from workers.redis_server import start_embedded

POISON = [7, 7, 7]


@pytest.fixture
def redis_folder() -> Iterator[Path]:
    """A folder for a Redis of the test's own, with a name short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dm-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test."""
    return Documents(redis_client, keys)


class MisbehavingEngine(FakeEngine):
    """Does something else whenever a poisoned row is in the batch."""

    def __init__(self, misbehave: Callable[[], None]) -> None:
        super().__init__()
        self._misbehave = misbehave

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Answer, unless a row is poisoned."""
        if any(list(row.prompt) == POISON for row in rows):
            self._misbehave()
            return iter(())
        return super().run(rows, refill, step)


def _wait_for_results(documents: Documents, count: int) -> dict[str, Body]:
    wait_until(lambda: documents.num_results() >= count, what=f"{count} results")
    results = documents.results()

    assert len(results) == count

    return {result.custom_id: result.body for result in results}


def test_answers_are_complete(documents: Documents, redis_url: str, keys: Keys) -> None:
    """A result says what was answered, by what, out of what, and where the time went."""
    documents.put(["a"])
    with serving(FakeEngine(), redis_url, keys, model_name="ignored") as process:
        body = _wait_for_results(documents, 1)["a"]
        digest = process.settings.digest()

    assert body.outcome == "succeeded"
    assert body.text
    assert body.finish_reason == "stop"
    assert body.usage.prompt_tokens == 16
    assert body.usage.completion_tokens > 0
    assert body.timings.preprocess_s == 0.25
    assert body.warnings == ("repaired",)
    assert (body.model, body.model_version, body.config_version) == ("fake", "fake", digest)
    assert documents.counts() == {"submitted": 1, "succeeded": 1}


def test_the_queue_time_counts_from_submission(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """The queue time is what passed between submission and start, without preprocessing."""
    documents.open()
    documents.submit("a", submitted_at=wall_clock() - 100)
    documents.prepare()
    with serving(FakeEngine(), redis_url, keys):
        body = _wait_for_results(documents, 1)["a"]

    assert 99.75 <= body.timings.queue_s < 110


def test_many_documents_of_all_kinds_are_answered_once(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """Documents of several tiers and buckets all come back, in batches that are refilled."""
    documents.open()
    for tier in ("batch", "interactive"):
        for bucket in range(3):
            for number in range(20):
                documents.submit(f"{tier}-{bucket}-{number}", tier=tier)
            documents.prepare(tier=tier, bucket=bucket)
    with serving(FakeEngine(token_delay_s=0.0001), redis_url, keys, max_rows=4):
        bodies = _wait_for_results(documents, 120)

    assert {body.outcome for body in bodies.values()} == {"succeeded"}
    assert documents.counts() == {"submitted": 120, "succeeded": 120}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


def test_the_model_is_registered(documents: Documents, redis_url: str, keys: Keys) -> None:
    """Others learn which model is served and into which buckets its documents go."""
    with serving(FakeEngine(), redis_url, keys, bucket_bounds=(10, 20)):
        record = wait_until(lambda: documents.client.hget(keys.models, "fake"))

    assert msgpack.unpackb(record) == {
        "name": "fake",
        "context_len": 32_768,
        "bucket_bounds": [10, 20],
        "num_buckets": 3,
    }


def test_buckets_of_earlier_bounds_are_still_read(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """After a change to fewer buckets, what waits in the others is answered."""
    with serving(FakeEngine(), redis_url, keys, bucket_bounds=(10, 20)):
        wait_until(lambda: documents.client.hexists(keys.models, "fake"))
    documents.put(["a"], bucket=2)
    with serving(FakeEngine(), redis_url, keys, bucket_bounds=(10,)):
        _wait_for_results(documents, 1)


def test_unusable_entries_are_given_up_and_neighbours_are_answered(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """Garbage, records of another version and strangers' entries end as dead letters."""
    documents.put(["garbage"], record=b"\xc1")
    documents.submit("newer")
    documents.prepare(record=msgpack.packb({"v": 99, "tokens": b"1234", "max_tokens": 1}))
    documents.submit("empty")
    documents.prepare(record=Prepared(tokens=b"", max_tokens=1).encode())
    documents.client.xadd(documents.ready(), {"hello": "world"})
    documents.client.xadd(documents.ready(), dict.fromkeys("ijhbnpf", "x"))
    documents.submit("good")
    documents.prepare()
    with serving(FakeEngine(), redis_url, keys):
        bodies = _wait_for_results(documents, 4)
        wait_until(lambda: documents.client.xlen(keys.dead) == 5)

    codes = {name: body.error.code for name, body in bodies.items() if body.error}

    assert codes == {
        "garbage": "decode_error",
        "newer": "unsupported_schema",
        "empty": "decode_error",
    }
    assert bodies["good"].outcome == "succeeded"
    assert documents.client.xlen(documents.ready()) == 0


def test_what_exceeds_the_context_fails_before_the_engine(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """A document prepared for a larger context gets a clear failure."""
    documents.put(["a"], max_tokens=40_000)
    with serving(FakeEngine(), redis_url, keys):
        body = _wait_for_results(documents, 1)["a"]

    assert body.error is not None
    assert body.error.code == "too_long"
    assert "16 prompt tokens and up to 40000 output tokens" in body.error.message


def test_documents_past_their_deadline_expire(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """What is late is not run, and counted as expired."""
    documents.open()
    documents.submit("late", deadline_at=NOW - 1e9)
    documents.submit("early", deadline_at=NOW + 1e9)
    documents.prepare()
    with serving(FakeEngine(), redis_url, keys):
        bodies = _wait_for_results(documents, 2)

    assert bodies["late"].outcome == "expired"
    assert bodies["early"].outcome == "succeeded"
    assert documents.counts() == {"submitted": 2, "succeeded": 1, "expired": 1}


def test_documents_of_cancelled_jobs_are_not_run(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """Cancelled documents leave the streams without a result."""
    documents.put(["a", "b"])
    documents.scripts.call("cancel", "job")
    with serving(FakeEngine(), redis_url, keys):
        wait_until(lambda: documents.backlog()["docs"] == 0)

    assert documents.results() == []
    assert documents.counts() == {"submitted": 2, "cancelled": 2}


def _raise(error: Exception) -> Callable[[], None]:
    def misbehave() -> None:
        raise error

    return misbehave


@pytest.mark.parametrize(
    ("misbehave", "code", "message"),
    [
        (_raise(NonFiniteLogits("layer 3")), "non_finite_logits", "layer 3"),
        (_raise(ValueError("a bug")), "delivery_limit", "engine_fault: ValueError: a bug"),
        (_raise(EngineError("\ud800")), "engine_error", "?"),
        (lambda: None, "delivery_limit", "without an answer"),
    ],
    ids=["engine-error", "bug", "surrogate", "silence"],
)
def test_a_document_that_breaks_its_batch_fails_alone(
    documents: Documents,
    redis_url: str,
    keys: Keys,
    misbehave: Callable[[], None],
    code: str,
    message: str,
) -> None:
    """Its neighbours are tried again without it and succeed."""
    documents.put(["poison"], prompt=POISON)
    for number in range(9):
        documents.submit(f"good-{number}")
    documents.prepare()
    with serving(MisbehavingEngine(misbehave), redis_url, keys, max_deliveries=1):
        bodies = _wait_for_results(documents, 10)

    error = bodies.pop("poison").error

    assert error is not None
    assert error.code == code
    assert message in error.message
    assert {body.outcome for body in bodies.values()} == {"succeeded"}

    ((_, letter),) = documents.client.xrange(keys.dead)

    assert letter[b"reason"].decode() == code
    assert message in letter[b"error"].decode()
    assert letter[b"i"] == b"job.poison"


def test_a_broken_engine_does_not_fail_the_whole_pile(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """An engine that fails on everything is given up after a few documents; the rest waits."""
    documents.put([f"d{number}" for number in range(50)], prompt=POISON)
    engine = MisbehavingEngine(_raise(RuntimeError("device lost")))
    with serving(engine, redis_url, keys, max_rows=20) as process:
        assert process.stop.wait(10)

    assert documents.counts() == {"submitted": 50}
    assert documents.client.zcard(keys.later) == 8
    assert documents.client.xlen(documents.ready()) == 42


def test_a_failed_row_keeps_its_code(documents: Documents, redis_url: str, keys: Keys) -> None:
    """A row that the engine fails by itself is not tried again."""
    seen: list[str] = []

    def fault(row: Row) -> EngineError:
        seen.append(row.row_id)
        return NonFiniteLogits("row 1, step 2")

    documents.put(["a"])
    with serving(FakeEngine(fault=fault), redis_url, keys):
        body = _wait_for_results(documents, 1)["a"]

    assert body.error is not None
    assert body.error.code == "non_finite_logits"
    assert len(seen) == 1


def test_a_passing_failure_is_tried_again_later(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """What may get better waits its time, counts a delivery, and is answered then."""
    failures = [DeviceOutOfMemory("none left"), DeviceOutOfMemory("none left")]
    documents.put(["a"])
    with serving(
        FakeEngine(fault=lambda row: failures.pop() if failures else None), redis_url, keys
    ):
        for _ in range(2):
            wait_until(lambda: documents.scripts.call("due", 10) == 1)
        bodies = _wait_for_results(documents, 1)

    assert bodies["a"].outcome == "succeeded"
    assert documents.counts() == {"submitted": 1, "succeeded": 1}
    assert documents.client.xlen(keys.dead) == 0


def test_a_passing_failure_ends_at_the_limit(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """After the last delivery the result and the dead letter say how often, and what happened."""
    documents.put(["a"])
    engine = FakeEngine(fault=lambda row: DeviceOutOfMemory("none left"))
    with serving(engine, redis_url, keys, max_deliveries=2):
        wait_until(lambda: documents.scripts.call("due", 10) == 1)
        bodies = _wait_for_results(documents, 1)

    error = bodies["a"].error

    assert error is not None
    assert error.code == "delivery_limit"
    assert "2 deliveries; at last device_out_of_memory: none left" in error.message
    ((_, letter),) = documents.client.xrange(keys.dead)
    assert (letter[b"reason"], letter[b"n"]) == (b"delivery_limit", b"2")


def test_a_dead_letter_leads_to_its_traceback(
    documents: Documents, redis_url: str, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its digest stands beside the traceback in the log."""
    documents.put(["a"], prompt=POISON)
    with serving(MisbehavingEngine(_raise(ValueError("a bug"))), redis_url, keys, max_deliveries=1):
        _wait_for_results(documents, 1)

    ((_, letter),) = documents.client.xrange(keys.dead)
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    logged = [line for line in lines if line.get("trace") == letter[b"trace"].decode()]

    assert any("ValueError: a bug" in line.get("exception", "") for line in logged)


def test_what_was_delivered_before_runs_alone(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """It meets no neighbour in its batch, neither from the start nor by a refill."""
    batches: list[set[str]] = []

    class Recorder(FakeEngine):
        def run(
            self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
        ) -> Iterator[Event]:
            batches.append({row.row_id for row in rows})
            if refill is not None:
                batches[-1] |= {row.row_id for row in refill(8)}
            return super().run(rows, None, step)

    documents.put([f"d{number}" for number in range(9)])
    suspects = set()
    for entry_id, fields in documents.client.xrange(documents.ready())[:3]:
        documents.client.xdel(documents.ready(), entry_id)
        again = documents.client.xadd(documents.ready(), fields | {b"n": b"2"})
        suspects.add(f"{documents.ready()}/{again.decode()}")
    with serving(Recorder(), redis_url, keys, max_rows=4):
        _wait_for_results(documents, 9)

    alone = [batch for batch in batches if len(batch) == 1]

    assert [batch for batch in batches if batch & suspects and len(batch) > 1] == []
    assert suspects <= set().union(*alone)
    assert max(map(len, batches)) > 1


@pytest.mark.parametrize("custom_ids", [(), ("long",)], ids=["job", "single"])
def test_a_cancelled_document_that_runs_is_stopped(
    documents: Documents, redis_url: str, keys: Keys, custom_ids: tuple[str, ...]
) -> None:
    """Its job ends within about two seconds however long the answer is; neighbours are answered."""
    documents.put(["long"])
    documents.scripts.call("seal", "job")
    documents.open("other")
    documents.submit("neighbour", job_id="other")
    documents.prepare()
    # four tokens at least, of a second each
    with serving(FakeEngine(token_delay_s=1.0), redis_url, keys):
        wait_until(lambda: documents.counts().get("running") == 1)
        wait_until(lambda: documents.counts("other").get("running") == 1)
        documents.scripts.call("cancel", "job", *custom_ids)

        wait_until(lambda: documents.client.hexists(keys.job("job"), "finished_at"), timeout_s=3.5)
        wait_until(lambda: documents.num_results("other") == 1, timeout_s=20)

    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.results() == []
    assert documents.counts("other") == {"submitted": 1, "succeeded": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


class GatedEngine(FakeEngine):
    """Answers nothing before its gate is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.gate = threading.Event(), threading.Event()

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Wait for the gate, then answer."""
        self.started.set()
        self.gate.wait(10)
        yield from map(answer, rows)


def test_an_answer_after_the_lease_was_lost_is_dropped(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """What was handed to another worker meanwhile is answered by that one only."""
    documents.put(["a"])
    engine = GatedEngine()
    with serving(engine, redis_url, keys) as process:
        assert engine.started.wait(5)

        (pending,) = documents.client.xpending_range(documents.ready(), GROUP, "-", "+", 10)
        owned = (documents.ready(), GROUP, process.consumer, pending["message_id"])
        documents.scripts.call("redeliver", *owned, 1, 5, 0, "", b"", "", "", "", "")
        engine.gate.set()
        _wait_for_results(documents, 1)
        wait_until(lambda: documents.client.xlen(documents.ready()) == 0)

    assert documents.counts() == {"submitted": 1, "succeeded": 1}


def test_stopping_finishes_what_runs_and_hands_back_what_waits(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """A worker asked to stop loses nothing: its batch ends, and the rest is free at once."""
    engine = GatedEngine()
    documents.put(["running"])
    with serving(engine, redis_url, keys) as process:
        assert engine.started.wait(5)

        for name in ("w1", "w2"):
            documents.submit(name)
        documents.prepare()
        wait_until(lambda: documents.client.xpending(documents.ready(), GROUP)["pending"] == 3)
        process.stop.set()
        # within a second, though the reader may have just begun to wait for more
        wait_until(
            lambda: documents.client.xpending(documents.ready(), GROUP)["pending"] == 1,
            timeout_s=1.0,
        )
        engine.gate.set()
        _wait_for_results(documents, 1)

    waiting = [fields for _, fields in documents.client.xrange(documents.ready())]

    assert [fields[b"n"] for fields in waiting] == [b"1", b"1"]
    assert documents.counts() == {"submitted": 3, "succeeded": 1}


def test_a_lost_registration_is_made_again(
    redis_url: str, redis_client: Any, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that lost its data learns anew what is served: the reaper looks there for streams."""
    monkeypatch.setattr(engine_worker, "_REGISTER_EVERY_S", 0.0)
    with serving(FakeEngine(), redis_url, keys):
        wait_until(lambda: redis_client.hlen(keys.models) == 1)
        redis_client.delete(keys.models)

        wait_until(lambda: redis_client.hlen(keys.models) == 1)


def test_a_restart_of_redis_is_survived(keys: Keys, redis_folder: Path) -> None:
    """While Redis is away the worker waits, and afterwards every document is answered once."""
    server = start_embedded(redis_folder)
    client = connect(server.url)
    documents = Documents(client, keys)
    documents.put([f"d{number}" for number in range(200)])
    with serving(FakeEngine(token_delay_s=0.001), server.url, keys, max_rows=4):
        wait_until(lambda: documents.num_results() > 20)
        server.stop()
        server = start_embedded(redis_folder)
        wait_until(lambda: documents.num_results() >= 200, timeout_s=15)

    assert set(Counter(result.custom_id for result in documents.results()).values()) == {1}
    assert documents.counts() == {"submitted": 200, "succeeded": 200}

    client.close()
    server.stop()


def test_a_redis_without_memory_is_worked_off(keys: Keys, redis_folder: Path) -> None:
    """When Redis takes nothing new, what is there is still answered, which makes room."""
    server = start_embedded(redis_folder)
    client = connect(server.url)
    documents = Documents(client, keys)
    documents.put(["a"])
    engine = GatedEngine()
    with serving(engine, server.url, keys, max_rows=2):
        assert engine.started.wait(5)

        for number in range(4):
            documents.submit(f"d{number}")
        documents.prepare()
        client.config_set("maxmemory", 1)
        engine.gate.set()
        _wait_for_results(documents, 5)
        client.config_set("maxmemory", 0)

    assert documents.counts() == {"submitted": 5, "succeeded": 5}

    client.close()
    server.stop()


def test_sigterm_hands_back_what_cannot_end_in_time(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """Asked to stop in the middle of a long batch, the process ends cleanly within its grace."""
    documents.put(["a", "b"])
    settings = {"redis_url": redis_url, "namespace": keys.namespace, "engine": "fake"}
    with running("tests.support.slow_engine_worker", "60", grace_s=1, **settings) as process:
        wait_until(lambda: documents.counts().get("running") == 2)
        process.send_signal(signal.SIGTERM)

        assert process.wait(5) == 0

    waiting = [fields for _, fields in documents.client.xrange(documents.ready())]

    assert [fields[b"n"] for fields in waiting] == [b"1", b"1"]
    assert documents.client.xpending(documents.ready(), GROUP)["pending"] == 0
    assert documents.counts() == {"submitted": 2}
    assert documents.client.hlen(keys.consumers) == 0


def test_sigterm_while_redis_is_away_ends_soon(keys: Keys, redis_folder: Path) -> None:
    """Nobody waits for a Redis that does not answer; the status says that entries were left."""
    server = start_embedded(redis_folder)
    client = connect(server.url)
    documents = Documents(client, keys)
    documents.put(["a", "b"])
    settings = {"redis_url": server.url, "namespace": keys.namespace, "engine": "fake"}
    with running("tests.support.slow_engine_worker", "60", grace_s=50, **settings) as process:
        wait_until(lambda: documents.counts().get("running") == 2)
        client.close()
        server.stop()
        process.send_signal(signal.SIGTERM)

        assert process.wait(8) == EXIT_LEFT


def test_an_unusable_configuration_ends_the_process(keys: Keys) -> None:
    """Without a Redis, or with a wrong setting, the worker exits with the status for it."""
    with running("workers.engine_worker", engine="fake") as process:
        assert process.wait(10) == 78
    with running("workers.engine_worker", engine="fake", max_rows=0) as process:
        assert process.wait(10) == 78


def test_an_unknown_model_ends_the_process(redis_url: str, keys: Keys) -> None:
    """A model that cannot be found is reported; the process does not try for ever."""
    settings = {"redis_url": redis_url, "namespace": keys.namespace, "model": "/no/such/model"}
    with running("workers.engine_worker", **settings) as process:
        assert process.wait(15) == 78
