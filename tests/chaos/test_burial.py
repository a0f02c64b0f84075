"""FLD-L08: a failure for good is a dead letter or still to be done, never neither and never two."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docmill import Job
from docmill.dead import DeadLetter
from tests.chaos.crew import Member
from tests.chaos.scene import NAMESPACE, Scene, ends_within
from tests.support.command import docmill
from tests.support.wait import wait_until


def start_burying(
    stage: Scene, folder: Path, moment: str = "never", seconds: float = 0.0
) -> Member:
    """Start a worker that fails everything for good; see `burying_worker`."""
    post = stage.post("odd-1", str(seconds), moment, str(folder / "obituaries"))
    return stage.crew.start(replace(post, module="tests.chaos.burying_worker"))


def letters(stage: Scene) -> list[DeadLetter]:
    """Return the dead letters, whole."""
    with stage.docmill() as client:
        found = client.dead_letters()
        return [whole for one in found.list() if (whole := found.get(one.id))]


def results(stage: Scene, job: Job) -> list[tuple[str, str | None]]:
    """Return what the job's results are, and with which code they failed."""
    rows = stage.client.xlen(stage.keys.results(job.id))
    with stage.docmill() as client:
        found = list(client.job(job.id).results(timeout=5))

    assert rows == len(found)

    return [(one.outcome, one.error.code if one.error else None) for one in found]


def command(stage: Scene, *arguments: str) -> Any:
    """Run `docmill` on the scene, and return the JSON that it prints."""
    here = ("--redis-url", stage.server.url, "--namespace", NAMESPACE, "--json")
    finished = docmill(*arguments, *here)

    assert finished.stdout, finished.stderr

    return json.loads(finished.stdout)


FAILED = [("failed", "non_finite_logits")]


@pytest.mark.parametrize("moment", ["before", "in", "after", "reply"])
def test_dying_at_the_burial_buries_once(stage: Scene, tmp_path: Path, moment: str) -> None:
    """FLD-L08: SIGKILL around the one step that writes the letter, the result and the ack."""
    is_sent = moment in ("after", "reply")
    doomed = start_burying(stage, tmp_path, moment)
    stage.start_service()
    with stage.docmill() as client:
        job = client.submit(["the text"], prompt="Answer", job_id="job")
        ends_within(doomed, 15)

        assert doomed.died
        assert [moment] == (tmp_path / "obituaries").read_text().split()[1:2]
        if is_sent:  # Redis carries out what it has got, though nobody waits for its reply
            wait_until(lambda: letters(stage), what="it is buried")
        else:
            assert [] == letters(stage)

        start_burying(stage, tmp_path)
        wait_until(lambda: letters(stage) and not stage.num_pending(), what="it is buried")
        (letter,) = letters(stage)
        # what was not carried out is another's delivery
        assert (1 if is_sent else 2) == letter.deliveries
        assert FAILED == results(stage, job)
        assert (1, 1) == (job.status().submitted, job.status().failed)


def test_a_failure_while_memory_is_full_is_buried_once(stage: Scene, tmp_path: Path) -> None:
    """FLD-L08: Redis takes nothing new at that moment, but what ends an entry."""
    burying = start_burying(stage, tmp_path, seconds=1.0)
    stage.start_service()
    stage.wait_until_ready(burying)
    with stage.docmill() as client:
        job = client.submit(["the text"], prompt="Answer")
        wait_until(lambda: stage.client.zcard(stage.keys.running), what="it runs")
        stage.client.config_set("maxmemory", 1)
        wait_until(lambda: stage.client.xlen(stage.keys.dead), what="it is buried")

        assert not stage.num_pending()

        stage.client.config_set("maxmemory", 0)

        assert 1 == len(letters(stage))
        assert FAILED == results(stage, job)


def test_a_letter_that_is_replayed_twice_runs_once(stage: Scene, tmp_path: Path) -> None:
    """FLD-L08: as a new series of deliveries; one that fails again comes back with its history."""
    burying = start_burying(stage, tmp_path)
    stage.start_service()
    stage.wait_until_ready(burying)
    with stage.docmill() as client:
        job = client.submit([("mine", "the text")], prompt="Answer", job_id="job")
        wait_until(lambda: letters(stage), what="it is buried")
        (first,) = letters(stage)

        assert (first.job_id, first.custom_id, first.code) == ("job", "mine", "non_finite_logits")
        assert (first.message, first.deliveries, first.history) == ("nothing but NaN", 1, ())
        assert f"-{burying.pid}-" in first.consumer
        assert 0 < first.submitted_at <= first.at + 1
        assert first.tokens
        assert first.trace == ""  # the engine gave a verdict, and raised nothing

        told = [command(stage, "dead", "retry", first.id) for _ in range(2)]

        assert [(1, 0), (0, 1)] == [(one["ok"], one["gone"]) for one in told]

        wait_until(lambda: letters(stage), what="it is buried again")
        (second,) = letters(stage)

        assert second.id != first.id
        assert (second.deliveries, second.payload) == (1, first.payload)
        assert [first.id] == [line.split()[0] for line in second.history]
        assert "non_finite_logits after 1 deliveries" in second.history[0]

        burying.ask_to_stop()
        ends_within(burying, 10)
        stage.wait_until_ready(stage.start("engine-1"))
        told = [command(stage, "dead", "retry", second.id) for _ in range(2)]

        assert [(1, 0), (0, 1)] == [(one["ok"], one["gone"]) for one in told]

        wait_until(lambda: job.status().succeeded, what="it is answered")

        assert [("succeeded", None)] == results(stage, job)
        assert [] == letters(stage)
        assert not stage.num_pending()
