"""The engine worker: what becomes of documents that cannot be answered, and of their neighbours."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack
import pytest
from structlog.testing import capture_logs

from docmill.errors import DeviceOutOfMemory, EngineError, NonFiniteLogits
from docmill.keys import Keys
from docmill.wire import Prepared
from engine.base import Event, Refill, Row, Step
from engine.fake import FakeEngine
from tests.support.engine_workers import (
    POISON,
    MisbehavingEngine,
    serving,
    wait_for_results,
)
from tests.support.ready_documents import Documents
from tests.support.wait import wait_until


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test."""
    return Documents(redis_client, keys)


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
        bodies = wait_for_results(documents, 10)

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
        body = wait_for_results(documents, 1)["a"]

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
        bodies = wait_for_results(documents, 1)

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
        bodies = wait_for_results(documents, 1)

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
        wait_for_results(documents, 1)

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
        wait_for_results(documents, 9)

    alone = [batch for batch in batches if len(batch) == 1]

    assert [batch for batch in batches if batch & suspects and len(batch) > 1] == []
    assert suspects <= set().union(*alone)
    assert max(map(len, batches)) > 1


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
    with serving(FakeEngine(), redis_url, keys), capture_logs() as logged:
        bodies = wait_for_results(documents, 4)
        wait_until(lambda: documents.client.xlen(keys.dead) == 5)

    traces = [line["trace"] for line in logged if line["event"] == "entry.buried"]
    letters = [letter[b"trace"].decode() for _, letter in documents.client.xrange(keys.dead)]

    assert all(traces)
    assert sorted(letters) == sorted(traces)

    codes = {name: body.error.code for name, body in bodies.items() if body.error}

    assert codes == {
        "garbage": "decode_error",
        "newer": "unsupported_schema",
        "empty": "decode_error",
    }
    assert bodies["good"].outcome == "succeeded"
    assert documents.client.xlen(documents.ready()) == 0


@pytest.mark.parametrize(
    "spoiled",
    [
        {"n": b"9" * 5000},
        {"b": b"9" * 400, "h": b"\xff"},
        {"b": b"1.5"},
        {"b": b"nan", "n": b"nan"},
        {"j": b"job:ids", "h": b"\xff"},
        {f"x{number}": b"y" for number in range(5000)} | {"h": b"\xff"},
    ],
    ids=["digits", "sum", "fraction", "nan", "foreign key", "fields"],
)
def test_fields_that_somebody_made_up_end_no_worker(
    documents: Documents, redis_url: str, keys: Keys, spoiled: dict[str, bytes]
) -> None:
    """An entry is given up whatever its fields hold, and what came with it is answered."""
    documents.put(["good"])
    (_, fields) = documents.client.xrange(documents.ready())[0]
    documents.open("other")
    stranger = {b"i": b"stranger", b"j": b"other"}
    documents.client.xadd(
        documents.ready(), fields | stranger | {name.encode(): v for name, v in spoiled.items()}
    )
    documents.submit("later")
    documents.prepare()
    with serving(FakeEngine(), redis_url, keys):
        bodies = wait_for_results(documents, 2)
        wait_until(lambda: documents.client.xlen(keys.dead) == 1)

    assert {body.outcome for body in bodies.values()} == {"succeeded"}
    assert documents.counts() == {"submitted": 2, "succeeded": 2}


def test_what_exceeds_the_context_fails_before_the_engine(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """A document prepared for a larger context gets a clear failure."""
    documents.put(["a"], max_tokens=40_000)
    with serving(FakeEngine(), redis_url, keys):
        body = wait_for_results(documents, 1)["a"]

    assert body.error is not None
    assert body.error.code == "too_long"
    assert "16 prompt tokens and up to 40000 output tokens" in body.error.message
