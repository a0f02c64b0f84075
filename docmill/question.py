"""One job, one question, one tenant: a submission is what the job was opened for.

Decides when one to a known job is refused; documents may always bring prompts of their own. May
import docmill.link and docmill.request.
"""

from collections.abc import Sequence

from docmill.errors import JobRejected
from docmill.link import Link
from docmill.request import PLACE, EncodedSpec
from docmill.wire import Message, Spec, unpack


def check_same(link: Link, job_id: str, asked: EncodedSpec | None, tenant: str) -> None:
    """Make sure that a job, if it is there, was opened to ask the same, for the same tenant.

    Otherwise the documents that it has already would keep their old question, or their old tenant,
    without a word.

    Args:
        link: Where the job is.
        job_id: The job.
        asked: What is asked now of documents that do not say it themselves; None: nothing.
        tenant: For whom.

    Raises:
        JobRejected: It was opened for something else; names what differs, but for the tenant.

    Cost: One round trip, two where it is refused.
    """
    packed = link.run(lambda: link.client.hget(link.keys.job(job_id), "meta"))
    meta = unpack(packed) if packed else {}
    if meta.get("tenant", tenant) != tenant:  # a job of an older client does not tell
        raise JobRejected(
            f"job {job_id!r} was submitted on behalf of another tenant: choose another job id, or "
            "name its tenant"
        )
    before = str(meta.get("spec") or "")
    if asked is None or before in ("", asked.digest):
        return
    data = link.run(lambda: link.client.hget(link.keys.specs(job_id), before))
    change = f" ({describe_change(Spec.decode(data), Spec.decode(asked.data))})" if data else ""
    raise JobRejected(
        f"job {job_id!r} was submitted with another prompt or other parameters{change}: choose "
        "another job id, or let documents bring prompts of their own"
    )


def describe_change(before: Spec, now: Spec) -> str:
    """Name what two specs ask differently, in a few words."""
    changes = []
    for name in Spec.model_fields:
        old, new = getattr(before, name), getattr(now, name)
        if old == new:
            continue
        if name == "messages":
            changes.append(f"prompt {_shown(old)!r:.60} then, {_shown(new)!r:.60} now")
        else:
            changes.append(f"{name} {old!r:.60} then, {new!r:.60} now")
    return "; ".join(changes)


def _shown(messages: Sequence[Message]) -> str:
    texts = ("".join(PLACE if part is None else part for part in m.content) for m in messages)
    return " ".join(" ".join(texts).split())
