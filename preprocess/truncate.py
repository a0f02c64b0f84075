"""How much of a document fits, and what is done with the rest.

Exact in tokens: context = template + document + output. The template and the room for the output
are never cut. What an engine gets is `Fit.tokens`, which are at most `Room.document_len` whatever
the text and the policy:

- refuse: the document gets no answer.
- head, tail, middle: the first tokens, the last, or half of each; less those of a character that
  spans the cut.
- semantic: the beginning, up to the best boundary; see `preprocess.semantic`.
- key_information: what matters most for the request; see `preprocess.key_information`.

May import numpy, docmill.wire and docmill.errors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from docmill.errors import Reason
from docmill.report import Truncation
from docmill.wire import Failure, Spec
from preprocess import key_information, semantic
from preprocess.base import Tokenizer, Tokens
from preprocess.spans import Range, Spans

Policy = Literal["refuse", "head", "tail", "middle", "semantic", "key_information"]


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens a request has: in all, for the template around the document, for the answer.

    `max_document_tokens` is what the request allows a document, if less than fits.
    """

    context_len: int
    template_len: int
    max_tokens: int
    max_document_tokens: int | None = None

    @property
    def document_len(self) -> int:
        """Tokens left for the document; less than 1 where there is no room."""
        left = self.context_len - self.template_len - self.max_tokens
        return left if self.max_document_tokens is None else min(left, self.max_document_tokens)

    def shortage(self) -> Failure | None:
        """Return why no document at all fits, if so."""
        if self.document_len >= 1:
            return None
        return Failure(
            code=Reason.CONTEXT_TOO_SMALL,
            message=f"no room for a document: {self._sum()}; lower max_tokens or "
            "shorten the prompt",
        )

    def excess(self, document_len: int, *, is_exact: bool = True) -> Failure:
        """Return the refusal of a document that is too long."""
        num_tokens = f"{document_len:,}" if is_exact else f"at least {document_len:,}"
        return Failure(
            code=Reason.TOO_LONG,
            message=f"the document has {num_tokens} tokens and {self.document_len:,} fit: "
            f"{self._sum()}; truncate=split answers it in parts, truncate=semantic cuts it",
        )

    def _sum(self) -> str:
        left = self.context_len - self.template_len - self.max_tokens
        parts = (
            f"context {self.context_len:,} - template {self.template_len:,} - "
            f"max_tokens {self.max_tokens:,} = {left:,}"
        )
        if self.document_len < left:
            return f"{parts}, and max_document_tokens is {self.document_len:,}"
        return parts


@dataclass(frozen=True, slots=True)
class Fit:
    """What is kept of a document, and what is reported if that is not all."""

    tokens: Tokens
    text: str
    truncation: Truncation | None = None


def fit(
    text: str,
    tokens: Tokens,
    room: Room,
    policy: Policy,
    instruction: str,
    tokenizer: Tokenizer,
) -> Fit | Failure:
    """Return what of a document goes to the engine, or why it is refused.

    Args:
        text: The document.
        tokens: Its tokens, all of them.
        room: Has room for at least one token.
        policy: What is done with a document that is longer.
        instruction: The texts around the document, see `instruction_of`.
        tokenizer: The one that made the tokens.

    Cost: nothing for a document that fits; some 0.2 µs a byte of one that does not.
    """
    if len(tokens) <= room.document_len:
        return Fit(tokens, text)
    if policy == "refuse":
        return room.excess(len(tokens))
    spans = Spans(text, tokens, tokenizer)
    kept, ranges = _keep(spans, room.document_len, policy, instruction)
    truncation = Truncation(
        policy=policy,
        original_tokens=len(tokens),
        kept_tokens=len(kept),
        dropped=_gaps(ranges, len(text)),
    )
    return Fit(kept, "".join(text[slice(*item)] for item in ranges), truncation)


def too_long_at_sight(text: str, room: Room, policy: str, tokenizer: Tokenizer) -> Failure | None:
    """Return the refusal of a document that cannot fit, without tokenising it.

    Holds back only what is sure, so `fit` decides about the rest.
    """
    if policy != "refuse" or len(text) <= room.document_len:
        return None
    fewest = tokenizer.fewest_tokens(text)
    return room.excess(fewest, is_exact=False) if fewest > room.document_len else None


def instruction_of(spec: Spec) -> str:
    """Return what is asked about the document: the texts of the messages around it."""
    parts = (part for message in spec.messages for part in message.content if part)
    return "\n".join(parts)


def _keep(
    spans: Spans, budget: int, policy: Policy, instruction: str
) -> tuple[Tokens, Sequence[Range]]:
    """Return what the policy keeps, as tokens and as ranges of characters."""
    if policy == "key_information":
        for ranges in key_information.choices(spans, budget, instruction):
            kept = spans.keep(ranges)
            if kept is not None and 0 < len(kept) <= budget:
                return kept, ranges
    if policy in ("key_information", "semantic"):
        for place in semantic.cuts(spans, budget):
            kept = spans.keep([(0, place)])
            if kept is not None and 0 < len(kept) <= budget:
                return kept, [(0, place)]
    for ranges in _by_count(spans, budget, policy):
        kept = spans.keep(ranges)
        if kept is not None and 0 < len(kept) <= budget:
            return kept, ranges
    # not one character fits whole: an engine still needs a token
    return (spans.tokens[-budget:] if policy == "tail" else spans.tokens[:budget]), []


def _by_count(spans: Spans, budget: int, policy: Policy) -> Iterator[list[Range]]:
    """Yield what lies in the first tokens, the last, or half of each; the first by default.

    Where characters span the cuts, to the last whole one, and then to the last that ends with a
    token, for where the other has too many tokens.
    """
    behind = {"tail": budget, "middle": budget // 2}.get(policy, 0)
    first = spans.place_before(budget - behind)
    last = spans.place_behind(len(spans.tokens) - behind)
    for until, since in ((first, last), (spans.cut_before(first), spans.cut_behind(last))):
        yield [item for item in ((0, until), (since, len(spans.text))) if item[0] < item[1]]


def _gaps(ranges: Sequence[Range], end: int) -> tuple[Range, ...]:
    """Return what lies between and around ranges."""
    starts = [0, *(item[1] for item in ranges)]
    ends = [*(item[0] for item in ranges), end]
    return tuple(item for item in zip(starts, ends, strict=True) if item[0] < item[1])
