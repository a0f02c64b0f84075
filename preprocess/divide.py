"""A document that is too long, in parts that fit; and the answers to them, put together again.

Decides where the parts begin and end, and what is asked about the answers to them. Parts follow one
another and overlap a little, so that what is said across a boundary is whole in one of them. Who
answers them, and when, is decided elsewhere. May import docmill.wire, docmill.errors and the other
modules of this package.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from docmill.errors import Reason
from docmill.wire import Failure, Message, Spec
from preprocess.base import Tokenizer, Tokens
from preprocess.outline import Unit, units
from preprocess.semantic import best_cut
from preprocess.spans import Range, Spans

MAX_PARTS = 1000
#: Of a part: what it has of the one before, about; in tokens, some sentences at most.
_OVERLAP_SHARE, _MAX_OVERLAP_LEN = 1 / 16, 256
_BLANK = re.compile(r"\s")
_BETWEEN = "\n\n"

_DOCUMENT = "[the document]"
_BEFORE_REQUEST = (
    "A document was too long to be read at once. It was read in consecutive parts that overlap a "
    "little, and this request was answered for each part by itself:\n\n<request>\n"
)
_BEFORE_ANSWERS = "\n</request>\n\nThese are the answers, in the order of the parts:\n\n"
_BEHIND_ANSWERS = (
    "\n\nCombine them into one answer to the request, as if it had been answered for the whole "
    "document: in the form that the request asks for, complete, without repetitions, and without "
    "mentioning parts. Where a part had nothing to say on the request, leave that out."
)


def parts(
    text: str, tokens: Tokens, part_len: int, tokenizer: Tokenizer
) -> tuple[str, ...] | Failure:
    """Return consecutive parts of about equal length, each with something to see.

    They end where `preprocess.semantic` would cut, and begin with a sentence or line.

    Args:
        text: A document.
        tokens: Its tokens, at least one.
        part_len: Tokens that each part has at most, tokenised by itself.
        tokenizer: The one that made the tokens.

    Returns:
        The parts, or why there are none: more than `MAX_PARTS`, or not one character fits.

    Cost: the text is tokenised once more, in parts.
    """
    if len(tokens) > MAX_PARTS * part_len:
        return _too_many(part_len)
    spans, found = Spans(text, tokens, tokenizer), units(text)
    room = part_len
    while room >= 1 and (ranges := _evened(spans, found, room)):
        if len(ranges) > MAX_PARTS:
            return _too_many(part_len)
        visible = [part for item in ranges if _is_visible(part := text[slice(*item)].strip())]
        excess = max(_lengths(visible, tokenizer), default=0) - part_len
        if not visible:
            return Failure(code=Reason.EMPTY_DOCUMENT, message="no part holds anything to see")
        if excess <= 0:
            return tuple(visible)
        # a part by itself may have more tokens than it had in its document
        room = part_len - max(part_len - room + excess, 2 * (part_len - room))
    message = f"a part of {part_len:,} tokens does not hold one character of the document"
    return Failure(code=Reason.CONTEXT_TOO_SMALL, message=f"{message}; lower max_tokens")


def part_spec(spec: Spec) -> Spec:
    """Return what is asked about each part: the same, of a document that fits by now."""
    changes = {"truncate": "head", "combine": (), "max_document_tokens": None}
    return spec.model_copy(update=changes | {"near_threshold": None})


def combine_spec(spec: Spec) -> Spec:
    """Return what is asked about the answers to the parts.

    The request's own words for it, or its system messages and an instruction that quotes the rest.
    """
    messages = spec.combine
    if not messages:
        system = [each for each in spec.messages if each.role == "system" and _is_plain(each)]
        request = "\n\n".join(_quoted(each) for each in spec.messages if each not in system)
        content = (f"{_BEFORE_REQUEST}{request}{_BEFORE_ANSWERS}", None, _BEHIND_ANSWERS)
        messages = (*system, Message(role="user", content=content))
    changes = {"messages": messages, "truncate": "refuse", "combine": (), "rules": {}}
    return spec.model_copy(update=changes | {"max_document_tokens": None, "near_threshold": None})


def groups(
    answers: Sequence[str], room_len: int, tokenizer: Tokenizer
) -> tuple[str, ...] | Failure:
    """Return the answers as texts to be asked about: one if they fit together, else several.

    Args:
        answers: To consecutive parts; at least one.
        room_len: Tokens that each text has at most.
        tokenizer: The model's.

    Returns:
        Texts of consecutive answers with their numbers, fewer than answers; or why that is not
        possible, since then no round would ever be the last.
    """
    numbered = [
        f"Part {number} of {len(answers)}:\n{answer.strip()}"
        for number, answer in enumerate(answers, start=1)
    ]
    lengths = _lengths([f"{text}{_BETWEEN}" for text in numbered], tokenizer)
    room = room_len
    while True:
        texts = list(_packed(numbered, lengths, room))
        if len(texts) == len(answers) > 1:
            return _apart(lengths, room_len)
        excess = max(_lengths(texts, tokenizer)) - room_len
        if excess <= 0:
            return tuple(texts)
        if len(answers) == 1:
            return _apart(lengths, room_len)
        room -= excess


def _evened(spans: Spans, found: Sequence[Unit], room: int) -> list[Range]:
    """Return parts of about equal lengths, if those are no more; none if not a character fits."""
    ranges = _ranges(spans, found, room)
    if len(ranges) > 1:
        # an eighth is what a cut at a paragraph may leave of its part
        even = len(spans.tokens) // len(ranges) + _overlap_len(room) + room // 8
        evened = _ranges(spans, found, min(room, even))
        if 0 < len(evened) <= len(ranges):
            return evened
    return ranges


def _ranges(spans: Spans, found: Sequence[Unit], room: int) -> list[Range]:
    ranges: list[Range] = []
    start, end = 0, len(spans.text)
    while len(ranges) <= MAX_PARTS:
        begun = spans.counts([start])[0]
        limit = spans.place_before(begun + room)
        if limit == end:
            return [*ranges, (start, end)]
        if limit <= start:
            return []
        place = best_cut(spans, found, start, limit, room)
        ranges.append((start, place))
        start = _next_start(spans, found, start, place, room)
    return ranges


def _next_start(spans: Spans, found: Sequence[Unit], start: int, place: int, room: int) -> int:
    """Return where the part behind one begins: with a sentence, else a word, near its end."""
    first, last = spans.counts([start, place])
    # at least half of a part is new
    floor = spans.place_behind(max(last - _overlap_len(room), (first + last + 1) // 2))
    if floor >= place:
        return place
    at = bisect_left(found, floor, key=_end)
    if at < len(found) and found[at].end < place:
        return found[at].end
    blank = _BLANK.search(spans.text, floor, place)
    return blank.start() if blank and at < len(found) and found[at].end > place else place


def _end(unit: Unit) -> int:
    return unit.end


def _overlap_len(room: int) -> int:
    return min(_MAX_OVERLAP_LEN, int(room * _OVERLAP_SHARE))


def _is_visible(text: str) -> bool:
    return any(character.isprintable() and not character.isspace() for character in text)


def _lengths(texts: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    return [0 if tokens is None else len(tokens) for tokens in tokenizer.encode_documents(texts)]


def _packed(texts: Sequence[str], lengths: Sequence[int], room: int) -> Iterator[str]:
    """Yield consecutive texts joined, as many as fit each time."""
    group: list[str] = []
    taken = 0
    for text, length in zip(texts, lengths, strict=True):
        if group and taken + length > room:
            yield _BETWEEN.join(group)
            group, taken = [], 0
        group.append(text)
        taken += length
    yield _BETWEEN.join(group)


def _is_plain(message: Message) -> bool:
    return None not in message.content


def _quoted(message: Message) -> str:
    text = "".join(_DOCUMENT if part is None else part for part in message.content)
    return text if message.role == "user" else f"{message.role}: {text}"


def _too_many(part_len: int) -> Failure:
    return Failure(
        code=Reason.TOO_LONG,
        message=f"the document makes more than {MAX_PARTS:,} parts of {part_len:,} tokens: divide "
        "it yourself, or shorten the prompt or max_tokens so that parts can be longer",
    )


def _apart(lengths: Sequence[int], room_len: int) -> Failure:
    return Failure(
        code=Reason.TOO_LONG,
        message="the answers to the document's parts cannot be combined: no two neighbours, of up "
        f"to {max(lengths):,} tokens each, fit into {room_len:,} tokens together; lower max_tokens",
    )
