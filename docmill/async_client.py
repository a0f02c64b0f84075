"""The client for asyncio: the same operations, each carried out whole in a thread.

Not a second implementation. An await that is cancelled leaves its thread to finish the exchange it
has begun, so a connection is never left one reply behind, where the next caller would read another
caller's data. Decides only how operations meet the event loop. May import docmill.client.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack

from docmill.client import DEFAULT_URL, Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from docmill.client import DocumentLike, Documents
    from docmill.cursor import Cursor
    from docmill.job import Job, JobStatus, RetryReport
    from docmill.results import Result
    from docmill.rules import Policy
    from docmill.wire import Dedup, Truncate

T = TypeVar("T")

#: Operations under way at once; the rest wait for their turn.
MAX_THREADS = 32

#: Documents taken from an asynchronous source at once, and how long that may take.
_TAKE_DOCS = 64
_TAKE_S = 0.05
_LOOK_AROUND_S = 0.5


class SubmitOptions(TypedDict, total=False):
    """The keyword arguments of `Client.submit`, which describes them."""

    prompt: str | None
    messages: Sequence[Mapping[str, Any]] | None
    model: str | None
    max_tokens: int
    temperature: float
    top_p: float
    stop: str | Sequence[str]
    seed: int | None
    tier: Literal["interactive", "batch"]
    deadline: float | timedelta | datetime | None
    truncate: Truncate
    max_document_tokens: int | None
    combine_prompt: str | None
    rules: Mapping[str, Policy] | None
    dedup: Dedup
    near_threshold: float | None
    job_id: str | None
    name: str | None
    result_ttl: float | timedelta
    on_full: Literal["wait", "raise"]
    progress: bool


class AsyncClient:
    """`Client` for asyncio; see there for what each operation does and raises.

    Every operation runs whole in a thread of the client's own. Cancelling an await returns at once
    and never disturbs another operation: a submission stops after the chunk it is sending (submit
    again with the same job id to go on), and a result that arrives meanwhile is kept for the next
    `anext`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        namespace: str = "default",
        *,
        reconnect_s: float = 60.0,
        max_document_bytes: int = 16 * 1024 * 1024,
        tenant: str = "",
    ) -> None:
        self._client = Client(
            url,
            namespace,
            reconnect_s=reconnect_s,
            max_document_bytes=max_document_bytes,
            tenant=tenant,
        )
        self._executor = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="docmill")

    async def _run(self, operation: Callable[..., T], *args: Any) -> T:
        """Carry an operation out in a thread, and tell it when nobody waits for it any more."""
        event = threading.Event()

        def carry_out() -> T:
            from docmill.link import abandoned

            abandoned.set(event)
            return operation(*args)

        future = self._executor.submit(contextvars.copy_context().run, carry_out)
        try:
            return await asyncio.wrap_future(future)
        finally:
            event.set()

    async def submit(
        self,
        documents: Documents | AsyncIterable[DocumentLike],
        **options: Unpack[SubmitOptions],
    ) -> AsyncJob:
        """Submit documents as one job; asynchronous iterables are streamed as well."""
        source: Any = documents
        if isinstance(documents, AsyncIterable):
            source = _pull(documents, asyncio.get_running_loop())
        job = await self._run(lambda: self._client.submit(source, **options))
        return AsyncJob(self, job)

    async def job(self, job_id: str) -> AsyncJob:
        """Come back to a job."""
        return AsyncJob(self, await self._run(self._client.job, job_id))

    async def ping(self) -> None:
        """Make sure that Redis answers."""
        await self._run(self._client.ping)

    async def close(self) -> None:
        """Wait for operations under way, then close the connections."""
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)
        self._client.close()

    async def __aenter__(self) -> Self:
        """Return the client; it is closed at the block's end."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()


class AsyncJob:
    """`Job` for asyncio. Made by `AsyncClient.submit` and `AsyncClient.job`."""

    def __init__(self, client: AsyncClient, job: Job) -> None:
        self._client = client
        self._job = job

    def __repr__(self) -> str:
        """Name the job."""
        return f"AsyncJob({self.id!r})"

    @property
    def id(self) -> str:
        """The job's id; `AsyncClient.job(id)` comes back to it."""
        return self._job.id

    async def status(self) -> JobStatus:
        """Return the job's counts."""
        return await self._client._run(self._job.status)

    def results(
        self, timeout: float | None = None, after: str | None = None
    ) -> AsyncIterator[Result]:
        """Iterate over every result in completion order, and end when the job does."""
        return _AsyncResults(self._client, self._job._cursor(timeout, after))

    async def wait(self, progress: bool = True, timeout: float | None = None) -> JobStatus:  # noqa: ASYNC109 - the same arguments as Job.wait
        """Wait until the job ends and return its final counts."""
        from docmill.cursor import Patience
        from docmill.job import POLL_S
        from docmill.progress import show_progress

        patience = Patience(timeout)
        with show_progress(is_shown=progress) as reporter:
            while True:
                status = await self._client._run(self._job._look, reporter, patience)
                if status.is_finished:
                    return status
                await asyncio.sleep(POLL_S)

    async def cancel(self, custom_ids: Iterable[str] | None = None) -> int:
        """Take documents back, or the whole job; return how many these were."""
        return await self._client._run(self._job.cancel, custom_ids)

    async def pause(self) -> bool:
        """Let the job rest; return whether that changed anything."""
        return await self._client._run(self._job.pause)

    async def resume(self) -> bool:
        """Let a paused job go on; return whether that changed anything."""
        return await self._client._run(self._job.resume)

    async def retry(
        self, failed: Literal[True] = True, codes: Iterable[str] | None = None
    ) -> RetryReport:
        """Run again what failed, and nothing else."""
        return await self._client._run(self._job.retry, failed, codes)


class _AsyncResults:
    """An iterator that keeps a read under way when the await for it is cancelled."""

    def __init__(self, client: AsyncClient, cursor: Cursor) -> None:
        self._client = client
        self._cursor = cursor
        self._ready: deque[Result] = deque()
        self._reading: asyncio.Future[list[Result] | None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Result:
        while not self._ready:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._client._run(self._cursor.poll))
            page = await asyncio.shield(self._reading)
            self._reading = None
            if page is None:
                raise StopAsyncIteration
            self._ready.extend(page)
        return self._ready.popleft()


def _pull(documents: AsyncIterable[T], loop: asyncio.AbstractEventLoop) -> Iterator[T]:
    """Iterate in a thread over a source that lives on the event loop."""
    iterator = aiter(documents)
    is_at_end = False
    while not is_at_end:
        taking = asyncio.run_coroutine_threadsafe(_take(iterator), loop)
        chunk, is_at_end = _result_of(taking)
        yield from chunk


async def _take(iterator: AsyncIterator[T]) -> tuple[list[T], bool]:
    """Take what comes within a short time, at least one; also tell whether that was all."""
    chunk: list[T] = []
    ends_at = asyncio.get_running_loop().time() + _TAKE_S
    async for document in iterator:
        chunk.append(document)
        if len(chunk) >= _TAKE_DOCS or asyncio.get_running_loop().time() > ends_at:
            return chunk, False
    return chunk, True


def _result_of(taking: Future[T]) -> T:
    """Wait for the event loop, which may have ended without telling."""
    from docmill.link import check_abandoned

    while True:
        try:
            return taking.result(timeout=_LOOK_AROUND_S)
        except TimeoutError:
            if taking.done():  # the source's own
                raise
            try:
                check_abandoned()
            except BaseException:
                taking.cancel()
                raise
