"""The tokens around a document: rendered once per request spec, the same for all its documents.

Decides how a spec's messages become tokens in front of and behind the document. The messages are
rendered with markers in place of their contents; the rendered text is cut at the markers, and each
piece is tokenised by itself: the template's own text with control tokens, contents as plain text.
So no text can forge a control token or merge with the template's, and the leading tokens of all
documents are equal (docs/decisions/0005). Contents stand exactly as given even where the template
would trim them.

For a model without a chat template the prompt is the tokenizer's start tokens and then the
contents, with a blank line between messages. May import docmill.wire and numpy.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import numpy as np

from docmill.wire import Spec
from preprocess.base import ChatMessage, TemplateRefusal, Tokenizer, Tokens

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")  # it is rendered among control tokens
_MARKER = "DocmillPart7e1bc0{:04d}"  # letters and digits only: filters leave it as it is
_MARKERS = re.compile(r"DocmillPart7e1bc0(\d{4})")
_MAX_PARTS = 10_000  # what four digits number


@dataclass(frozen=True, slots=True)
class Prompt:
    """What stands around the document: [T] tokens in front of it and behind it."""

    leading: Tokens
    trailing: Tokens

    def __len__(self) -> int:
        return len(self.leading) + len(self.trailing)


def build(spec: Spec, tokenizer: Tokenizer, moment: datetime) -> Prompt:
    """Return the tokens around the documents of `spec`.

    Args:
        spec: What is asked.
        tokenizer: The model's.
        moment: The time a template may write into the prompt.

    Raises:
        TemplateRefusal: The spec's messages cannot be put into this model's format.

    Cost: one rendering and one tokenising of everything but the document.
    """
    num_places = sum(part is None for message in spec.messages for part in message.content)
    if num_places != 1:
        raise TemplateRefusal(
            f"the messages have {num_places} places for the document; they need exactly one"
        )
    for message in spec.messages:
        if not _ROLE.fullmatch(message.role):
            raise TemplateRefusal(f"{message.role!r} is not a role")
    marked, parts = _mark(spec)
    rendered = tokenizer.render_chat(marked, moment)
    if rendered is None:
        return _assemble(list(_plain_pieces(spec)), tokenizer, start=tokenizer.start_tokens())
    pieces = [piece for piece in _template_pieces(rendered, parts) if piece.text != ""]
    return _assemble(pieces, tokenizer, start=np.empty(0, dtype=np.uint32))


def _mark(spec: Spec) -> tuple[list[ChatMessage], list[str | None]]:
    """Return the messages with a marker for each part of a content, and the parts by number."""
    parts: list[str | None] = []
    messages = []
    for message in spec.messages:
        first = len(parts)
        parts.extend(_joined(message.content))
        markers = (_MARKER.format(number) for number in range(first, len(parts)))
        messages.append(ChatMessage(message.role, "".join(markers)))
    if len(parts) > _MAX_PARTS:
        raise TemplateRefusal(f"the messages have more than {_MAX_PARTS} parts")
    return messages, parts


def _joined(content: Sequence[str | None]) -> Iterator[str | None]:
    """Yield the content's parts with neighbouring texts joined and empty ones left out."""
    for is_document, group in groupby(content, key=lambda part: part is None):
        if is_document:
            yield from group
        elif text := "".join(part or "" for part in group):
            yield text


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of the prompt; `text` None is the document."""

    text: str | None
    is_template: bool = False


def _template_pieces(rendered: str, parts: list[str | None]) -> Iterator[_Piece]:
    split = _MARKERS.split(rendered)  # literal, number, literal, number, …, literal
    numbers = [int(number) for number in split[1::2]]
    if lacking := set(range(len(parts))) - set(numbers):
        part = parts[min(lacking)]
        what = "the document" if part is None else repr(part[:80])
        raise TemplateRefusal(f"the model's chat template leaves out {what}")
    yield _Piece(split[0], is_template=True)
    for number, literal in zip(numbers, split[2::2], strict=True):
        yield _Piece(parts[number])
        yield _Piece(literal, is_template=True)


def _plain_pieces(spec: Spec) -> Iterator[_Piece]:
    for number, message in enumerate(spec.messages):
        if number > 0:
            yield _Piece("\n\n")
        yield from map(_Piece, _joined(message.content))


def _assemble(pieces: list[_Piece], tokenizer: Tokenizer, start: Tokens) -> Prompt:
    sides: list[list[Tokens]] = [[start]]
    for piece, following in zip(pieces, [*pieces[1:], _Piece("")], strict=True):
        if piece.text is None:
            sides.append([start[:0]])
            continue
        tokens = tokenizer.encode_piece(
            piece.text, is_template=piece.is_template, precedes_document=following.text is None
        )
        if tokens is None:
            raise TemplateRefusal(f"the model's tokenizer cannot express {piece.text[:80]!r}")
        sides[-1].append(tokens)
    if len(sides) != 2:
        raise TemplateRefusal(
            f"the model's chat template shows the document {len(sides) - 1} times"
        )
    leading, trailing = (np.concatenate(side) for side in sides)
    return Prompt(leading, trailing)
