"""`docmill up` and what speaks to it: the client, and the commands for jobs."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from docmill import Client
from tests.support.command import Running, docmill, running


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory of the service that this module shares."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def service(state_dir: Path) -> Iterator[Running]:
    """A running service with the engine that needs no model."""
    folder = state_dir / "output"
    folder.mkdir()
    command = ("up", "--engine", "fake", "--json", "--state-dir", state_dir)
    with running(folder, *command) as started:
        started.wait_for_event("ready")
        yield started


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    """A client on the address that the service has printed."""
    url = service.wait_for_event("redis_ready")["url"]
    with Client(url, reconnect_s=1.0) as client:
        yield client


@pytest.mark.usefixtures("service")
def test_commands_find_the_service_by_themselves(state_dir: Path, tmp_path: Path) -> None:
    """Submit, status and results work without an address, from any folder."""
    source = tmp_path / "in"
    source.mkdir()
    for name in ("a", "b"):
        (source / f"{name}.txt").write_text(f"Text {name}.", encoding="utf-8")
    here = ("--state-dir", state_dir)
    submitted = docmill("submit", source, "-p", "Sum up.", "--wait", *here)
    job_id = submitted.stdout.strip()
    status = json.loads(docmill("status", job_id, "--json", *here).stdout)
    target = tmp_path / "out.jsonl"
    written = docmill("results", job_id, "-o", target, *here)
    ids = {json.loads(line)["custom_id"] for line in target.read_text().split("\n")[:-1]}

    assert (submitted.status, written.status) == (0, 0)
    assert status["state"] == "finished"
    assert (status["submitted"], status["succeeded"]) == (2, 2)
    assert {"a.txt", "b.txt"} == ids


def test_the_client_gets_answers_from_it(client: Client) -> None:
    """Documents submitted from Python come back answered, with the models name and tokens."""
    job = client.submit([("one", "First text."), ("two", "Second text.")], prompt="Sum up.")
    results = {result.custom_id: result for result in job.results(timeout=30)}

    assert results.keys() == {"one", "two"}
    assert all(result.ok and result.text for result in results.values())
    assert {"fake"} == {result.model for result in results.values()}


def test_status_lists_workers_and_jobs(client: Client, state_dir: Path) -> None:
    """Without a job, status shows who works and the latest jobs."""
    job = client.submit(["A text."], prompt="Sum up.")
    job.wait(progress=False, timeout=30)
    shown = json.loads(docmill("status", "--json", "--state-dir", state_dir).stdout)

    assert {"control", "engine", "preprocess"} == {one["role"] for one in shown["workers"]}
    assert {"ready"} == {worker["state"] for worker in shown["workers"]}
    assert job.id in [listed["job_id"] for listed in shown["jobs"]]


@pytest.mark.usefixtures("service")
def test_an_unknown_job_is_named(state_dir: Path) -> None:
    """Asking for a job that is not there is one line with its id, and status 2."""
    finished = docmill("cancel", "no-such-job", "--state-dir", state_dir)

    assert finished.status == 2
    assert "no-such-job" in finished.stderr
    assert finished.stderr.count("\n") == 1


@pytest.mark.usefixtures("service")
def test_a_second_service_in_one_place_is_refused(state_dir: Path) -> None:
    """Two services never share a state directory; the message names the one that runs."""
    finished = docmill("up", "--engine", "fake", "--state-dir", state_dir)

    assert finished.status == 4
    assert "docmill is already up here (pid " in finished.stderr
    assert "use it, stop it, or give another --state-dir" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_killed_worker_is_replaced(client: Client, state_dir: Path) -> None:
    """After SIGKILL of the engine's process, another one answers what is submitted next."""
    (old,) = _engine_pids(state_dir)
    os.kill(old, signal.SIGKILL)
    job = client.submit(["A text for the next one."], prompt="Sum up.")

    assert [True] == [result.ok for result in job.results(timeout=60)]
    assert _engine_pids(state_dir) - {old}


def _engine_pids(state_dir: Path) -> set[int]:
    """Return those that are shown; one that was killed is, until its heartbeat lapses."""
    shown = json.loads(docmill("status", "--json", "--state-dir", state_dir).stdout)
    return {int(worker["pid"]) for worker in shown["workers"] if worker["role"] == "engine"}


def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    """A service that is stopped in the middle of a job goes on with it at the next start."""
    command = ("up", "--engine", "fake", "--json", "--state-dir", tmp_path / "state")
    number = 3_000
    with running(tmp_path, *command) as first:
        url = first.wait_for_event("redis_ready")["url"]
        with Client(url) as client:
            job_id = client.submit([f"text {at}" for at in range(number)], prompt="Sum up.").id
        first.process.send_signal(signal.SIGINT)
        stopped = first.wait(60)
    with running(tmp_path, *command) as second:
        url = second.wait_for_event("redis_ready")["url"]
        with Client(url) as client:
            ids = [result.custom_id for result in client.job(job_id).results(timeout=60)]

    assert stopped.status == 0
    assert "Traceback" not in stopped.stderr
    assert sorted(f"document-{at}" for at in range(1, number + 1)) == sorted(ids)
