"""From the answers to a document's parts to the text that a last pass makes one answer of.

Decides what is reported of a document that was answered in parts. May import docmill and the other
modules of this package.
"""

from dataclasses import dataclass

from docmill.errors import MessageError
from docmill.report import Division, Report
from docmill.wire import Body, Failure
from preprocess import divide
from preprocess.base import Divided, Refused, Submission, Tokenizer
from preprocess.plans import Plan


@dataclass(frozen=True, slots=True)
class Text:
    """The answers in one text, and what is to be reported of the document."""

    text: str
    report: Report


def combine(submission: Submission, plan: Plan, tokenizer: Tokenizer) -> Text | Divided | Refused:
    """Return the answers as one text, or in groups that have to be combined first.

    Args:
        submission: With the bodies of all parts, in order.
        plan: Of the request that combines them.
        tokenizer: The model's.
    """
    report = submission.header.report or Report()
    try:
        bodies = [Body.decode(body) for body in submission.answers]
    except MessageError as error:
        return Refused(Failure(code=error.code, message=f"a part's answer: {error}"), report=report)
    report = report.model_copy(update={"division": _divided(report.division, bodies)})
    answers = [body.text or "" for body in bodies]
    groups = divide.groups(answers, plan.room.document_len, tokenizer)
    if isinstance(groups, Failure):
        return Refused(groups, report=report)
    if len(groups) > 1:
        return Divided(divide.part_spec(plan.spec), groups, report)
    return Text(groups[0], report)


def _divided(before: Division | None, bodies: list[Body]) -> Division:
    """Add the cost of these answers to what was spent on those before."""
    before = before or Division(parts=len(bodies), rounds=0)
    usages = [body.usage for body in bodies]
    return Division(
        parts=before.parts,
        rounds=before.rounds + 1,
        prompt_tokens=before.prompt_tokens + sum(usage.prompt_tokens for usage in usages),
        completion_tokens=before.completion_tokens
        + sum(usage.completion_tokens for usage in usages),
    )
