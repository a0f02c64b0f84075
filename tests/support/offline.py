"""Runs a module and notes every attempt to reach a network.

`python -m tests.support.offline FILE MODULE`: each attempt from Python adds a line to FILE; unix
sockets are no network. What libraries in other languages do is left to the kernel's counters of a
process without a network, see `num_packets`. May import the standard library only.
"""

import runpy
import socket
import sys
from pathlib import Path
from typing import Any

_EVENTS = frozenset(
    ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
)
#: Counters of /proc/<pid>/net/snmp that rise when something is sent, or would have been.
_SENT = {"Ip": ("OutRequests", "OutNoRoutes"), "Tcp": ("ActiveOpens",), "Udp": ("OutDatagrams",)}


def watch(notes: Path) -> None:
    """Note attempts of this process from now on."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and getattr(arguments[0], "family", None) != socket.AF_UNIX:
            with notes.open("a", encoding="utf-8") as out:
                out.write(f"{event} {arguments[1:] or arguments}\n")

    sys.addaudithook(hook)


def num_packets(pid: int) -> int:
    """Return what was sent, or could not be, in the network namespace of a process (Linux)."""
    lines = Path(f"/proc/{pid}/net/snmp").read_text(encoding="ascii").splitlines()
    total = 0
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        protocol = names.partition(":")[0]
        found = dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))
        total += sum(found[name] for name in _SENT.get(protocol, ()))
    return total


if __name__ == "__main__":
    file, module = sys.argv[1:3]
    watch(Path(file))
    sys.argv[1:] = sys.argv[3:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
