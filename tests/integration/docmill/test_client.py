"""Submitting documents to a real Redis: what arrives, what is refused, what is safe to repeat."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from docmill import Client, Document, Job, read
from docmill.intake import MAX_DOCUMENT_BYTES
from docmill.keys import Keys
from docmill.wire import Header
from tests.support.canned_worker import CannedWorker
from tests.support.cases import CASES
from tests.support.wait import wait_until


def headers(redis_client: Any, keys: Keys, tier: str = "batch") -> list[Header]:
    """Return the headers of all documents that wait in intake."""
    return [Header.decode(fields[b"h"]) for _, fields in redis_client.xrange(keys.intake(tier))]


def failures(job: Job) -> dict[str, str]:
    """Return the error codes of all results so far, by custom id."""
    found = {}
    for result in job.results():
        if result.error:
            found[result.custom_id] = result.error.code
    return found


def test_every_kind_of_document_is_answered_under_its_id(
    client: Client, worker: CannedWorker, tmp_path: Path
) -> None:
    """Texts, bytes, pairs, mappings, Documents and paths all become documents of one job."""
    (tmp_path / "note.txt").write_text("from a file")
    request = {"custom_id": "batch", "body": {"messages": [{"role": "user", "content": "asked"}]}}

    job = client.submit(
        [
            "plain",
            b"bytes",
            ("pair", "of two"),
            {"id": "mapping", "text": "mapped"},
            request,
            Document("document", "whole"),
            tmp_path / "note.txt",
        ],
        prompt="Answer",
    )
    worker.step()

    assert {
        "document-1": "PLAIN",
        "document-2": "BYTES",
        "pair": "OF TWO",
        "mapping": "MAPPED",
        "batch": "ASKED",
        "document": "WHOLE",
        (tmp_path / "note.txt").as_posix(): "FROM A FILE",
    } == {result.custom_id: result.text for result in job.results(timeout=5)}


def test_a_submission_carries_what_was_asked(
    client: Client, worker: CannedWorker, redis_client: Any, keys: Keys
) -> None:
    """Job-wide parameters reach the worker; a document's own come first, except for its model."""
    job = client.submit(
        [("a", "x"), {"id": "b", "text": "y", "max_tokens": 3, "model": "other"}],
        prompt="Before {document} after",
        model="mine",
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        stop="END",
        seed=4,
        truncate="split",
        max_document_tokens=5000,
        combine_prompt="Join",
        rules={"zero_width": "repair"},
        dedup="exact",
        near_threshold=0.9,
        tier="interactive",
        deadline=60,
    )
    [first, second] = headers(redis_client, keys, "interactive")
    worker.step()

    spec = worker.specs["a"]
    assert (("Before ", None, " after"),) == tuple(m.content for m in spec.messages)
    assert ("mine", 9, 0.5, 0.9, ("END",), 4, "split") == (
        spec.model,
        spec.max_tokens,
        spec.temperature,
        spec.top_p,
        spec.stop,
        spec.seed,
        spec.truncate,
    )
    assert (5000, {"zero_width": "repair"}, "exact", 0.9) == (
        spec.max_document_tokens,
        spec.rules,
        spec.dedup,
        spec.near_threshold,
    )
    assert ("Join\n\n", None) == spec.combine[0].content
    assert (3, "mine") == (worker.specs["b"].max_tokens, worker.specs["b"].model)
    assert (job.id, "interactive", "utf-8") == (first.job_id, first.tier, first.encoding)
    assert first.deadline_at == second.deadline_at
    assert first.deadline_at == pytest.approx(datetime.now(UTC).timestamp() + 60, abs=10)


def test_documents_are_streamed(client: Client, redis_client: Any, keys: Keys) -> None:
    """A generator is read only a chunk ahead of what Redis has accepted."""
    most_ahead = 0

    def documents() -> Iterator[str]:
        nonlocal most_ahead
        for number in range(1, 501):
            accepted = redis_client.xlen(keys.intake("batch"))
            most_ahead = max(most_ahead, number - accepted)
            yield f"text {number}"

    job = client.submit(documents(), prompt="Answer")

    assert job.status().submitted == 500
    assert most_ahead <= 64


def test_submitting_again_adds_only_what_is_missing(client: Client, worker: CannedWorker) -> None:
    """A job's documents are known by custom id, so a repeated submission changes nothing."""
    first = client.submit([("a", "one"), ("b", "two")], prompt="Answer", job_id="again")
    worker.step()
    before = list(first.results(timeout=5))

    second = client.submit(
        [("a", "one"), ("b", "two"), ("c", "three")], prompt="Answer", job_id="again"
    )
    worker.step()
    after = list(second.results(timeout=5))

    assert before == after[:2]
    assert ["a", "b", "c"] == [result.custom_id for result in after]
    assert second.status().submitted == 3


