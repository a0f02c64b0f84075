"""What a submission refuses, waits for or reports, on a real Redis."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import pytest

from docmill import Client
from docmill.errors import (
    BrokerUnavailable,
    ConfigError,
    IntakeError,
    JobCancelled,
    JobNotFound,
    JobRejected,
    QueueFull,
)
from docmill.keys import Keys
from docmill.wire import unpack
from tests.support.canned_worker import CannedWorker, answering


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 2**64}, "64 bits"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"prompt": None}, "no prompt"),
        ({"prompt": 7}, "prompt must be text"),
        ({"prompt": "half \ud800"}, "surrogate"),
        ({"prompt": "{document} and {document}"}, "2 times"),
        ({"messages": [{"role": "user", "content": "x"}]}, "not both"),
        ({"tier": "express"}, "tier"),
        ({"name": "half \ud800"}, "name"),
        ({"name": 5}, "name"),
        ({"truncate": "tial"}, "truncate"),
        ({"rules": {"mojibake": "mend"}}, "mojibake must be one of"),
        ({"near_threshold": 2.0}, "near_threshold"),
        ({"job_id": "a:b"}, "job_id"),
        ({"job_id": ""}, "job_id"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": 1_796_000_000.0}, "ten years of seconds from now.*datetime with a zone"),
        ({"deadline": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001 - the mistake under test
        ({"deadline": datetime(2000, 1, 1, tzinfo=UTC)}, "passed"),
        ({"result_ttl": timedelta(0)}, "result_ttl"),
        ({"on_full": "panic"}, "on_full"),
    ],
)
def test_an_unusable_parameter_is_refused_before_anything_is_sent(
    client: Client, redis_client: Any, keys: Keys, arguments: dict[str, Any], words: str
) -> None:
    """One line names the parameter, and Redis holds nothing of the job."""
    with pytest.raises(JobRejected, match=words) as caught:
        client.submit(["text"], **{"prompt": "Answer", **arguments})

    assert "\n" not in str(caught.value)
    assert [] == redis_client.keys(f"{keys.prefix}*")


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "no documents"),
        ("papers/", "single str"),
        ({"id": "a", "text": "b"}, "single dict"),
        (7, "iterable"),
        (Path("/no/such/file.txt"), "No such file"),
    ],
)
def test_input_that_cannot_be_read_is_refused_whole(
    client: Client, redis_client: Any, keys: Keys, documents: Any, words: str
) -> None:
    """Nothing is opened for input that is empty, missing or no input at all."""
    with pytest.raises(IntakeError, match=words):
        client.submit(documents, prompt="Answer")

    assert [] == redis_client.keys(f"{keys.prefix}*")


def test_a_document_without_any_prompt_is_an_error_record(
    client: Client, worker: CannedWorker
) -> None:
    """Once documents with prompts of their own have been taken, one without fails alone."""
    job = client.submit([{"id": "a", "text": "x", "prompt": "Answer"}, ("b", "y")])
    worker.step()
    results = {result.custom_id: result for result in job.results(timeout=5)}

    assert results["a"].ok
    assert results["b"].error is not None
    assert "no prompt" in results["b"].error.message


def test_numbers_that_do_not_fit_fail_alone(client: Client, worker: CannedWorker) -> None:
    """A document's own option of more than 64 bits is its error record; its neighbours run."""
    large = [{"id": name, "text": "x", name: 2**70} for name in ("seed", "max_tokens")]
    job = client.submit([*large, ("b", "y")], prompt="Answer")
    worker.step()

    codes = {result.custom_id: result.error and result.error.code for result in job.results(5)}
    assert {"seed": "bad_request", "max_tokens": "bad_request", "b": None} == codes


def test_a_full_backlog_is_raised_on_request(
    client: Client, redis_client: Any, keys: Keys, worker: CannedWorker
) -> None:
    """QueueFull carries depth and limit; what was accepted stays, and repeating goes on."""
    redis_client.hset(keys.backlog, "max_docs", 2)
    documents = [(str(number), "text") for number in range(5)]

    with pytest.raises(QueueFull) as caught:
        client.submit(documents, prompt="Answer", job_id="full", on_full="raise")
    assert (2, 2) == (caught.value.context["docs"], caught.value.context["max_docs"])
    assert "open" == client.job("full").status().state

    redis_client.hset(keys.backlog, "max_docs", 10)
    job = client.submit(documents, prompt="Answer", job_id="full", on_full="raise")
    worker.step()
    assert 5 == len(list(job.results(timeout=5)))


