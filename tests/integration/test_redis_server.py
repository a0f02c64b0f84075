"""The embedded Redis: durable, private, and gone with its parent."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from docmill.errors import ConfigError
from tests.support.redis_server import running_redis
from tests.support.wait import wait_until
from workers import redis_server


def _client(url: str) -> "redis.Redis":
    return redis.Redis.from_url(url, protocol=2)


def test_settings_suit_a_queue() -> None:
    """The server keeps an append-only file and never evicts."""
    with running_redis(is_durable=True) as server, _client(server.url) as client:
        settings = client.config_get("append*", "maxmemory-policy")

        assert settings["appendonly"] == "yes"
        assert settings["appendfsync"] == "everysec"
        assert settings["maxmemory-policy"] == "noeviction"


def test_data_outlives_the_server(tmp_path: Path) -> None:
    """A server started again in the same folder has what the first one had."""
    server = redis_server.start_embedded(tmp_path)
    with _client(server.url) as client:
        client.set("kept", "yes")
    server.stop()
    again = redis_server.start_embedded(tmp_path)
    try:
        with _client(again.url) as client:
            assert client.get("kept") == b"yes"
    finally:
        again.stop()


def test_a_second_server_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Two servers never share a data folder; the message names it."""
    server = redis_server.start_embedded(tmp_path)
    try:
        with pytest.raises(ConfigError, match=str(tmp_path)):
            redis_server.start_embedded(tmp_path)
    finally:
        server.stop()


def test_a_long_path_still_gets_a_socket(tmp_path: Path) -> None:
    """A data folder whose path is too long for a socket works, and leaves no socket behind."""
    server = redis_server.start_embedded(tmp_path / ("x" * 120), is_durable=False)
    with _client(server.url) as client:
        assert client.ping()
    server.stop()

    assert not server.socket_path.parent.exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs PR_SET_PDEATHSIG")
def test_the_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL on the parent leaves no server behind."""
    program = (
        "import pathlib, sys, time; from workers.redis_server import start_embedded;"
        f"print(start_embedded(pathlib.Path({str(tmp_path)!r})).process.pid, flush=True);"
        "time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()

    wait_until(lambda: _is_gone(pid), what="the server ends")


def _is_gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_no_binary_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any server gets one message with the three remedies."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"DOCMILL_REDIS_URL.*redis-server 7\.0.*embedded"):
        redis_server.find_binary()
