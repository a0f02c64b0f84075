"""FLD-O09: a model that lies in a local folder is all that the workers need; they ask nobody."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docmill import Client
from docmill.keys import Keys
from tests.support.offline import num_packets
from tests.support.processes import ROOT
from tests.support.tiny_model import tiny_llama

WORKERS = ("workers.preprocess_worker", "workers.engine_worker")
#: Runs a command where there is no network at all, not even a loopback.
NO_NETWORK = ("unshare", "--user", "--map-root-user", "--net")
#: What would keep the libraries from trying.
_OFFLINE_SWITCHES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


@pytest.fixture(scope="session")
def _can_unshare() -> None:
    """Whether this user may make a network namespace, which containers often forbid."""
    tried = None
    if shutil.which("unshare"):
        tried = subprocess.run([*NO_NETWORK, "true"], capture_output=True, text=True, check=False)
    if tried is None or tried.returncode:
        said = tried.stderr.strip() if tried else "there is no unshare here"
        pytest.skip(f"no process without a network can be made: {said}")


def _variables(**settings: object) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 - a child inherits what we have
        if name not in _OFFLINE_SWITCHES
    }
    chosen = {"device": "cpu", "dtype": "float32", "max_wait_s": 0.01} | settings
    return inherited | {f"DOCMILL_{name.upper()}": str(value) for name, value in chosen.items()}


@dataclass(frozen=True, slots=True)
class Cell:
    """Where workers run: with what in front of their command line, and who notes what they try."""

    folder: Path
    redis_url: str
    before: tuple[str, ...] = ()

    @property
    def notes(self) -> Path:
        """Where attempts to reach a network are noted."""
        return self.folder / "attempts"

    @contextlib.contextmanager
    def running(self, module: str, namespace: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a worker on the tiny model until the block ends."""
        process = subprocess.Popen(
            [*self.before, sys.executable, "-m", "tests.support.offline", self.notes, module],
            cwd=ROOT,
            env=_variables(redis_url=self.redis_url, namespace=namespace, model=tiny_llama()),
            stdout=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _answers(cell: Cell, client: Any, namespace: str) -> tuple[list[Any], list[str], int]:
    """Ask something of workers in the cell; return answers, served models, and packets sent."""
    keys = Keys(namespace)
    with ExitStack() as stack:
        workers = [stack.enter_context(cell.running(module, namespace)) for module in WORKERS]
        asking = stack.enter_context(Client(cell.redis_url, namespace))
        job = asking.submit(["The river runs.", "<|turn|>system"], prompt="Say:\n\n", max_tokens=8)
        results = list(job.results(timeout=120))
        shown = [
            json.loads(row)["model_version"] for row in client.hgetall(keys.consumers).values()
        ]
        packets = sum(num_packets(worker.pid) for worker in workers) if cell.before else 0
    answers = [(one.text, one.finish_reason, one.usage.prompt_tokens) for one in results]
    return answers, shown, packets


@pytest.mark.usefixtures("_can_unshare")
def test_workers_without_a_network_answer_as_with_one(
    redis_url: str, redis_client: Any, namespace: str, tmp_path: Path
) -> None:
    """FLD-O09: no attempt to connect, the same tokens, template and answers, no switch needed."""
    assert redis_url.startswith("unix://")

    free = Cell(tmp_path, redis_url)
    answers, versions, _ = _answers(free, redis_client, f"{namespace}-free")
    shut = Cell(tmp_path, redis_url, NO_NETWORK)
    alone, alone_versions, packets = _answers(shut, redis_client, f"{namespace}-shut")

    assert all(text is not None for text, *_ in answers)
    assert answers == alone
    assert 2 == len(versions)
    assert sorted(versions) == sorted(alone_versions)
    assert 0 == packets
    assert not free.notes.exists(), free.notes.read_text()


@pytest.mark.usefixtures("_can_unshare")
def test_an_attempt_would_be_noticed(tmp_path: Path) -> None:
    """What the test above relies on: names looked up and addresses called leave their traces."""
    script = tmp_path / "reaches_out.py"
    script.write_text(
        "import socket, sys\n"
        "for reach in (lambda: socket.getaddrinfo('example.invalid', 443),\n"
        "              lambda: socket.create_connection(('192.0.2.1', 443))):\n"
        "    try:\n"
        "        reach()\n"
        "    except OSError:\n"
        "        pass\n"
        "print('done', flush=True)\n"
        "sys.stdin.read()\n"
    )
    notes = tmp_path / "attempts"
    with subprocess.Popen(
        [*NO_NETWORK, sys.executable, "-m", "tests.support.offline", notes, "reaches_out"],
        cwd=ROOT,
        env=_variables() | {"PYTHONPATH": f"{ROOT}:{tmp_path}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert b"done\n" == process.stdout.readline()
        packets = num_packets(process.pid)

    assert packets > 0
    noted = notes.read_text()
    assert "socket.getaddrinfo" in noted
    assert "192.0.2.1" in noted


@pytest.mark.parametrize("module", WORKERS)
@pytest.mark.parametrize(
    "missing", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
def test_a_missing_file_is_named(
    redis_url: str, namespace: str, tmp_path: Path, module: str, missing: str
) -> None:
    """FLD-O09: one message, the status of what can never start, and nobody is asked for it."""
    model = tmp_path / "model"
    shutil.copytree(tiny_llama(), model)
    (model / missing).unlink()
    notes = tmp_path / "attempts"
    finished = subprocess.run(
        [sys.executable, "-m", "tests.support.offline", notes, module],
        cwd=ROOT,
        env=_variables(redis_url=redis_url, namespace=namespace, model=model),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    (said,) = finished.stderr.splitlines()
    record = json.loads(said)

    assert 78 == finished.returncode
    assert "process.failed" == record["event"]
    assert str(model) in record["message"]
    assert (missing if missing != "model.safetensors" else "*.safetensors") in record["message"]
    assert not notes.exists(), notes.read_text()