def test_a_full_backlog_is_waited_for(
    client: Client, redis_client: Any, keys: Keys, worker: CannedWorker
) -> None:
    """By default a submission goes on as room is made, in chunks larger than the room."""
    redis_client.hset(keys.backlog, "max_docs", 3)
    with answering(worker):
        job = client.submit((f"text {number}" for number in range(20)), prompt="Answer")
        results = list(job.results(timeout=5))

    assert 20 == len({result.custom_id for result in results})


def test_another_question_for_a_known_job_is_refused(client: Client, worker: CannedWorker) -> None:
    """Documents that the job has would keep their old question silently; nothing is changed."""
    documents = [("a", "one"), ("b", "two")]
    job = client.submit(documents, prompt="First", max_tokens=9, job_id="asked")
    worker.step()

    with pytest.raises(JobRejected, match=r"prompt 'First .*Second .*max_tokens 9 then, 256 now"):
        client.submit([*documents, ("c", "three")], prompt="Second", job_id="asked")

    assert ("finished", 2) == (job.status().state, job.status().submitted)
    client.submit([*documents, ("c", "three")], prompt="First", max_tokens=9, job_id="asked")
    assert 3 == job.status().submitted


@pytest.mark.parametrize("prompt", [None, "Default"])
def test_documents_with_prompts_of_their_own_may_come_again(
    client: Client, prompt: str | None
) -> None:
    """A job whose documents all ask something of their own is the same job when repeated."""
    own = [{"id": name, "text": name, "prompt": f"Say {name}"} for name in ("a", "b")]
    jobs = [client.submit(own, prompt=prompt, job_id="own") for _ in range(2)]

    assert 2 == jobs[1].status().submitted


def test_a_cancelled_job_takes_no_more(client: Client) -> None:
    """Submitting to a cancelled job says so."""
    client.submit(["text"], prompt="Answer", job_id="stop").cancel()

    with pytest.raises(JobCancelled, match="stop"):
        client.submit(["more"], prompt="Answer", job_id="stop")


def test_a_job_that_vanishes_while_it_is_filled_is_reported(
    client: Client, redis_client: Any, keys: Keys
) -> None:
    """A Redis that lost its data is told apart from one that is slow."""

    def documents() -> Iterator[str]:
        yield "first"
        redis_client.delete(keys.job("lost"))
        yield "second"

    with pytest.raises(JobNotFound, match="submitted again"):
        client.submit(documents(), prompt="Answer", job_id="lost")


def test_an_unknown_job_is_not_found(client: Client) -> None:
    """Coming back to a job that never was says what to check."""
    with pytest.raises(JobNotFound, match="namespace"):
        client.job("never")


def test_an_unreachable_redis_is_one_line() -> None:
    """The first call names the place and what to do, without the password and at once."""
    client = Client("redis://user:secret@127.0.0.1:1/0")

    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1.*refused.*start it") as caught:
        client.ping()

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_url_or_namespace_is_a_configuration_error() -> None:
    """Both are refused on first use, each in one line."""
    with pytest.raises(ConfigError, match="cannot be used"):
        Client("http://127.0.0.1").ping()
    with pytest.raises(ConfigError, match="namespace"):
        Client("redis://127.0.0.1", "no spaces").ping()


@pytest.mark.parametrize("prompt", ["Say", None], ids=["asked by the job", "asked by documents"])
def test_a_job_is_one_tenants(redis_url: str, namespace: str, prompt: str | None) -> None:
    """Documents of another tenant do not join it without a word; its own may always."""
    north, south = (Client(redis_url, namespace, tenant=name) for name in ("north", "south"))
    documents = [{"id": "a", "text": "one", "prompt": "Say"}]
    north.submit(documents, prompt=prompt, job_id="known")

    for client in (south, Client(redis_url, namespace)):
        with pytest.raises(JobRejected, match="another tenant: choose another job id") as caught:
            client.submit([{"id": "b", "text": "two", "prompt": "Say"}], job_id="known")
        assert "north" not in caught.value.message

    assert 1 == north.submit(documents, prompt=prompt, job_id="known").status().submitted


def test_a_job_whose_tenant_is_not_known_takes_any(
    client: Client, redis_url: str, namespace: str, redis_client: Any, keys: Keys
) -> None:
    """An older client did not say on whose behalf it opened a job."""
    job = client.submit([("a", "one")], prompt="Say", job_id="old")
    meta = unpack(redis_client.hget(keys.job("old"), "meta"))
    del meta["tenant"]
    redis_client.hset(keys.job("old"), "meta", msgpack.packb(meta))
    Client(redis_url, namespace, tenant="north").submit([("b", "two")], prompt="Say", job_id="old")

    assert 2 == job.status().submitted
