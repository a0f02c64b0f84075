"""The judge is judged: what a storm must find is found, and its victims die where they should."""

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from docmill.keys import GROUP
from tests.chaos.audit import Audit, Verdict
from tests.chaos.crew import Post
from tests.chaos.piles import CONTEXT_LEN, Pile
from tests.chaos.scene import NAMESPACE, Scene
from tests.chaos.storm import Plan, Storm
from tests.support.wait import wait_until

_PILE = Pile("harness", 0, 30)


@pytest.fixture
def audit(stage: Scene) -> Audit:
    """An audit of a shard in which one pile was answered."""
    stage.start_service("engine-1", max_context_len=CONTEXT_LEN)
    told = (stage.server.url, NAMESPACE, str(stage.folder), *_PILE.arguments)
    member = stage.start("customer-0", *told)
    member.process.join(20)
    assert 0 == member.process.exitcode, member.text
    stage.crew.ended(0)
    return Audit(stage.client, stage.server.url, stage.keys, stage.folder)


def _judge(audit: Audit) -> Verdict:
    verdict = Verdict()
    audit.check(_PILE, datetime.now(UTC).timestamp(), verdict)
    return verdict


def _pids(stage: Scene) -> set[int]:
    return {member.pid for member in stage.crew.members}


def _first(stage: Scene) -> tuple[bytes, dict[bytes, bytes]]:
    ((entry_id, fields),) = stage.client.xrange(stage.keys.results(_PILE.job_id), count=1)
    return entry_id, fields


def test_a_sound_job_is_clean(stage: Scene, audit: Audit) -> None:
    """Nothing is found where nothing is wrong."""
    wait_until(lambda: not audit.leftovers(_pids(stage)), what="nothing is left over")
    verdict = _judge(audit)

    assert verdict.is_clean, verdict
    assert _PILE.num_documents + 1 == verdict.num_documents


def test_a_pile_has_documents_in_parts(stage: Scene, audit: Audit) -> None:
    """Some are answered in parts, and the answers of some of these are combined in rounds."""
    with stage.docmill() as client:
        divisions = [result.division for result in client.job(_PILE.job_id).results(timeout=10)]

    assert {1, 2} <= {division.rounds for division in divisions if division}


def test_a_missing_result_is_lost(stage: Scene, audit: Audit) -> None:
    """A document whose result is taken away is named."""
    entry_id, _ = _first(stage)
    stage.client.xdel(stage.keys.results(_PILE.job_id), entry_id)
    verdict = _judge(audit)

    assert 1 == len(verdict.lost)
    assert not verdict.double


def test_a_second_result_is_double(stage: Scene, audit: Audit) -> None:
    """A document with two results is named, also when they are equal."""
    _, fields = _first(stage)
    stage.client.xadd(stage.keys.results(_PILE.job_id), fields)
    verdict = _judge(audit)

    assert 1 == len(verdict.double)
    assert not verdict.lost


def test_an_answer_to_another_document_is_a_fault(stage: Scene, audit: Audit) -> None:
    """Two results with each other's text are not right, though the counts are."""
    results = stage.keys.results(_PILE.job_id)
    entries = stage.client.xrange(results)
    (first, one), (second, other) = entries[0], entries[-1]
    assert one[b"b"] != other[b"b"]
    stage.client.xdel(results, first, second)
    for header, body in ((one, other), (other, one)):
        stage.client.xadd(results, {b"h": header[b"h"], b"b": body[b"b"], b"d": body[b"d"]})
    verdict = _judge(audit)

    assert not verdict.lost
    assert not verdict.double
    assert 2 <= len(verdict.faults)


def _hold_an_entry(stage: Scene) -> None:
    stream = stage.watch.streams()[0]
    stage.client.xadd(stream, {"i": "x"})
    stage.client.xreadgroup(GROUP, "host-1-nonce", {stream: ">"})


def _lock_for_ever(stage: Scene) -> None:
    stage.client.set(f"{stage.keys.prefix}:reaper", "1 somebody")


def _forget_a_leader(stage: Scene) -> None:
    stage.client.set(stage.keys.leader("0123"), "request")


def _miscount(stage: Scene) -> None:
    stage.client.hincrby(stage.keys.backlog, "docs", 1)


def _miscount_answers(stage: Scene) -> None:
    stage.client.hincrby(stage.keys.sharing, "answer_bytes", 1)


def _lose_an_answer(stage: Scene) -> None:
    stage.client.zpopmin(stage.keys.answers)


def _add_something(stage: Scene) -> None:
    stage.client.set(f"{stage.keys.prefix}:something", 1, ex=100)


@pytest.mark.parametrize(
    "leave",
    [
        *(_hold_an_entry, _lock_for_ever, _forget_a_leader, _miscount),
        *(_miscount_answers, _lose_an_answer, _add_something),
    ],
)
def test_what_is_left_over_is_found(
    stage: Scene, audit: Audit, leave: Callable[[Scene], Any]
) -> None:
    """Entries, locks without an expiry, leaders, counts and unknown keys do not go unseen."""
    wait_until(lambda: not audit.leftovers(_pids(stage)), what="nothing is left over")
    for member in stage.crew.at("control", "preprocess", "engine"):
        member.freeze()  # they would put it right, or work on it
    leave(stage)

    assert audit.leftovers(_pids(stage))


@pytest.mark.parametrize("moment", ["before", "in", "after", "reply"])
def test_a_process_dies_at_the_moment_drawn(stage: Scene, moment: str) -> None:
    """The four moments of a command follow each other, and each can be the last."""
    number = 4 * 3 + ("before", "in", "after", "reply").index(moment) + 1
    member = stage.crew.start(stage.post("preprocess-1", span=(number, number)))
    member.process.join(20)

    assert member.died
    assert f" {moment} " in stage.crew.obituaries.read_text()


def test_nobody_dies_in_a_truce(stage: Scene) -> None:
    """While the truce holds, a process lives through its last moment and many more."""
    stage.crew.truce.touch()
    member = stage.crew.start(stage.post("preprocess-1", span=(1, 1)))
    stage.wait_until_ready(member)

    assert not stage.crew.obituaries.exists()


def test_a_job_that_is_gone_is_lost(stage: Scene, audit: Audit) -> None:
    """All documents of a job that Redis does not know are named."""
    stage.client.delete(stage.keys.job(_PILE.job_id))
    verdict = _judge(audit)

    assert _PILE.num_documents + 1 == len(verdict.lost)


class _Broken(Storm):
    def _posts(self) -> list[Post]:
        return [Post("engine-1", "workers.engine_worker", (), {"DOCMILL_REDIS_URL": "nonsense"})]


def test_a_process_that_ends_by_itself_is_a_fault() -> None:
    """A storm ends at once, with the words of whoever fell over, when a worker does."""
    folder = Path(tempfile.mkdtemp(prefix="dm-chaos-"))
    tally = _Broken(Plan("harness", num_kills=1000), folder, lambda line: None).run()
    shutil.rmtree(folder)

    assert any("engine-1" in fault and "nonsense" in fault for fault in tally.verdict.faults)
