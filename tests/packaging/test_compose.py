"""The containers' description; `make compose-test` runs it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKERS = ("preprocess", "engine", "control")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """compose.yaml as data."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return loaded


def has_compose() -> bool:
    """Whether this machine has docker with its compose plugin; an engine is not needed."""
    if not shutil.which("docker"):
        return False
    found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return found.returncode == 0


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
@pytest.mark.parametrize("extra", [[], ["--file", "deploy/compose.own-engine.yaml"]])
def test_compose_accepts_the_files(extra: list[str]) -> None:
    """Compose itself finds nothing wrong."""
    done = subprocess.run(
        ["docker", "compose", "--file", "compose.yaml", *extra, "config", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    """Nothing outside the machine reaches a port."""
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]

    assert ports
    assert [] == [port for port in ports if not port.startswith("127.0.0.1:")]


def test_redis_keeps_what_it_accepted(compose: dict[str, Any]) -> None:
    """Redis logs every write, never evicts, and keeps its data in a volume."""
    redis = compose["services"]["redis"]
    command = " ".join(redis["command"])

    assert "--appendonly yes --appendfsync everysec --maxmemory-policy noeviction" in command
    assert "redis:/data" in redis["volumes"]


def test_redis_is_healthy_only_when_it_answers_pong(compose: dict[str, Any]) -> None:
    """LOADING, at which redis-cli exits 0 as well, is not healthy."""
    assert compose["services"]["redis"]["healthcheck"]["test"].endswith("| grep -qx PONG")


def test_the_password_stands_in_no_file(compose: dict[str, Any]) -> None:
    """The password is generated into a volume, and read from there alone."""
    assert "requirepass $(cat /run/docmill/redis_password)" in read("deploy/redis.sh")
    assert "REDIS_PASSWORD_FILE" in read("deploy/entrypoint.sh")
    assert "--requirepass" not in read("compose.yaml")
    assert "secret" in compose["volumes"]


@pytest.mark.parametrize("role", WORKERS)
def test_workers_wait_are_checked_and_may_finish(compose: dict[str, Any], role: str) -> None:
    """Each worker starts after Redis and the model, says whether it serves, and may drain."""
    service = compose["services"][role]

    assert ["python", "-m", "workers.health", role] == service["healthcheck"]["test"][-4:]
    assert "service_healthy" == service["depends_on"]["redis"]["condition"]
    assert "service_completed_successfully" == service["depends_on"]["model"]["condition"]
    # the service's default grace period is 30 s
    assert 30 < int(service["stop_grace_period"].removesuffix("s"))


def test_the_image_runs_as_a_user_and_fetches_no_syntax() -> None:
    """Processes are not root, and a build needs no front end from elsewhere."""
    lines = read("Dockerfile").splitlines()

    assert "USER docmill" in lines
    assert [] == [line for line in lines if line.startswith("# syntax=")]


@pytest.mark.parametrize("path", sorted((ROOT / "deploy").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_sound_shell(path: Path) -> None:
    """Every script parses, stops at its first error, and is executable unless it is sourced."""
    text = path.read_text()
    shell = "sh" if text.startswith("#!/bin/sh") else "bash"

    assert 0 == subprocess.run([shell, "-n", str(path)], check=False).returncode
    if text.startswith("#!"):
        assert "\nset -eu" in text
        assert os.access(path, os.X_OK)


def read(name: str) -> str:
    """Return a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")
