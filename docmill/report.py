"""What preprocessing noticed in a document and did to it; comes back with the document's result.

Decides the vocabulary only: rules, truncation and duplicates are decided in the service. A report
travels in its document's header, because documents that share an answer differ in it. May import
pydantic.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

#: What may be done about a finding; see `docmill.rules`.
Action = Literal["flag", "repair", "reject"]


class Finding(BaseModel):
    """What one rule found: how often, where first (a character offset), and what was done."""

    model_config = ConfigDict(frozen=True)
    rule: str
    action: Action = "flag"
    count: int = Field(default=1, ge=1)
    at: int = Field(default=0, ge=0)


class Truncation(BaseModel):
    """What was cut from a document: token counts, and the policy that decided.

    `dropped` holds the ranges of characters that are missing, [start, end) each, in order; offsets
    count Unicode code points of the text after decoding and repairs.
    """

    model_config = ConfigDict(frozen=True)
    policy: str
    original_tokens: int
    kept_tokens: int
    dropped: tuple[tuple[int, int], ...] = ()


class Near(BaseModel):
    """An earlier document that says almost the same.

    `similarity` is the estimated share of common word sequences, 0 to 1. `is_reused`: the job
    allowed it, so the earlier document's answer was taken.
    """

    model_config = ConfigDict(frozen=True)
    custom_id: str
    job_id: str
    similarity: float
    is_reused: bool = False


class Division(BaseModel):
    """A document that was answered in parts: how many, and what they cost in tokens, all in all.

    `rounds` counts how often answers were combined, the last time included. The tokens are those of
    the parts and of all rounds but the last, which are the result's own usage.
    """

    model_config = ConfigDict(frozen=True)
    parts: int
    rounds: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Report(BaseModel):
    """All that is to be said of one document."""

    model_config = ConfigDict(frozen=True)
    findings: tuple[Finding, ...] = ()
    truncation: Truncation | None = None
    near: Near | None = None
    division: Division | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The ids of the rules that found something."""
        return tuple(finding.rule for finding in self.findings)
