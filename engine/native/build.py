"""Builds the kernels once and loads them, or says why this machine has none.

Decides where the library is looked for, when it is built and with which flags. One call of the
system's C++ compiler over one file takes seconds; torch's extension loader would need ninja and
setuptools wherever docmill runs and compile all of torch's headers. May import torch.
"""

import hashlib
import logging
import os
import shutil
import signal
import struct
import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

_log = logging.getLogger(__name__)

_SOURCES = Path(__file__).parent / "src"
_FEATURES = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512bf16")
_FLAGS = (
    *("-O3", "-std=c++20", "-fPIC", "-shared", "-fopenmp"),
    *(f"-m{feature}" for feature in _FEATURES),
)
_COMPILERS = ("g++", "c++", "clang++")

#: Four times what a busy machine of two cores takes: only a compiler that hangs takes longer.
_TIMEOUT_S = 120.0

#: Where a library built ahead lies, beside the sources; images are built so.
SHIPPED = Path(__file__).parent / "lib"


class Unavailable(Exception):
    """There are no kernels here; the message says why, and what would change that."""


def cached() -> Path:
    """Return the folder for what is built on first use.

    Raises:
        Unavailable: This user has no home.
    """
    try:
        return Path.home() / ".cache" / "docmill" / "native"
    except RuntimeError as error:
        raise Unavailable("there is no home to keep them in (set HOME)") from error


@cache
def why_unavailable() -> str | None:
    """Load the kernels, building them if need be; return why there are none, None if there are.

    Cost: some milliseconds; the first time on a machine the compiler's seconds.
    """
    try:
        path = library()
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    except (Unavailable, OSError) as error:
        return str(error)
    return None if hasattr(torch.ops.docmill, "attend") else f"{path} has none: delete it"


def library(into: Path | None = None) -> Path:
    """Return the library for these sources and this torch; build it if it is not there.

    Args:
        into: Build there, rather than look; absent: look beside the sources and in the cache.

    Raises:
        Unavailable: This processor cannot run it, or it cannot be built or kept.
    """
    if into is None:
        obstacle = _processor_lacks()
        if obstacle:
            raise Unavailable(obstacle)
        if _is_whole(path := SHIPPED / _name()) or _is_whole(path := cached() / _name()):
            return path
    return _build((into or cached()) / _name())


def _processor_lacks() -> str | None:
    has = torch.cpu.get_capabilities()
    if not has.get("avx512_bf16"):
        return "this processor has no AVX512_BF16"
    if has.get("amx_bf16"):
        # there oneDNN multiplies tiles in hardware, several times as fast as AVX-512 can
        return "this processor multiplies bf16 tiles in hardware, which torch makes use of"
    return None


def _name() -> str:
    """Name a library by all it depends on, so that no stale one is ever loaded."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (torch.__version__, *_FLAGS):
        digest.update(part.encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return f"docmill-native-{digest.hexdigest()}.so"


def _is_whole(path: Path) -> bool:
    """Say whether a library is there to its end: loading one cut short ends the process."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
        # of ELF64: where the table of sections begins, which comes last, and its size
        (start,), (size, count) = (
            struct.unpack_from("<Q", head, 40),
            struct.unpack_from("<HH", head, 58),
        )
        return head.startswith(b"\x7fELF") and path.stat().st_size >= start + size * count
    except (OSError, struct.error):
        return False


def _build(path: Path) -> Path:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise Unavailable("there is no C++ compiler (install g++ for faster kernels)")
    _log.info("building CPU kernels, once, about 10 s: %s", path)
    started = time.perf_counter()
    root = Path(torch.__file__).parent
    made = path.with_suffix(f".{os.getpid()}.tmp")
    command = [
        compiler,
        *_FLAGS,
        f"-I{root / 'include'}",
        str(_SOURCES / "ops.cpp"),
        "-o",
        str(made),
    ]
    libraries = [f"-L{root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _compile([*command, *libraries])
        made.replace(path)  # whole or not at all, also for processes that start together
    except OSError as error:
        raise Unavailable(f"{path.parent}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            made.unlink()
    _log.info("built CPU kernels in %.0f s", time.perf_counter() - started)
    return path


def _compile(command: list[str]) -> None:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    )
    try:
        _, said = process.communicate(timeout=_TIMEOUT_S)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # the compiler has processes of its own
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Unavailable(f"{command[0]} did not end within {_TIMEOUT_S:.0f} s") from error
        raise
    if process.returncode:
        raise Unavailable(f"{command[0]} failed: {_first_error(said)}")


def _first_error(output: str) -> str:
    said = output.splitlines()
    # linkers say "failed", and why, before the compiler says "error" of them
    lines = [line for line in said if "error" in line or "failed" in line] or said[:1]
    return lines[0][:300] if lines else "without a word"