def test_a_document_s_own_prompt_reaches_a_known_job(client: Client, worker: CannedWorker) -> None:
    """A spec is stored even when the first document that carries it is known already."""
    client.submit([("a", "one")], prompt="First", job_id="respec")
    own = [{"id": name, "text": name, "prompt": "Second"} for name in ("a", "b")]
    client.submit(own, prompt="First", job_id="respec")
    worker.step()

    assert "Second\n\n" == worker.specs["b"].messages[0].content[0]


def test_the_later_of_two_equal_ids_becomes_an_error_record(
    client: Client, worker: CannedWorker
) -> None:
    """FLD-C01: a custom id given twice never hangs the job; the record names both places."""
    path = CASES / "c01_duplicate_custom_id.jsonl"
    client.submit(read(path), prompt="Answer", job_id="twice")
    job = client.submit(read(path), prompt="Answer", job_id="twice")  # must not add records
    worker.step()
    results = {result.custom_id: result for result in job.results(timeout=5)}

    [refused] = [result for result in results.values() if not result.ok]
    name = path.as_posix()
    assert {"inv-1", "inv-2", "inv-3", f"inv-1@{name}:3"} == set(results)
    assert refused.error is not None
    assert ("duplicate_custom_id", 3) == (refused.error.code, refused.error.line)
    assert f"{name}:1 and {name}:3" in refused.error.message
    assert job.status().submitted == 4


def test_an_id_that_looks_like_a_made_up_one_is_a_duplicate(client: Client) -> None:
    """A given id never silently stands for the document whose place gives it the same name."""
    job = client.submit([("document-2", "given"), "second"], prompt="Answer")
    job.cancel()

    assert {"document-2@document 2": "duplicate_custom_id"} == failures(job)


def test_bad_lines_become_records_and_the_rest_runs(client: Client, worker: CannedWorker) -> None:
    """Of a file with 13 unusable lines the three good ones are answered."""
    job = client.submit(CASES / "i03_bad_middle.jsonl", prompt="Answer")
    worker.step()
    results = list(job.results(timeout=5))

    assert {"ok-1", "ok-13", "ok-16"} == {r.custom_id for r in results if r.ok}
    assert [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16] == [
        r.error.line for r in results if r.error
    ]


def test_a_document_over_the_limit_never_reaches_redis(
    redis_url: str, namespace: str, redis_client: Any, keys: Keys
) -> None:
    """It becomes an error record that names its size and the limit; its neighbours run."""
    with Client(redis_url, namespace, max_document_bytes=1000) as client:
        job = client.submit([("small", "x"), ("large", "é" * 501)], prompt="Answer")
    [refused] = [
        Header.decode(fields[b"h"]).custom_id
        for _, fields in redis_client.xrange(keys.results(job.id))
    ]

    assert "large" == refused
    assert ["small"] == [header.custom_id for header in headers(redis_client, keys)]
    assert (
        b"1002 bytes are more than the 1000"
        in (redis_client.xrange(keys.results(job.id))[0][1][b"b"])
    )


def test_the_default_limit_is_the_service_s() -> None:
    """Client and service refuse the same documents unless told otherwise."""
    settings = pytest.importorskip("workers.settings", reason="needs the service's packages")

    assert settings.Settings().max_document_bytes == MAX_DOCUMENT_BYTES


def test_half_a_surrogate_pair_goes_through_as_bytes(
    client: Client, redis_client: Any, keys: Keys
) -> None:
    """Such a document is for preprocessing to judge; such an id is refused readably."""
    job = client.submit([("a", "left \ud800 right"), ("b\ud800", "x"), "plain"], prompt="Answer")

    documents = [fields[b"d"] for _, fields in redis_client.xrange(keys.intake("batch"))]
    assert [b"left \xed\xa0\x80 right", b"plain"] == documents
    job.cancel()
    assert {"document-2": "bad_request"} == failures(job)


def test_on_open_follows_a_job_while_it_is_filled(client: Client, worker: CannedWorker) -> None:
    """The callback gets a job that exists before its first document is sent."""
    seen: list[Job] = []

    def documents() -> Iterator[str]:
        yield "first"
        wait_until(lambda: seen, what="the job was opened")
        yield "second"

    job = client.submit(documents(), prompt="Answer", on_open=seen.append)
    worker.step()

    assert [job.id] == [one.id for one in seen]
    assert 2 == len(list(seen[0].results(timeout=5)))
