"""Starting and ending the service, with a small program in its place."""

import signal
from pathlib import Path
from queue import SimpleQueue

import pytest

from docmill.cli.service_process import (
    Event,
    ServiceProcess,
    find_service,
    log_path,
    open_log,
    service_failure,
    waiting_line,
)
from docmill.errors import BrokerUnavailable, ServiceError

#: Says what it was given, and ends as it is told to.
PROGRAM = """
import json, signal, sys, time
settings = json.loads(sys.stdin.readline())
print(json.dumps({"event": "given", "argv": sys.argv[1:], "settings": settings}), flush=True)
if IGNORES:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(json.dumps({"event": "deaf"}), flush=True)
    sys.stdin.read()
    sys.exit()
time.sleep(30)
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a checkout."""
    for name in ("workers", "engine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.setattr("docmill.cli.service_process.BESIDE", tmp_path)
    monkeypatch.setattr("docmill.cli.service_process._PACKAGES", ("json",))
    return tmp_path


def _start(beside: Path, *, ignores: bool = False) -> tuple[ServiceProcess, SimpleQueue[Event]]:
    program = PROGRAM.replace("IGNORES", str(ignores))
    (beside / "workers" / "service.py").write_text(program, encoding="utf-8")
    events: SimpleQueue[Event] = SimpleQueue()
    settings = {"model": "m", "redis_url": "redis://:secret@host"}
    return ServiceProcess(settings, on_event=events.put), events


def test_settings_travel_where_no_process_list_shows_them(beside: Path) -> None:
    """The service gets its settings on standard input, and only flags as arguments."""
    service, events = _start(beside)
    given = events.get(timeout=10)
    service.stop()

    assert given["argv"] == ["--with-parent"]
    assert given["settings"] == {"model": "m", "redis_url": "redis://:secret@host"}


def test_its_end_is_the_last_event(beside: Path) -> None:
    """After the process has ended, its status is told."""
    service, events = _start(beside)
    events.get(timeout=10)
    service.stop()

    assert events.get(timeout=10) == {"event": "ended", "status": -signal.SIGTERM}


def test_a_service_that_does_not_listen_is_hurried(beside: Path) -> None:
    """When patience is over, the lead is taken away, which a service takes as its parent's end."""
    service, events = _start(beside, ignores=True)
    events.get(timeout=10)
    events.get(timeout=10)
    service.stop(0.1)

    assert events.get(timeout=10) == {"event": "ended", "status": 0}


def test_missing_packages_are_named_with_the_extra(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout without the service's packages says which, and what to install."""
    monkeypatch.setattr("docmill.cli.service_process._PACKAGES", ("json", "no_such_package"))
    with pytest.raises(ServiceError, match=r"\(no_such_package\).*pip install.*\[worker"):
        find_service()


def test_a_client_alone_has_no_service(tmp_path: Path) -> None:
    """Without the workers beside it there is nothing to start."""
    with pytest.raises(ServiceError, match="only docmill's client"):
        find_service(tmp_path)


def test_a_large_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is added to until it is too large; one old file is kept."""
    monkeypatch.setattr("docmill.cli.service_process._MAX_LOG_BYTES", 3)
    for line in (b"one\n", b"two\n", b"three\n"):
        with open_log(tmp_path) as log:
            log.write(line)

    assert log_path(tmp_path).read_bytes() == b"three\n"
    assert log_path(tmp_path).with_suffix(".log.1").read_bytes() == b"two\n"


def test_failures_keep_their_kind() -> None:
    """An unreachable Redis stays one, so that its exit status is right; the rest is the service."""
    log = Path("service.log")
    fatal = {"event": "fatal", "code": "broker_unavailable", "message": "no Redis"}
    failures = [
        service_failure(fatal, log),
        service_failure(fatal | {"code": "model_load_error", "message": "no model"}, log),
        service_failure({"event": "ended", "status": -9}, log),
    ]

    assert [type(failure) for failure in failures] == [
        BrokerUnavailable,
        ServiceError,
        ServiceError,
    ]
    assert failures[1].message == "no model"
    assert "service.log" in failures[2].message
    assert "log is above" in service_failure({"event": "ended", "status": -9}, None).message


@pytest.mark.parametrize(
    ("roles", "line"),
    [
        (["engine"], "waiting for engine, which loads the model (3 s)"),
        (
            ["engine.0", "control"],
            "waiting for engine.0, control; the engine loads the model (3 s)",
        ),
        (["preprocess", "control"], "waiting for preprocess, control (3 s)"),
    ],
)
def test_people_are_told_what_a_start_waits_for(roles: list[str], line: str) -> None:
    """The line names the processes, what takes long, and for how long that has been."""
    assert waiting_line({"event": "waiting", "roles": roles, "elapsed_s": 3}) == line
