"""The asyncio client on a real Redis: the same answers, and cancellation that harms nobody."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from docmill import AsyncClient, Client
from docmill.async_client import SubmitOptions
from docmill.errors import IntakeError, JobNotFound, JobRejected, ResultTimeout
from docmill.keys import Keys
from tests.support.canned_worker import CannedWorker, answering
from tests.support.proxy import running_proxy


def test_documents_are_submitted_followed_and_awaited(
    redis_url: str, namespace: str, worker: CannedWorker
) -> None:
    """Submit, results, wait, status and coming back work as in the client."""

    async def main() -> None:
        async with AsyncClient(redis_url, namespace) as client:
            await client.ping()
            job = await client.submit(["one", ("b", "two")], prompt="Answer", max_tokens=5)
            assert {"ONE", "TWO"} == {result.text async for result in job.results(timeout=5)}
            status = await job.wait(progress=False, timeout=5)
            assert (2, "finished") == (status.succeeded, status.state)
            assert await (await client.job(job.id)).status() == status
            assert 0 == await job.cancel()

    with answering(worker):
        asyncio.run(main())


def test_asynchronous_documents_are_streamed(
    redis_url: str, namespace: str, redis_client: Any, keys: Keys
) -> None:
    """An asynchronous generator runs on the event loop and is read only a chunk or two ahead."""
    most_ahead = 0

    async def documents() -> AsyncIterator[str]:
        nonlocal most_ahead
        for number in range(1, 401):
            if number % 16 == 0:
                await asyncio.sleep(0)
            most_ahead = max(most_ahead, number - redis_client.xlen(keys.intake("batch")))
            yield str(number)

    async def main() -> None:
        async with AsyncClient(redis_url, namespace) as client:
            job = await client.submit(documents(), prompt="Answer")
            assert 400 == (await job.status()).submitted

    asyncio.run(main())

    assert most_ahead <= 2 * 64


def test_errors_are_the_same(redis_url: str, namespace: str) -> None:
    """What the client raises comes out of the await; so does the error of a source."""

    async def failing() -> AsyncIterator[str]:
        yield "one"
        raise TimeoutError("the source's own")

    async def main() -> None:
        async with AsyncClient(redis_url, namespace) as client:
            with pytest.raises(JobRejected, match="max_tokens"):
                await client.submit(["x"], prompt="Answer", max_tokens=0)
            with pytest.raises(IntakeError, match="single str"):
                await client.submit("x", prompt="Answer")
            with pytest.raises(JobNotFound):
                await client.job("never")
            with pytest.raises(TimeoutError, match="own"):
                await client.submit(failing(), prompt="Answer")
            job = await client.submit(["x"], prompt="Answer")
            with pytest.raises(ResultTimeout):
                await job.wait(progress=False, timeout=0.01)
            with pytest.raises(ResultTimeout):
                await anext(aiter(job.results(timeout=0.01)))

    asyncio.run(main())


def test_a_cancelled_submission_stops_and_can_be_finished(
    redis_url: str, namespace: str, worker: CannedWorker
) -> None:
    """Its source is not read to the end; submitting again completes the job."""
    going_on = threading.Event()
    num_read = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal num_read
        while True:
            num_read += 1
            yield str(num_read), "text"
            if num_read >= 200:
                going_on.set()

    async def main() -> None:
        async with AsyncClient(redis_url, namespace) as client:
            submitting = asyncio.ensure_future(
                client.submit(endless(), prompt="Answer", job_id="cut")
            )
            await asyncio.to_thread(going_on.wait, 10)
            submitting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await submitting
        async with AsyncClient(redis_url, namespace) as client:
            assert "open" == (await (await client.job("cut")).status()).state
            rest = ((str(number), "text") for number in range(1, num_read + 1))
            job = await client.submit(rest, prompt="Answer", job_id="cut")
            assert num_read == (await job.status()).submitted

    asyncio.run(main())


def test_a_cancelled_submission_stops_waiting_for_room(
    redis_url: str, namespace: str, redis_client: Any, keys: Keys
) -> None:
    """Closing does not hang on a submission that nobody waits for any more."""
    redis_client.hset(keys.backlog, "max_docs", 1)

    async def main() -> None:
        async with AsyncClient(redis_url, namespace) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.submit(["a", "b"], prompt="Answer"), 0.3)

    asyncio.run(main())


def test_cancelled_awaits_never_mix_answers(
    redis_url: str, namespace: str, worker: CannedWorker
) -> None:
    """FLD-C04: after an await was cancelled, the next caller gets its own, on a bounded pool."""
    with Client(redis_url, namespace) as setup:
        for name in ("a", "b"):
            setup.submit([(f"of-{name}", name)], prompt="Answer", job_id=name)
    worker.step()

    async def main(url: str) -> None:
        async with AsyncClient(url, namespace) as client:
            a, b = await client.job("a"), await client.job("b")
            for _ in range(40):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(aiter(a.results())), 0.005)
                status, result = await asyncio.gather(b.status(), anext(aiter(b.results())))
                assert ("b", "of-b") == (status.job_id, result.custom_id)

    with running_proxy(redis_url) as proxy:
        proxy.delay_s = 0.02
        asyncio.run(main(proxy.url))
        assert proxy.most_open <= 32


def test_a_cancelled_read_loses_no_result(
    redis_url: str, namespace: str, worker: CannedWorker
) -> None:
    """A result that arrives after the await for it was cancelled is the next one returned."""

    async def main(url: str) -> list[str | None]:
        async with AsyncClient(url, namespace) as client:
            job = await client.submit(map(str, range(5)), prompt="Answer")
            worker.step()
            results = aiter(job.results(timeout=5))
            texts: list[str | None] = []
            while True:
                try:
                    texts.append((await asyncio.wait_for(anext(results), 0.01)).text)
                except TimeoutError:
                    continue
                except StopAsyncIteration:
                    return texts

    with running_proxy(redis_url) as proxy:
        proxy.delay_s = 0.03
        assert ["0", "1", "2", "3", "4"] == asyncio.run(main(proxy.url))


def test_the_options_are_those_of_the_client() -> None:
    """The asyncio client passes on every keyword of `Client.submit` but the callbacks."""
    parameters = set(inspect.signature(Client.submit).parameters)

    assert parameters - {"self", "documents", "on_open", "on_progress"} == set(
        SubmitOptions.__annotations__
    )
