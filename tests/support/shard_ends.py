"""The model of how documents end in a shard, and of what becomes of those that depend on them.

What the scripts share: lua/_lib.lua, _sharing.lua and _parts.lua.
"""

from collections import Counter
from collections.abc import Callable

from docmill.wire import Body
from tests.support.shard_answers import Answers
from tests.support.shard_records import Doc, Job, Letter, told

#: As in lua/_lib.lua: so many bytes or more are stored once where several results share them.
SHARED_BYTES = 1024


def _answer_of(doc: Doc) -> tuple[bytes, str, str, str]:
    """Return a part's answer, or code and message of why there is none and how it came."""
    if doc.result is None:
        return b"", "result_expired", "its answer is gone", "run"
    how, body = doc.result
    said = told(body)
    return (said, "", "", "") if isinstance(said, bytes) else (b"", said[1], said[2], how)


class Ends:
    """Documents, and how they end."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.lying: list[Doc] = []
        #: fingerprint -> who leads, and how many leaders before it failed
        self.leaders: dict[str, tuple[Doc, int]] = {}
        self.followers: dict[str, list[Doc]] = {}
        self.answers = Answers()
        self.letters: list[Letter] = []
        self.figures: Counter[str] = Counter()

    def leads(self, doc: Doc) -> bool:
        """Whether the document computes what its equals wait for."""
        return doc.fp in self.leaders and self.leaders[doc.fp][0] is doc

    def _leave(self, doc: Doc) -> bool:
        was_running, doc.is_running = doc.is_running, False
        doc.lie("")
        self.lying.remove(doc)
        return was_running

    def _settle(self, doc: Doc, outcome: str, how: str, body: bytes, fp: str = "") -> None:
        job, was_running = doc.job, self._leave(doc)
        if job.is_gone or (job.is_cancelled and not was_running):
            return
        doc.outcome = outcome if was_running or not doc.is_singly_cancelled else "cancelled"
        if doc.outcome != "cancelled":
            is_shared = fp and len(body) >= SHARED_BYTES
            doc.result = how, job.bodies.setdefault(fp, body) if is_shared else body

    def _drop(self, doc: Doc) -> None:
        self._leave(doc)
        doc.outcome = "cancelled"
        self._pass_lead(doc)

    def _bury(self, doc: Doc, code: str, body: bytes) -> None:
        n, history = doc.n, doc.job.history.get(doc.request, 0) if not doc.job.is_gone else 0
        self._settle(doc, "failed", "run", body)
        if not doc.job.is_of_parts:
            self.letters.append(Letter(doc, code, n, doc.result is not None, history))
        self._pass_lead(doc, lambda follower: self._bury(follower, code, body))

    # who waits for whom

    def _follow(self, doc: Doc, fp: str, num_tokens: int) -> None:
        self.followers.setdefault(fp, []).append(doc)
        doc.lie("follower")
        doc.is_running, doc.fp, doc.num_tokens = False, fp, num_tokens
        doc.forget_parts()
        self.figures["followed"] += 1

    def _next_follower(self, fp: str) -> Doc | None:
        line = self.followers.get(fp)
        if not line:
            self.followers.pop(fp, None)
            return None
        doc = line.pop(0)
        doc.n = 1
        if doc.stream.startswith("intake"):
            doc.fp = ""
        return doc

    def _promote(self, doc: Doc, fp: str, num_failed: int) -> None:
        doc.come(f"ready:fake:{doc.tier}:0", fp)
        self.leaders[fp] = doc, num_failed
        self.figures["promoted"] += 1

    def _pass_lead(self, doc: Doc, give_up: Callable[[Doc], None] | None = None) -> None:
        if not self.leads(doc):
            return
        fp = doc.fp
        num_failed = self.leaders.pop(fp)[1] + (give_up is not None)
        while next_one := self._next_follower(fp):
            if not next_one.is_wanted:
                self._drop(next_one)
            elif give_up and num_failed > 1:
                give_up(next_one)
            else:
                self._promote(next_one, fp, num_failed)
                return

    def _park(self, doc: Doc) -> None:
        """Put a document aside, and those with it that wait for it and are paused as well."""
        doc.is_running = False
        doc.lie("parked")
        if not self.leads(doc):
            return
        fp = doc.fp
        num_failed = self.leaders.pop(fp)[1]
        while next_one := self._next_follower(fp):
            if not next_one.job.is_paused:
                self._promote(next_one, fp, num_failed)
                return
            next_one.come(f"ready:fake:{next_one.tier}:0", fp)
            next_one.lie("parked")

    # parts

    def _cancel_waiting(self, job: Job) -> int:
        job.is_cancelled, job.is_sealed, job.is_paused = True, True, False
        waiting = [doc for doc in job.docs if not doc.outcome and not doc.is_running]
        for doc in waiting:
            doc.outcome = "cancelled"
        return len(waiting)

    def _end_call(self) -> None:
        """Take together what ended in parts, which may end others in turn: as every script ends."""
        for job in list(self.jobs.values()):
            whole = job.whole
            if whole is not None and whole.parts is job and job.is_finished:
                self._take_together(job, whole)
            if job.is_of_parts and job.is_over:
                job.is_gone = True
                del self.jobs[job.name]

    def _take_together(self, job: Job, whole: Doc) -> None:
        whole.parts = None
        if not whole.is_wanted:
            self._drop(whole)
            return
        told_of = [_answer_of(doc) for doc in job.docs]
        for number, (_, code, message, how) in enumerate(told_of, start=1):
            if code:
                self._fail_whole(whole, code, f"part {number} of {len(told_of)}: {message}", how)
                return
        whole.answers = tuple(answer for answer, *_ in told_of)
        whole.rounds += 1
        whole.come(whole.stream)

    def _fail_whole(self, whole: Doc, code: str, message: str, how: str) -> None:
        outcome = "expired" if code == "expired" else "failed"
        body = Body.model_validate(
            {"outcome": outcome, "error": {"code": code, "message": message}}
        )
        if outcome == "failed" and how != "rejected":
            self._bury(whole, code, body.encode())
        else:
            self._settle(whole, outcome, "rejected", body.encode())
