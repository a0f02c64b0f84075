"""The public client as a type checker sees it: checked by mypy and pyright, never run."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_type

from docmill import (
    AsyncClient,
    AsyncJob,
    Client,
    Document,
    Job,
    JobStatus,
    Refusal,
    Result,
    RetryReport,
    read,
    read_results,
    scan,
    write_results,
)


def texts() -> Iterator[str]:
    """Make documents."""
    yield "text"


async def texts_later() -> AsyncIterator[tuple[str, str]]:
    """Make documents with ids, one after the other."""
    yield "id", "text"


def submitting() -> None:
    """Every kind of document and parameter is accepted."""
    with Client("redis://localhost", "papers", tenant="north") as client:
        job = client.submit(
            ["text", b"bytes", ("id", "text"), {"id": "a", "text": "b"}, Document("c", "d")],
            prompt="Sum up {document}",
            stop=["END"],
            deadline=timedelta(hours=1),
        )
        assert_type(job, Job)
        client.submit(texts(), prompt="Sum up", deadline=datetime.now(UTC), tier="interactive")
        client.submit(Path("papers"), messages=[{"role": "user", "content": "Sum up"}])
        client.submit(read(["papers/*.md"], encoding="cp1252"), prompt="Sum up", stop="END")
        client.submit(
            ["text"],
            prompt="Sum up",
            truncate="split",
            max_document_tokens=4000,
            combine_prompt="Join",
            rules={"zero_width": "repair"},
            dedup="exact",
            near_threshold=0.9,
        )
        client.submit(["text"], prompt="Sum up", truncate="tial")  # type: ignore[arg-type]
        client.submit(["text"], prompt="Sum up", rules={"a": "mend"})  # type: ignore[dict-item]
        client.submit(["text"], prompt="Sum up", tier="express")  # type: ignore[arg-type]
        client.submit([5], prompt="Sum up")  # type: ignore[list-item]


def following(client: Client) -> None:
    """Results, counts and files have their types."""
    job = client.job("id")
    for result in job.results(timeout=5.0, after=None):
        assert_type(result, Result)
        assert_type(result.text, str | None)
        assert_type(result.raise_for_error(), Result)
        assert_type([finding.rule for finding in result.findings], list[str])
        assert_type(result.near.similarity if result.near else None, float | None)
        assert_type(result.division.parts if result.division else None, int | None)
    assert_type(job.wait(progress=False), JobStatus)
    assert_type(job.cancel(), int)
    assert_type(job.cancel(["id"]), int)
    assert_type(job.pause(), bool)
    assert_type(job.retry(codes=["delivery_limit"]), RetryReport)
    job.retry(failed=False)  # type: ignore[arg-type]
    assert_type(write_results(job.results(), "out.jsonl"), int)
    assert_type(read_results("out.jsonl"), Iterator[Result])
    assert_type(read("papers"), Iterator[Document | Refusal])
    assert_type(scan("papers").count, int)


async def following_later() -> None:
    """The asyncio client has the same types behind awaits."""
    async with AsyncClient() as client:
        job = await client.submit(texts_later(), prompt="Sum up", max_tokens=5)
        assert_type(job, AsyncJob)
        async for result in job.results():
            assert_type(result, Result)
        assert_type(await job.wait(), JobStatus)
        assert_type(await job.resume(), bool)
        assert_type(await job.retry(), RetryReport)
        await client.submit(["text"], max_token=5)  # type: ignore[call-arg]
