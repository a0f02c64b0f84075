"""What one file may cost the process that reads it.

Set from inside, so that they hold even where nobody watches. A limit that is reached ends the
process; which one it was, its exit tells. May import the standard library only.
"""

import contextlib
import resource
import signal
from dataclasses import dataclass

#: How the process ends when its memory is used up; a library may end it in its own way.
EXIT_NO_MEMORY = 86

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for each file, and of address space for the process.

    The defaults are a hundred times what a book of a thousand pages takes.
    """

    cpu_s: int = 60
    wall_s: int = 120
    memory_mib: int = 2048


def hold_process(limits: Limits) -> None:
    """Set what holds for the whole process."""
    _lower(resource.RLIMIT_AS, limits.memory_mib * _MIB)
    _lower(resource.RLIMIT_CORE, 0)  # a crash that is expected leaves no file behind


def hold_file(limits: Limits) -> None:
    """Start the clocks for one file, in place of those that run."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + limits.cpu_s + 1)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)


def release_file() -> None:
    """Stop the wall clock: waiting for the next file costs nothing."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def exit_problem(status: int, limits: Limits) -> str:
    """Say why the process ended while it read a file, by its exit status."""
    if status == -signal.SIGXCPU:
        return f"it took more than {limits.cpu_s} s of computing"
    if status == -signal.SIGALRM:
        return f"it took longer than {limits.wall_s} s"
    if status == EXIT_NO_MEMORY:
        return f"it needs more than {limits.memory_mib} MiB of memory"
    return f"the process that read it crashed or ran out of memory (status {status})"


def _lower(kind: int, soft: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    with contextlib.suppress(ValueError, OSError):  # a system that has no such limit
        resource.setrlimit(kind, (soft, hard))
