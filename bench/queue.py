"""One hop through docmill beside the queues that people would use instead: `python -m bench.queue`.

Every side gets the same kind of Redis (a fresh one each time, unix socket, append-only file synced
every second), the same documents (8 KB in, 1 KB out, no work between) and one worker process, and
its results are stored. The sides take turns, round by round; a figure is the median over the
rounds, a ratio is taken within each round. `make bench-peers` installs the peers.

*docs_per_s*: the queue is filled, then the worker starts; the rate is taken from a tenth of the
results to the last. *worker_us*, *redis_us*: processor time a document took meanwhile, steadier
than rates on a busy machine. *enqueue_docs_per_s*: filling the queue from one process, nobody
reading. *latency_p50_ms*: at 20 documents/s, the worker idle, from just before a document is sent
to Redis' own notification that its result was written.

docmill's hop is ready stream to result with every guarantee on: ownership, heartbeat, begin and
complete, counters, leader and followers; answers are not kept for later documents. *queue* is that
and nothing else, as the bare loop beside it; *worker* is the whole engine worker, which decodes and
batches besides. Its enqueue is `Client.submit`. bench/hop.py describes each, and the bare loop. May
import the other files of the bench.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from bench.queue_runs import Rate, fresh_redis, measure_enqueue, measure_hop, measure_latency
from bench.report import figure, report
from bench.sides import PEER_PYTHON, Side, own_sides, peer_sides

RATE = 20.0
ROUNDS, LATENCY_ROUNDS, LATENCY_DOCUMENTS = 5, 3, 100
QUICK_ROUNDS, QUICK_LATENCY_ROUNDS, QUICK_LATENCY_DOCUMENTS = 2, 1, 40
#: A quick run's documents are this much fewer.
QUICK_DIVISOR = 4

Runs = dict[str, list[Any]]


def throughput(sides: Sequence[Side], rounds: int, divisor: int) -> tuple[Runs, Runs]:
    """Return each side's rates of enqueueing and of a hop, one of each a round."""
    enqueues: Runs = defaultdict(list)
    hops: Runs = defaultdict(list)
    for number in range(1, rounds + 1):
        for side in sides:
            count = side.count // divisor
            with fresh_redis() as (url, client):
                rate = measure_enqueue(side, url, client, count)
                if side.has_enqueue:
                    enqueues[side.name].append(rate)
                    _show(number, side.name, "enqueue", rate)
                if side.has_worker:
                    hops[side.name].append(measure_hop(side, url, client, count))
                    _show(number, side.name, "hop", hops[side.name][-1])
    return enqueues, hops


def _show(number: int, name: str, what: str, rate: Rate) -> None:
    print(
        f"round {number}: {name:10} {what:7} {rate.docs_per_s:8,.0f} documents/s, "
        f"processor us a document: {rate.side_us:5.0f} and Redis {rate.redis_us:4.0f}",
        flush=True,
    )


def latencies(sides: Sequence[Side], rounds: int, count: int) -> Runs:
    """Return each side's median latency in milliseconds, one a round."""
    medians: Runs = defaultdict(list)
    for number in range(1, rounds + 1):
        for side in sides:
            if not (side.has_worker and side.has_latency):
                continue
            with fresh_redis() as (url, client):
                medians[side.name].append(measure_latency(side, url, client, count, RATE))
            print(
                f"round {number}: {side.name:10} idle {medians[side.name][-1]:.2f} ms", flush=True
            )
    return medians


def figures_of(enqueues: Runs, hops: Runs, idle: Runs, peers: Iterable[str]) -> dict[str, Any]:
    """Name what was measured; docmill's figures first."""
    prefix = {"client": "enqueue"}
    figures: dict[str, Any] = {}
    if hops.get("queue"):
        figures["queue_docs_per_s"] = _figure(hops["queue"], "docs_per_s", "documents/s")
    if enqueues.get("client"):
        figures["enqueue_docs_per_s"] = _figure(enqueues["client"], "docs_per_s", "documents/s")
    if idle.get("worker"):
        figures["idle_latency_p50_ms"] = figure(idle["worker"], "ms")
    figures |= _ratios(hops, list(peers))
    for name, rates in hops.items():
        figures |= _named(prefix.get(name, name), rates, "docs_per_s", "worker_us", "redis_us")
    for name, rates in enqueues.items():
        start = "enqueue" if name == "client" else f"{name}_enqueue"
        figures |= _named(start, rates, "docs_per_s", "client_us", "redis_us")
    figures |= {
        f"{name}_latency_p50_ms": figure(each, "ms")
        for name, each in idle.items()
        if name != "worker"
    }
    return figures


def _named(start: str, rates: Sequence[Rate], rate: str, side: str, server: str) -> dict[str, Any]:
    return {
        f"{start}_{rate}": _figure(rates, "docs_per_s", "documents/s"),
        f"{start}_{side}": _figure(rates, "side_us", "us/document"),
        f"{start}_{server}": _figure(rates, "redis_us", "us/document"),
    }


def _figure(rates: Sequence[Rate], name: str, unit: str) -> dict[str, Any]:
    return figure([getattr(rate, name) for rate in rates], unit)


def _ratios(hops: Runs, peers: Sequence[str]) -> dict[str, Any]:
    """Compare docmill's hop with the bare loop and with the best peer, round by round."""

    def rates(name: str) -> list[float]:
        return [rate.docs_per_s for rate in hops.get(name, [])]

    best_peer = [max(each) for each in zip(*map(rates, peers), strict=True)]
    divisors = {
        "bare": rates("bare"),
        "bare_xdel": rates("bare_xdel"),
        "best_peer": best_peer,
    }
    ratios = {}
    for own, (name, others) in product(("queue", "worker"), divisors.items()):
        if rates(own) and others:
            within = [a / b for a, b in zip(rates(own), others, strict=True)]
            ratios[f"{own}_over_{name}_ratio"] = figure(within, "ratio")
    return ratios


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.queue", description=__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", nargs="+", metavar="SIDE", help="some sides, in their order")
    parser.add_argument("--skip-latency", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and documents")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    sides = [
        side
        for side in (*own_sides(), *peer_sides())
        if not options.only or side.name in options.only
    ]
    peers = [side.name for side in peer_sides() if side in sides]
    if peers and not PEER_PYTHON.exists():
        parser.error("the peers are not installed; make bench-peers does that")
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    enqueues, hops = throughput(sides, rounds, QUICK_DIVISOR if options.quick else 1)
    idle: Runs = {}
    if not options.skip_latency and options.quick:
        idle = latencies(sides, QUICK_LATENCY_ROUNDS, QUICK_LATENCY_DOCUMENTS)
    elif not options.skip_latency:
        idle = latencies(sides, LATENCY_ROUNDS, LATENCY_DOCUMENTS)
    report("queue", figures_of(enqueues, hops, idle, peers), options.json)


if __name__ == "__main__":
    main()
