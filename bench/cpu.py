"""Processor time that others used: a session of processes, a Redis.

Steadier than rates on a machine that is shared. Linux only. May import the standard library.
"""

import os
from pathlib import Path
from typing import Any

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Where /proc/<pid>/stat has these, counted after the command's closing bracket.
_SESSION, _UTIME, _STIME = 3, 11, 12


def session_cpu_s(session: int) -> float:
    """Return the seconds that the living processes of a session have used, user and system."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[_SESSION]) == session:
            ticks += int(fields[_UTIME]) + int(fields[_STIME])
    return ticks / _TICKS_PER_S


def redis_cpu_s(client: Any) -> float:
    """Return the seconds that the server has used, its background threads included."""
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])
