"""How far documents are that are answered in parts, as whoever waits for them sees it."""

import io
import itertools
import json

import pytest
from typer.testing import CliRunner

from docmill.cli import app
from docmill.cursor import Patience
from docmill.job import Job
from docmill.link import Link
from docmill.parts import Parts, parts_of
from docmill.progress import show_progress
from tests.support.ready_documents import Documents
from tests.support.script_worker import Worker


@pytest.fixture
def link(redis_url: str, namespace: str) -> Link:
    """A client's connection to the shard."""
    return Link(redis_url, namespace, 1.0)


def _divided(documents: Documents, worker: Worker) -> None:
    """One document of two is answered in three parts, of which one is done."""
    documents.open()
    for name in "ab":
        documents.submit(name, document=b"whole")
    first, _ = worker.take(stream=documents.keys.intake("batch"))
    worker.split(first, "one", "two", "three")
    documents.prepare()
    taken = worker.take()
    worker.begin(taken[0])
    worker.complete(taken[0])


def test_parts_are_counted_while_their_document_waits(
    documents: Documents, worker: Worker, link: Link
) -> None:
    """Those done and all of them; nothing of a job whose documents are answered whole."""
    documents.open("other")

    assert Parts() == parts_of(link, "job") == parts_of(link, "other")

    _divided(documents, worker)

    assert Parts(1, 1, 3) == parts_of(link, "job")
    assert "1/3 parts of 1 document" == str(parts_of(link, "job"))
    assert "" == str(parts_of(link, "other"))


def test_many_documents_in_parts_are_only_counted(documents: Documents, link: Link) -> None:
    """Looking into each of thousands, many times a minute, would cost more than it tells."""
    key = documents.keys.splits("job")
    documents.client.hset(key, mapping={f"d{at}": f"job~{at}" for at in range(2000)})

    assert Parts(2000, 0, None) == parts_of(link, "job")
    assert "2,000 documents in parts" == str(parts_of(link, "job"))


def test_status_shows_parts(
    documents: Documents, worker: Worker, redis_url: str, namespace: str
) -> None:
    """To a person in the job's line, to a program as numbers."""
    _divided(documents, worker)
    asked = ["status", "job", "--redis-url", redis_url, "--namespace", namespace]
    shown, told = (CliRunner().invoke(app.app, [*asked, *more]) for more in ([], ["--json"]))

    assert "2 documents (" in shown.stdout
    assert ", 1/3 parts of 1 document" in shown.stdout
    assert {"documents": 1, "done": 1, "total": 3} == json.loads(told.stdout)["parts"]


def test_who_waits_sees_parts(documents: Documents, worker: Worker, link: Link) -> None:
    """Progress moves with each part, long before the document's own answer comes."""
    _divided(documents, worker)
    stream, seconds = io.StringIO(), itertools.count(step=10)
    with show_progress(stream=stream, clock=lambda: float(next(seconds))) as reporter:
        Job(link, "job")._look(reporter, Patience(None))

    assert stream.getvalue().startswith("0/2 documents, 1/3 parts of 1 document")
