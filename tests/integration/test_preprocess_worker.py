"""The preprocessing worker on a real Redis: what becomes of submitted documents."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from docmill.connection import connect
from docmill.keys import GROUP, Keys
from docmill.scripts import Scripts
from docmill.wire import Body, Header, Message, Prepared, Spec
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from preprocess.tokenizer import ModelTokenizer
from tests.support.redis_server import running_redis
from tests.support.small_tokenizer import decode, write_tokenizer
from tests.support.wait import wait_until
from workers import preparation, preprocess_worker
from workers.lifecycle import EXIT_LEFT, Presence, Progress
from workers.models import ModelFiles
from workers.preprocess_worker import PreprocessWorker
from workers.process import Process
from workers.settings import Settings, child_environment

JOB = "job-1"
FILES = ModelFiles(path=None, name="small", version="v1", context_len=2048)
SERVED = Served(FILES.name, FILES.version, FILES.context_len, max_document_bytes=100_000)
SPEC = Spec(messages=(Message(role="user", content=("Summarise:\n\n", None)),), max_tokens=16)
ROOT = Path(__file__).parents[2]


class Desk:
    """Submits documents as the client does, and reads what came of them."""

    def __init__(self, client: Any, keys: Keys) -> None:
        self.client = client
        self.keys = keys
        self.scripts = Scripts(client, keys.prefix)
        self.scripts.call("open", JOB, 3600, msgpack.packb({}))

    def submit(
        self, number: int, document: bytes, *, spec: Spec = SPEC, tier: str = "batch", **header: Any
    ) -> None:
        """Submit one document as `c<number>`."""
        fields = {
            "request_id": f"r{number}",
            "job_id": JOB,
            "custom_id": f"c{number}",
            "spec": spec.digest(),
            "tier": tier,
            "submitted_at": time.monotonic(),
        }
        encoded = Header(**(fields | header)).encode()
        self.submit_raw(number, encoded, document, spec=spec, tier=tier)

    def submit_raw(
        self, number: int, header: bytes, document: bytes, *, spec: Spec = SPEC, tier: str = "batch"
    ) -> None:
        """Submit a document under a header of any bytes."""
        told = (f"c{number}", f"r{number}", header, document, spec.digest(), spec.encode())
        assert [b"OK"] == self.scripts.call("submit", JOB, tier, *told)

    def ready(self, tier: str = "batch", bucket: int = 0) -> dict[str, Prepared]:
        """Return what is ready in a stream, by request id."""
        entries = self.client.xrange(self.keys.ready("v1", tier, bucket))
        return {fields[b"i"].decode(): Prepared.decode(fields[b"p"]) for _, fields in entries}

    def bodies(self) -> list[Body]:
        """Return the results so far."""
        return [Body.decode(f[b"b"]) for _, f in self.client.xrange(self.keys.results(JOB))]

    def codes(self) -> list[str]:
        """Return the error codes of the results so far."""
        return [body.error.code for body in self.bodies() if body.error is not None]

    def num_pending(self) -> int:
        """Return how many intake entries are delivered or waiting."""
        pending: int = self.client.xlen(self.keys.intake("batch"))
        return pending + int(self.client.xlen(self.keys.intake("interactive")))

    def reasons_of_dead(self) -> list[bytes]:
        """Return why entries were given up."""
        return [fields[b"reason"] for _, fields in self.client.xrange(self.keys.dead)]


@pytest.fixture
def desk(redis_client: Any, keys: Keys) -> Desk:
    """Submissions to one open job."""
    return Desk(redis_client, keys)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ModelTokenizer:
    """A small real tokenizer."""
    return ModelTokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def _process(url: str, client: Any, keys: Keys, **settings: Any) -> Process:
    progress = Progress()
    presence = Presence(client, keys, "c1", role="preprocess", ttl_s=5.0, progress=progress)
    configured = Settings(redis_url=SecretStr(url), namespace=keys.namespace, **settings)
    return Process(configured, client, keys, "c1", threading.Event(), progress, presence)


@pytest.fixture
def make_worker(
    redis_url: str, redis_client: Any, keys: Keys, tokenizer: ModelTokenizer
) -> Callable[..., PreprocessWorker]:
    """Build a worker whose turns the test takes: `make_worker(preprocessor=…, **settings)`."""

    def make(*, preprocessor: Any = None, **settings: Any) -> PreprocessWorker:
        preprocessor = preprocessor or Preprocessor(tokenizer, SERVED, clock=time.monotonic)
        process = _process(redis_url, redis_client, keys, **settings)
        return PreprocessWorker(process, FILES, preprocessor)

    return make


@pytest.fixture
def worker(make_worker: Callable[..., PreprocessWorker]) -> PreprocessWorker:
    """A worker with the usual settings."""
    return make_worker()


def _work_off(worker: PreprocessWorker, desk: Desk) -> None:
    for _ in range(50):
        if desk.num_pending() == 0:
            return
        worker.turn()
    raise AssertionError("the worker does not get to the end")


def test_documents_become_ready(worker: PreprocessWorker, desk: Desk) -> None:
    """Each document goes to the ready stream of its tier with its whole prompt in tokens."""
    desk.submit(1, b"The pump house log.")
    desk.submit(2, b"A question.", tier="interactive")

    _work_off(worker, desk)

    prepared = desk.ready("batch")["r1"]
    prompt = decode(np.frombuffer(prepared.tokens, dtype="<u4").tolist())
    assert "Summarise:\n\nThe pump house log.<|im_end|>\n<|im_start|>assistant\n" in prompt
    assert ["r2"] == list(desk.ready("interactive"))


def test_the_length_decides_the_bucket(
    make_worker: Callable[..., PreprocessWorker], desk: Desk
) -> None:
    """A prompt goes to the first bucket whose bound it does not exceed."""
    worker = make_worker(bucket_bounds=(100, 400))
    for number, length in enumerate((10, 200, 1000)):
        desk.submit(number, b"!" * length)

    _work_off(worker, desk)

    assert [["r0"], ["r1"], ["r2"]] == [list(desk.ready(bucket=bucket)) for bucket in range(3)]


def test_a_prompt_as_long_as_a_bound_is_inside(
    make_worker: Callable[..., PreprocessWorker], desk: Desk
) -> None:
    """The bound of a bucket belongs to it."""
    desk.submit(1, b"!")
    _work_off(make_worker(), desk)
    length = desk.ready()["r1"].prompt_len
    desk.submit(2, b"?")

    _work_off(make_worker(bucket_bounds=(length,)), desk)

    assert {"r1", "r2"} == set(desk.ready(bucket=0))


def test_refused_documents_get_their_result(worker: PreprocessWorker, desk: Desk) -> None:
    """A bad document ends with its reason and what served it; its neighbours become ready."""
    for number, document in enumerate((b"good", b"", b"\xff", b"x" * 100_001, b"also good")):
        desk.submit(number, document)
    desk.submit(5, b"good", spec=SPEC.model_copy(update={"model": "gpt-9"}))

    _work_off(worker, desk)

    assert {"empty_document", "encoding", "too_large", "unknown_model"} == set(desk.codes())
    assert {"r0", "r4"} == set(desk.ready())
    assert ("failed", "small", "v1") == (
        desk.bodies()[0].outcome,
        desk.bodies()[0].model,
        desk.bodies()[0].model_version,
    )


def test_too_late_counts_as_expired(worker: PreprocessWorker, desk: Desk) -> None:
    """A document past its deadline ends as expired in the job's counters."""
    desk.submit(1, b"late", deadline_at=1.0)

    _work_off(worker, desk)

    assert b"1" == desk.client.hget(desk.keys.job(JOB), "expired")
    assert ["expired"] == [body.outcome for body in desk.bodies()]


