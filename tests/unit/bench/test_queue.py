"""How the queue bench compares its sides, and how the memory bench cuts its batches."""

from bench.memory import BATCH, JOB_DOCUMENTS, batches
from bench.queue import figures_of
from bench.queue_runs import Rate


def test_a_ratio_is_taken_within_each_round_against_that_round_s_best() -> None:
    """A round in which the machine was slow for everybody does not move the ratios."""
    hops = {
        "bare": [Rate(100.0, 1, 1), Rate(10.0, 1, 1)],
        "queue": [Rate(50.0, 1, 1), Rate(5.0, 1, 1)],
        "arq": [Rate(10.0, 1, 1), Rate(0.5, 1, 1)],
        "celery": [Rate(5.0, 1, 1), Rate(1.0, 1, 1)],
    }

    figures = figures_of({}, hops, {}, ["arq", "celery"])

    assert figures["queue_docs_per_s"]["max"] == 50.0
    assert figures["queue_over_bare_ratio"]["median"] == 0.5
    assert figures["queue_over_best_peer_ratio"]["median"] == 5.0
    assert figures["queue_over_best_peer_ratio"]["min"] == 5.0


def test_a_side_that_did_not_run_has_no_figures() -> None:
    """With some sides only, what compares them with the others is left out."""
    figures = figures_of({}, {"bare": [Rate(100.0, 1, 1)]}, {"bare": [0.7]}, [])

    assert {"bare_docs_per_s", "bare_worker_us", "bare_redis_us", "bare_latency_p50_ms"} == set(
        figures
    )


def test_batches_cover_every_document_once_and_no_job_s_end_falls_into_one() -> None:
    """From any first number to any last."""
    first, last = 700, 2 * JOB_DOCUMENTS + 3

    cut = list(batches(first, last))

    assert [number for batch in cut for number in batch] == list(range(first, last))
    assert max(map(len, cut)) <= BATCH
    assert all(batch[0] // JOB_DOCUMENTS == batch[-1] // JOB_DOCUMENTS for batch in cut)
