"""What bench/queue.py asks of every side: do the work, or send some.

Decides the payload and the command line that each side's process has; a side decides how it works
and how it sends. May import the standard library, so that it runs in every environment.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from typing import Protocol

DOCUMENT_BYTES = 8 * 1024
RESULT_BYTES = 1024
RESULT = ("steady result " * (RESULT_BYTES // 14 + 1))[:RESULT_BYTES]


class Side(Protocol):
    """A queue at one Redis, given by a `unix://` URL."""

    def work(self) -> None:
        """Answer documents with `RESULT` and store it, until the process is killed."""
        ...

    def send_all(self, documents: Iterator[str]) -> None:
        """Enqueue documents, as fast as the library can do it from one process."""
        ...

    def sender(self) -> Callable[[str], None]:
        """Return what enqueues one document and comes back when it is in the queue."""
        ...


def documents(count: int) -> Iterator[str]:
    """Yield documents of 8 KB that are made when they are asked for, none like another."""
    filler = "steady " * (DOCUMENT_BYTES // 7 + 1)
    for number in range(count):
        yield f"{number:08} {filler}"[:DOCUMENT_BYTES]


def send(side: Side, count: int, rate: float | None) -> dict[str, object]:
    """Send so many documents, at a rate or as fast as it goes, and return what it took.

    `sent_at` are the moments at which each was about to be sent, in the machine's monotonic
    seconds; they are told only where there is a rate.
    """
    if rate is None:
        side.send_all(documents(1))  # connects
        cpu_before, started = _cpu_s(), time.monotonic()
        side.send_all(documents(count - 1))
        seconds = time.monotonic() - started
        cpu_us = (_cpu_s() - cpu_before) * 1e6 / (count - 1)
        return {"docs_per_s": (count - 1) / seconds, "cpu_us": cpu_us}
    send_one = side.sender()
    sent_at = []
    due = time.monotonic()
    for document in documents(count):
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        sent_at.append(time.monotonic())
        send_one(document)
    return {"sent_at": sent_at}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(sides: dict[str, Callable[[str], Side]], prog: str) -> None:
    """Be one side's worker or sender; a sender prints one JSON object."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("side", choices=sides)
    parser.add_argument("url", help="unix://PATH")
    parser.add_argument("role", choices=("work", "send"))
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, help="documents/s; absent: as fast as it goes")
    options = parser.parse_args()
    side = sides[options.side](options.url)
    if options.role == "work":
        side.work()
    else:
        print(json.dumps(send(side, options.count, options.rate)))
