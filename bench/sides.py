"""Who takes part in bench/queue.py: how each is started, and how far it has come.

May import the standard library and docmill.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.hop import JOB
from bench.report import ROOT
from docmill.keys import Keys

PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"


#: Large batches, as an engine that costs nothing likes them; the default of 32 rows suits a model.
_WORKER = (
    ("DOCMILL_ENGINE", "fake"),
    ("DOCMILL_RESULT_CACHE_TTL_S", "0"),
    ("DOCMILL_MAX_ROWS", "128"),
    ("DOCMILL_MAX_BATCH_TOKENS", "1000000"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One of those that take turns.

    `count`: documents of one run, for some seconds. `results`: glob of the keys that hold results.
    `progress`: rises by one with each result, cheap to ask. `settings`: its worker's environment.
    """

    name: str
    command: tuple[str, ...]
    count: int
    results: str
    progress: Callable[[Any], int]
    settings: tuple[tuple[str, str], ...] = ()
    has_worker: bool = True
    has_enqueue: bool = True
    has_latency: bool = True


def _num_keys(client: Any) -> int:
    return int(client.dbsize())


def _num_in(stream: str) -> Callable[[Any], int]:
    return lambda client: int(client.xlen(stream))


def num_results(client: Any, side: Side) -> int:
    """Return how many results are stored. Cost: O(keys)."""
    return sum(
        client.xlen(key) if client.type(key) == b"stream" else 1
        for key in client.scan_iter(match=side.results, count=1000)
    )


def own_sides() -> list[Side]:
    """Return docmill's sides and the bare loops."""
    command = (sys.executable, "-m", "bench.hop")
    bare, results = "bare:results", Keys().results(JOB)
    return [
        Side("bare", (*command, "bare"), 40_000, bare, _num_in(bare)),
        Side(
            "bare_xdel",
            (*command, "bare_xdel"),
            40_000,
            bare,
            _num_in(bare),
            has_enqueue=False,
            has_latency=False,
        ),
        Side(
            "queue",
            (*command, "queue"),
            20_000,
            results,
            _num_in(results),
            settings=_WORKER,
            has_enqueue=False,
            has_latency=False,
        ),
        Side(
            "worker",
            (*command, "worker"),
            20_000,
            results,
            _num_in(results),
            settings=_WORKER,
            has_enqueue=False,
        ),
        Side("client", (*command, "client"), 30_000, "", _num_keys, has_worker=False),
    ]


def peer_sides() -> list[Side]:
    """Return the peers, each with documents for some seconds."""

    def peer(name: str, count: int, results: str, progress: Callable[[Any], int]) -> Side:
        command = (str(PEER_PYTHON), "-m", "bench.peers", name)
        return Side(name, command, count, results, progress)

    return [
        peer("dramatiq", 8000, "dramatiq-results:*", _num_keys),
        peer("taskiq", 6000, "taskiq-result:*", _num_keys),
        # a job's key goes as its result's comes
        peer("arq", 5000, "arq:result:*", lambda client: -int(client.zcard("arq:queue"))),
        peer("celery", 2500, "celery-task-meta-*", _num_keys),
    ]
