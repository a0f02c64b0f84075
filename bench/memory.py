"""What Redis keeps of documents that are done: `python -m bench.memory`.

Small documents live their whole life by the product's own scripts, a batch at a call and a job
every 10,000: submitted, read, prepared, read, begun, completed; the job is sealed and its results
expire a second later. Redis' used memory is sampled once everything has expired, after 1,000 to
1,000,000 documents. Its log of slow commands is off: it keeps the arguments of the last 128, up to
150 KB that say nothing about documents.

*redis_bytes_per_done_document*: what memory grew by between the first and the last sample, divided
by the documents between them. *memory_growth_ratio*: the last sample over the first.
*redis_bytes_per_kept_document*: for scale, what a document with a short answer takes until its
job's results expire. What is left at the end is listed by key. May import docmill and the other
files of the bench.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.queue_runs import fresh_redis
from bench.report import figure, report
from bench.shard import Shard
from docmill.connection import connect
from docmill.keys import Keys

SAMPLES = (1_000, 10_000, 100_000, 1_000_000)
QUICK_SAMPLES = SAMPLES[:-1]
JOB_DOCUMENTS = 10_000
BATCH = 256
KEPT_DOCUMENTS = 16 * BATCH
DOCUMENT = b"A small document. " * 10
NUM_TOKENS = 48
RESULT_TTL_S = 1
_PATIENCE_S = 60.0


def batches(first: int, last: int) -> Iterator[range]:
    """Cut document numbers into batches that no job's end falls into."""
    while first < last:
        end = min(first + BATCH, last, (first // JOB_DOCUMENTS + 1) * JOB_DOCUMENTS)
        yield range(first, end)
        first = end


def live(shard: Shard, first: int, last: int) -> None:
    """Let documents live from the first number to before the last, and end their jobs."""
    for batch in batches(first, last):
        job_id = f"job-{batch[0] // JOB_DOCUMENTS}"
        if batch[0] in (first, batch[0] // JOB_DOCUMENTS * JOB_DOCUMENTS):
            shard.open(job_id, RESULT_TTL_S)
        answer(shard, job_id, batch)
        if batch[-1] + 1 == last or (batch[-1] + 1) % JOB_DOCUMENTS == 0:
            shard.seal(job_id)


def answer(shard: Shard, job_id: str, numbers: range) -> None:
    """Take a batch of an open job's documents all the way."""
    shard.submit(job_id, [str(number) for number in numbers], [DOCUMENT] * len(numbers))
    shard.prepare(shard.take(shard.intake, BATCH), NUM_TOKENS)
    entries = shard.take(shard.ready, BATCH)
    shard.begin(entries)
    shard.complete(entries, "A short answer.")


def settled_bytes(client: Any, shard: Shard) -> int:
    """Wait until every job has expired, and return the memory that is used then."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while any(True for _ in client.scan_iter(match=f"{shard.keys.prefix}:job:*", count=1000)):
        if time.monotonic() > give_up_at:
            raise SystemExit("the jobs' keys do not expire")
        time.sleep(0.2)
    used = [int(client.info("memory")["used_memory"])]
    # expired keys are freed and buffers shrink in the background
    while len(used) < 3 or used[-1] < used[-3]:
        time.sleep(0.5)
        used.append(int(client.info("memory")["used_memory"]))
    return used[-1]


def bytes_per_kept_document(client: Any, shard: Shard) -> float:
    """Return what a job's keys take for each of its documents while its results are kept."""
    shard.open("kept")
    for start in range(0, KEPT_DOCUMENTS, BATCH):
        answer(shard, "kept", range(start, start + BATCH))
    keys = client.scan_iter(match=f"{shard.keys.prefix}:job:kept*")
    return sum(int(client.memory_usage(key, samples=0)) for key in keys) / KEPT_DOCUMENTS


def show_keys(client: Any) -> None:
    """Print what is left, the largest first."""
    sizes = {key: int(client.memory_usage(key, samples=0)) for key in client.scan_iter()}
    for key, size in sorted(sizes.items(), key=lambda found: -found[1])[:12]:
        print(f"  {size:>10,} bytes  {client.type(key).decode():6} {key.decode()}")


def measure(samples: tuple[int, ...]) -> dict[str, Any]:
    """Let documents live up to each sample's number, and return the figures."""
    used: list[int] = []
    print(f"{'documents':>10}  {'used memory':>12}  {'dataset':>10}  {'keys':>5}  documents/s")
    with fresh_redis() as (url, client):
        client.config_set("slowlog-log-slower-than", -1)
        shard = Shard(connect(url), Keys())
        # the first documents of all also load scripts and fill buffers, once
        live(shard, 0, BATCH)
        num_done = BATCH
        for sample in samples:
            started = time.monotonic()
            live(shard, num_done, sample)
            rate = (sample - num_done) / (time.monotonic() - started)
            num_done = sample
            used.append(settled_bytes(client, shard))
            dataset = client.info("memory")["used_memory_dataset"]
            print(
                f"{sample:>10,}  {used[-1]:>12,}  {dataset:>10,}  {client.dbsize():>5}",
                f" {rate:,.0f}",
                flush=True,
            )
        show_keys(client)
        kept = bytes_per_kept_document(client, shard)
    grown = used[-1] - used[0]
    return {
        "redis_bytes_per_done_document": figure([grown / (samples[-1] - samples[0])], "bytes"),
        "memory_growth_ratio": figure([used[-1] / used[0]], "ratio"),
        "redis_bytes_per_kept_document": figure([kept], "bytes"),
    }


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="stop at 100,000 documents")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    report("memory", measure(QUICK_SAMPLES if options.quick else SAMPLES), options.json)


if __name__ == "__main__":
    main()
