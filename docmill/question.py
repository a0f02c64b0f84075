"""One job, one question: what is asked now is what the job was opened to ask.

Decides when a submission to a known job is refused; documents may always bring prompts of their
own. May import docmill.link and docmill.request.
"""

from collections.abc import Sequence

from docmill.errors import JobRejected
from docmill.link import Link
from docmill.request import PLACE, EncodedSpec
from docmill.wire import Message, Spec, unpack


def check_question(link: Link, job_id: str, asked: EncodedSpec) -> None:
    """Make sure that a job, if it is there, was opened to ask the same.

    Otherwise the documents that it has already would keep their old question without a word.

    Raises:
        JobRejected: It asks something else; names what differs.

    Cost: One round trip, two where it is refused.
    """
    meta = link.run(lambda: link.client.hget(link.keys.job(job_id), "meta"))
    before = str(unpack(meta).get("spec") or "") if meta else ""
    if before in ("", asked.digest):
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
