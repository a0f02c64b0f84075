"""The engine worker: every ready document gets exactly one result."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from docmill.errors import EngineError
from docmill.keys import Keys
from engine.base import Event, Refill, Row, Step
from engine.fake import FakeEngine
from tests.support.engine_workers import (
    serving,
    wait_for_results,
)
from tests.support.ready_documents import NOW, Documents
from tests.support.wait import wait_until
from workers.lifecycle import wall_clock


@pytest.fixture
def documents(redis_client: Any, keys: Keys) -> Documents:
    """The shard under test."""
    return Documents(redis_client, keys)


def test_answers_are_complete(documents: Documents, redis_url: str, keys: Keys) -> None:
    """A result says what was answered, by what, out of what, and where the time went."""
    documents.put(["a"])
    with serving(FakeEngine(), redis_url, keys, model_name="ignored") as process:
        body = wait_for_results(documents, 1)["a"]
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
        body = wait_for_results(documents, 1)["a"]

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
        bodies = wait_for_results(documents, 120)

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
        wait_for_results(documents, 1)


def test_documents_past_their_deadline_expire(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """What is late is not run, and counted as expired."""
    documents.open()
    documents.submit("late", deadline_at=NOW - 1e9)
    documents.submit("early", deadline_at=NOW + 1e9)
    documents.prepare()
    with serving(FakeEngine(), redis_url, keys):
        bodies = wait_for_results(documents, 2)

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
    with serving(FakeEngine(token_delay_s=0.5), redis_url, keys):  # four tokens and more
        wait_until(lambda: documents.counts().get("running") == 1)
        wait_until(lambda: documents.counts("other").get("running") == 1)
        documents.scripts.call("cancel", "job", *custom_ids)

        wait_until(lambda: documents.client.hexists(keys.job("job"), "finished_at"), timeout_s=3.0)
        wait_until(lambda: documents.num_results("other") == 1)

    assert documents.counts() == {"submitted": 1, "cancelled": 1}
    assert documents.results() == []
    assert documents.counts("other") == {"submitted": 1, "succeeded": 1}
    assert documents.backlog() == {"docs": 0, "bytes": 0}


class ColdEngine(FakeEngine):
    """Notes what happens to it, and may fail to warm up."""

    def __init__(self, problem: EngineError | None = None) -> None:
        super().__init__()
        self.problem = problem
        self.events: list[str] = []

    def warm(self, prefixes: Sequence[NDArray[np.uint32]]) -> None:
        """Warm up, or fail."""
        self.events.append("warm")
        if self.problem is not None:
            raise self.problem

    def run(
        self, rows: Sequence[Row], refill: Refill | None = None, step: Step | None = None
    ) -> Iterator[Event]:
        """Answer rows as the fake does."""
        self.events.append("run")
        return super().run(rows, refill, step)


def test_an_idle_engine_is_warmed_once(documents: Documents, redis_url: str, keys: Keys) -> None:
    """Where nothing waits, the first idle moment is used; it fails without harm."""
    engine = ColdEngine(EngineError("out of breath"))
    with serving(engine, redis_url, keys):
        wait_until(lambda: engine.events)
        documents.put(["a"])
        wait_for_results(documents, 1)

    assert engine.events == ["warm", "run"]


def test_documents_that_wait_warm_the_engine_themselves(
    documents: Documents, redis_url: str, keys: Keys
) -> None:
    """What waits for an engine that is ready is not kept waiting for anything else."""
    engine = ColdEngine()
    documents.put(["a"])
    with serving(engine, redis_url, keys):
        wait_for_results(documents, 1)

    assert engine.events == ["run"]
