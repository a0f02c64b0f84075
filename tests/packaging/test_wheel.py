"""What the wheel holds, and that it works alone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Everything of the service that a client's machine does not have.
SERVICE_ONLY = ("torch", "transformers", "arq", "numpy", "structlog", "pydantic_settings")

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network from a copy of the sources."""
    sources = tmp_path_factory.mktemp("sources")
    for folder in ("docmill", "workers", "engine", "cache", "preprocess"):
        shutil.copytree(
            ROOT / folder, sources / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", str(sources))
    (built,) = (sources / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment with the wheel installed, where the dependencies are this environment's."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, symlinks=True)
    python = str(home / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    run(*pip, "--quiet", "--no-deps", "--no-index", str(wheel))
    # a path added this way is not searched for .pth files: the editable docmill stays unseen
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield home
    shutil.rmtree(home)


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a command that must succeed, outside the checkout unless told; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # noqa: TID251
    done = subprocess.run(
        command, cwd=cwd or "/", env=environment, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_docmill_only(wheel: Path) -> None:
    """No other package of the repository lands in somebody's site-packages."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}

    assert {"docmill"} == {top for top in tops if not re.fullmatch(r"docmill-.+\.dist-info", top)}


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    """No package of the client's is forgotten in pyproject.toml."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert set() == {
        name
        for path in (ROOT / "docmill").rglob("*.py")
        if (name := path.relative_to(ROOT).as_posix()) not in names
    }


def test_the_wheel_holds_scripts_types_and_licence(wheel: Path) -> None:
    """Every Lua script, the typing marker and the licence are shipped."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert {f"docmill/lua/{path.name}" for path in (ROOT / "docmill" / "lua").iterdir()} <= names
    assert "docmill/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_installed_client_imports_without_the_service(installed: Path) -> None:
    """The client and its command line import where nothing of the service is installed."""
    blocked = "".join(f"sys.modules[{name!r}] = None; " for name in SERVICE_ONLY)
    printed = run(
        str(installed / "bin" / "python"),
        "-c",
        f"import sys; {blocked}import docmill, docmill.cli.app; print(docmill.__file__)",
    )

    assert Path(printed.strip()).is_relative_to(installed)


def test_the_installed_command_explains_itself(installed: Path) -> None:
    """The console script works in a client-only installation."""
    assert "submit" in run(str(installed / "bin" / "docmill"), "--help")