def test_duplicates_wait_for_the_first(worker: PreprocessWorker, desk: Desk) -> None:
    """Of equal requests one becomes ready, and the others follow it."""
    for number in range(3):
        desk.submit(number, b"the same")

    _work_off(worker, desk)

    assert ["r0"] == list(desk.ready())


def test_cancelled_documents_are_dropped(worker: PreprocessWorker, desk: Desk) -> None:
    """What waits when its job is cancelled leaves no result."""
    desk.submit(1, b"unwanted")
    desk.scripts.call("cancel", JOB)

    _work_off(worker, desk)

    assert ({}, []) == (desk.ready(), desk.bodies())


def test_an_unreadable_header_is_a_dead_letter_with_a_result(
    worker: PreprocessWorker, desk: Desk
) -> None:
    """A header from another schema, or none at all, costs its document and nothing else."""
    desk.submit_raw(1, b"no header", b"text")
    desk.submit_raw(2, msgpack.packb({"v": 99}), b"text")
    desk.submit(3, b"good")

    with capture_logs() as logged:
        _work_off(worker, desk)

    traces = [line["trace"] for line in logged if line["event"] == "entry.buried"]

    assert all(traces)
    assert traces == [letter[b"trace"].decode() for _, letter in desk.client.xrange(desk.keys.dead)]
    assert ["decode_error", "unsupported_schema"] == desk.codes()
    assert [b"decode_error", b"unsupported_schema"] == desk.reasons_of_dead()
    assert ["r3"] == list(desk.ready())


