"""How much of a document fits, and what is done with the rest.

Exact in tokens: context = template + document + output. The template and the room for the output
are never cut. May import docmill.wire and docmill.errors.
"""

from dataclasses import dataclass

from docmill.errors import Reason
from docmill.report import Truncation
from docmill.wire import Failure, Truncate

Policy = Truncate


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens a request has: in all, for the template around the document, for the answer."""

    context_len: int
    template_len: int
    max_tokens: int

    @property
    def document_len(self) -> int:
        """Tokens left for the document; less than 1 where there is no room."""
        return self.context_len - self.template_len - self.max_tokens

    def shortage(self) -> Failure | None:
        """Return why no document at all fits, if so."""
        if self.document_len >= 1:
            return None
        return Failure(
            code=Reason.CONTEXT_TOO_SMALL,
            message=f"no room for a document: {self._sum()}; lower max_tokens or "
            "shorten the prompt",
        )

    def excess(self, document_len: int) -> Failure:
        """Return the refusal of a document that is too long."""
        return Failure(
            code=Reason.TOO_LONG,
            message=f"the document has {document_len:,} tokens and {self.document_len:,} fit: "
            f"{self._sum()}; split it, or allow truncation",
        )

    def _sum(self) -> str:
        return (
            f"context {self.context_len:,} - template {self.template_len:,} - "
            f"max_tokens {self.max_tokens:,} = {self.document_len:,}"
        )


def fit(document_len: int, room: Room, policy: Policy) -> Truncation | Failure | None:
    """Return what is cut from a document, why it is refused, or None when it fits whole."""
    if document_len <= room.document_len:
        return None
    if policy == "refuse":
        return room.excess(document_len)
    return Truncation(policy=policy, original_tokens=document_len, kept_tokens=room.document_len)