@pytest.mark.parametrize(
    "fields", [{"x": "y"}, {"i": "r", "j": JOB, "h": "h", "d": "d", "b": "many", "n": "1"}]
)
def test_a_foreign_entry_is_a_dead_letter(
    worker: PreprocessWorker, desk: Desk, fields: dict[str, str]
) -> None:
    """An entry that is none of ours is put aside, and the worker goes on."""
    desk.client.xadd(desk.keys.intake("batch"), fields)
    desk.submit(1, b"good")

    _work_off(worker, desk)

    assert [b"decode_error"] == desk.reasons_of_dead()
    assert ["r1"] == list(desk.ready())


def test_a_missing_request_is_a_result(worker: PreprocessWorker, desk: Desk) -> None:
    """A document whose job lacks the request it names fails with a reason."""
    desk.submit(1, b"text")
    desk.client.delete(desk.keys.specs(JOB))

    _work_off(worker, desk)

    assert ["bad_request"] == desk.codes()


def test_a_request_under_another_s_digest_is_refused(worker: PreprocessWorker, desk: Desk) -> None:
    """What is remembered serves all jobs, so a request must be what its digest says."""
    desk.submit(1, b"text")
    desk.client.hset(desk.keys.specs(JOB), SPEC.digest(), SPEC.encode() + b" ")

    _work_off(worker, desk)

    assert ["bad_request"] == desk.codes()


class _Hooked(Preprocessor):
    """Calls `before` with each batch, and then prepares it."""

    def __init__(self, tokenizer: ModelTokenizer, before: Callable[[Any], object]) -> None:
        super().__init__(tokenizer, SERVED, clock=time.monotonic)
        self._before = before

    def prepare(self, batch: Any, now: float) -> Any:
        """Prepare the batch, unless `before` raises."""
        self._before(batch)
        return super().prepare(batch, now)


def test_a_fault_of_ours_costs_one_document(
    make_worker: Callable[..., PreprocessWorker], desk: Desk, tokenizer: ModelTokenizer
) -> None:
    """A document on which preparation breaks every time is given up; its neighbours are ready."""

    def break_on_poison(batch: Any) -> None:
        if any(submission.document == b"poison" for submission in batch):
            raise RuntimeError("a fault of ours")

    worker = make_worker(preprocessor=_Hooked(tokenizer, break_on_poison), max_deliveries=2)
    for number, document in enumerate((b"good", b"poison", b"also good")):
        desk.submit(number, document)

    _work_off(worker, desk)

    assert {"r0", "r2"} == set(desk.ready())
    assert [] == desk.codes()
    assert 1 == desk.client.zcard(desk.keys.later)

    wait_until(lambda: desk.scripts.call("due", 10) == 1)
    _work_off(worker, desk)

    assert ["delivery_limit"] == desk.codes()
    assert [b"delivery_limit"] == desk.reasons_of_dead()
    ((_, letter),) = desk.client.xrange(desk.keys.dead)
    assert letter[b"error"].endswith(b"RuntimeError: a fault of ours")
    assert 12 == len(letter[b"trace"])


def test_what_was_delivered_before_is_prepared_alone(
    make_worker: Callable[..., PreprocessWorker], desk: Desk, tokenizer: ModelTokenizer
) -> None:
    """Each by itself, before the others, and Redis knows which one it is at every moment."""
    seen: list[tuple[list[str], bytes | None]] = []

    def note(batch: Any) -> None:
        names = [submission.header.custom_id for submission in batch]
        seen.append((names, desk.client.get(desk.keys.alone("c1"))))

    intake = desk.keys.intake("batch")
    for number in range(4):
        desk.submit(number, b"text %d" % number)
    for entry_id, fields in desk.client.xrange(intake)[:2]:
        desk.client.xdel(intake, entry_id)
        desk.client.xadd(intake, fields | {b"n": b"2"})
    suspects = [entry_id for entry_id, _ in desk.client.xrange(intake)[2:]]

    worker = make_worker(preprocessor=_Hooked(tokenizer, note))
    worker._count = 4
    _work_off(worker, desk)

    assert [(["c0"], suspects[0]), (["c1"], suspects[1]), (["c2", "c3"], None)] == seen
    assert {"r0", "r1", "r2", "r3"} == set(desk.ready())


def test_an_entry_taken_over_is_left_alone(
    make_worker: Callable[..., PreprocessWorker], desk: Desk, tokenizer: ModelTokenizer
) -> None:
    """What somebody else claimed meanwhile is theirs: nothing is written for it."""
    intake = desk.keys.intake("batch")

    def lose_it(batch: Any) -> None:
        entry_id = desk.client.xpending_range(intake, GROUP, "-", "+", 1)[0]["message_id"]
        desk.client.xclaim(intake, GROUP, "c2", 0, [entry_id])

    desk.submit(1, b"contested")
    make_worker(preprocessor=_Hooked(tokenizer, lose_it)).turn()

    assert ({}, []) == (desk.ready(), desk.bodies())
    assert 1 == desk.num_pending()


def test_flushed_scripts_are_loaded_again(worker: PreprocessWorker, desk: Desk) -> None:
    """A Redis that forgot its scripts is taught them again, and nothing is lost."""
    desk.submit(1, b"before")
    _work_off(worker, desk)
    desk.submit(2, b"after")
    desk.client.script_flush()

    _work_off(worker, desk)

    assert {"r1", "r2"} == set(desk.ready())


@pytest.fixture
def running(redis_url: str, keys: Keys) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Start real worker processes: `running(**settings)`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**settings: Any) -> "subprocess.Popen[bytes]":
        configured = Settings(
            redis_url=SecretStr(redis_url), namespace=keys.namespace, log_format="json", **settings
        )
        command = [sys.executable, "-m", "workers.preprocess_worker"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=child_environment(configured), stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_prepares_until_it_is_stopped(
    running: Callable[..., "subprocess.Popen[bytes]"], desk: Desk
) -> None:
    """A real process shows itself, prepares what comes, and on SIGTERM ends with 0."""
    process = running(engine="fake")
    desk.submit(1, b"some text")
    ready = desk.keys.ready("fake", "batch", 0)

    wait_until(lambda: desk.client.xlen(ready) == 1)
    assert b'"role": "preprocess"' in desk.client.hvals(desk.keys.consumers)[0]
    process.send_signal(signal.SIGTERM)

    assert 0 == process.wait(timeout=10)
    assert 0 == desk.client.hlen(desk.keys.consumers)


def test_what_redis_cannot_be_told_at_a_stop_is_left(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked to stop while Redis is away, the process ends at once, and its status says so."""
    with running_redis() as server:
        client = connect(server.url)
        Desk(client, keys).submit(1, b"some text")
        process = _process(server.url, client, keys, engine="fake")

        class Unlucky(Preprocessor):
            def prepare(self, batch: Any, now: float) -> Any:
                process.stop.set()
                server.stop()
                return super().prepare(batch, now)

        monkeypatch.setattr(preparation, "Preprocessor", Unlucky)

        with pytest.raises(SystemExit) as ended:
            preprocess_worker.work(process)

        client.close()

    assert EXIT_LEFT == ended.value.code


def test_a_model_that_cannot_be_found_ends_the_process(
    running: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    """A wrong model is one line, and a status that says: do not start me again."""
    process = running(model=str(tmp_path / "nothing"))

    _, errors = process.communicate(timeout=15)

    assert 78 == process.returncode
    assert b"no such directory" in errors
    assert b"Traceback" not in errors
