"""What is asked about each document: from a caller's arguments to wire specs.

Decides where the document goes in the prompt, which parameters are acceptable and what holds where
a caller says nothing; knows neither queues nor files. May import docmill.wire, docmill.rules and
docmill.errors.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
from pydantic import ValidationError

from docmill.errors import JobRejected
from docmill.intake.base import OPTIONS
from docmill.keys import TIERS
from docmill.rules import check_policies
from docmill.wire import Message, Spec

#: Marks the document's place in a prompt or message.
PLACE = "{document}"

#: What holds unless a caller says otherwise; the wire's own defaults are what the first ones meant.
DEFAULTS: Mapping[str, Any] = {"truncate": "semantic", "dedup": "text"}

#: Belong together: a document that brings one of them asks a question of its own.
_QUESTION = ("prompt", "messages", "combine_prompt")
_ROLES = ("system", "user", "assistant")
_JOB_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MAX_SPECS_KEPT = 4096
#: More seconds than that are a moment that was passed for a duration.
_LONGEST_DEADLINE_S = 10 * 365 * 86400.0

Pieces = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class EncodedSpec:
    """A spec's bytes and their digest."""

    digest: str
    data: bytes


class SpecBook:
    """The specs of one submission, each built, checked and encoded once.

    Args:
        defaults: The job's own options; a document's options take precedence over them (a rule's
            policy over the same rule's), except that a model named here is the one used.
    """

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults = {name: value for name, value in defaults.items() if value is not None}
        self._known: dict[bytes, EncodedSpec] = {}
        has_prompt = "prompt" in self._defaults or "messages" in self._defaults
        placeholder = {} if has_prompt else {"prompt": PLACE}
        build_spec(placeholder | self._defaults)  # refuses what no document could use
        self._default = self._encode({}) if has_prompt else None

    @property
    def default(self) -> EncodedSpec | None:
        """What is asked about documents without options; None where each must bring its prompt."""
        return self._default

    def spec(self, options: Mapping[str, Any] | None = None) -> EncodedSpec:
        """Return the spec for a document with these options.

        Raises:
            JobRejected: The options cannot be used, or there is no prompt.
        """
        if not options and self._default is not None:
            return self._default
        options = options or {}
        try:
            key: bytes = msgpack.packb(sorted(options.items()))
        except (TypeError, ValueError, OverflowError) as error:
            raise JobRejected(f"options cannot be used: {error}") from error
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MAX_SPECS_KEPT:
                self._known.clear()
            found = self._known[key] = self._encode(options)
        return found

    def _encode(self, options: Mapping[str, Any]) -> EncodedSpec:
        asked = {name: value for name, value in options.items() if value is not None}
        base = self._defaults
        if not asked.keys().isdisjoint(_QUESTION[:2]):
            base = {name: value for name, value in base.items() if name not in _QUESTION}
        if asked.get("truncate", "split") != "split":
            base = {name: value for name, value in base.items() if name != "combine_prompt"}
        if "rules" in asked:
            asked["rules"] = {**base.get("rules", {}), **check_policies(asked["rules"])}
        forced = {"model": base["model"]} if "model" in base else {}
        spec = build_spec(base | asked | forced)
        return EncodedSpec(spec.digest(), spec.encode())


def build_spec(options: Mapping[str, Any]) -> Spec:
    """Build a spec from options by their public names.

    Raises:
        JobRejected: One line that names the parameter and the problem.
    """
    fields = {**DEFAULTS, **options}
    unknown = sorted(set(fields).difference(OPTIONS))
    if unknown:
        raise JobRejected(f"unknown option {unknown[0]!r}; known are {', '.join(OPTIONS)}")
    fields["messages"] = place_document(fields.pop("prompt", None), fields.pop("messages", None))
    if "combine_prompt" in fields:
        fields["combine"] = _combination(fields.pop("combine_prompt"), fields["truncate"])
    if "stop" in fields:
        fields["stop"] = _stop_strings(fields["stop"])
    if "rules" in fields:
        fields["rules"] = check_policies(fields["rules"])
    if "near_threshold" in fields and fields["dedup"] == "off":
        raise JobRejected("near_threshold allows to share answers, which dedup='off' forbids")
    try:
        spec = Spec.model_validate(fields, strict=True)
        spec.encode()
    except ValidationError as error:
        raise JobRejected(_first_problem(error)) from error
    except UnicodeEncodeError as error:
        raise JobRejected("prompt, messages or stop hold half a surrogate pair") from error
    except OverflowError as error:
        raise JobRejected("a number has more than 64 bits") from error
    return spec


def _combination(prompt: Any, truncate: Any) -> tuple[Message, ...]:
    if truncate != "split":
        raise JobRejected(
            f"combine_prompt is asked about the parts of a document: truncate must be 'split' for "
            f"it, got {truncate!r:.40}"
        )
    if not isinstance(prompt, str):
        raise JobRejected(f"combine_prompt must be text, got {type(prompt).__name__}")
    return place_document(prompt, None)


def _stop_strings(stop: Any) -> tuple[Any, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop) if _is_list(stop) else (stop,)
    if "" in strings:
        raise JobRejected("stop: a stop string must not be empty")
    return strings


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "request"
    return f"{where}: {first['msg']} (got {first['input']!r:.60})"


def place_document(prompt: Any, messages: Any) -> tuple[Message, ...]:
    """Turn a prompt or messages into wire messages with exactly one place for the document.

    `{document}` marks the place; without it the document follows the prompt, or the last user
    message, after a blank line.

    Raises:
        JobRejected: Neither or both are given, there are two places, or a message is malformed.
    """
    if prompt is not None and messages is not None:
        raise JobRejected("give either prompt or messages, not both")
    if prompt is None and messages is None:
        raise JobRejected("there is no prompt: pass prompt=… or messages=…")
    if messages is None:
        if not isinstance(prompt, str):
            raise JobRejected(f"prompt must be text, got {type(prompt).__name__}")
        messages = [{"role": "user", "content": prompt}]
    if not _is_list(messages) or not messages:
        raise JobRejected("messages must be a list with at least one message")
    turns = [_parse_message(at, message) for at, message in enumerate(messages)]
    num_places = sum(pieces.count(None) for _, pieces in turns)
    if num_places > 1:
        raise JobRejected(f"{PLACE} stands {num_places} times; the document has one place")
    if num_places == 0:
        _append_place(turns)
    return tuple(Message(role=role, content=pieces) for role, pieces in turns)


def _append_place(turns: list[tuple[str, Pieces]]) -> None:
    for at in range(len(turns) - 1, -1, -1):
        role, pieces = turns[at]
        if role == "user":
            text = "".join(piece or "" for piece in pieces)
            turns[at] = (role, (f"{text}\n\n", None) if text else (None,))
            return
    turns.append(("user", (None,)))


def _parse_message(at: int, message: Any) -> tuple[str, Pieces]:
    if not isinstance(message, Mapping):
        raise JobRejected(f"messages[{at}] must be an object with role and content")
    extra = sorted(name for name in message if name not in ("role", "content"))
    if extra:
        raise JobRejected(f"messages[{at}].{extra[0]} is not supported")
    role = message.get("role")
    role = "system" if role == "developer" else role
    if role not in _ROLES:
        raise JobRejected(f"messages[{at}].role must be one of {', '.join(_ROLES)}, got {role!r}")
    return role, _parse_content(at, message.get("content"))


def _parse_content(at: int, content: Any) -> Pieces:
    """Split text at the place; a sequence holds literal pieces, with None for the document."""
    if isinstance(content, str):
        head, *rest = content.split(PLACE)
        pieces: list[str | None] = [head]
        for piece in rest:
            pieces += [None, piece]
        return tuple(piece for piece in pieces if piece != "")
    if _is_list(content) and all(piece is None or isinstance(piece, str) for piece in content):
        return tuple(content)
    raise JobRejected(f"messages[{at}].content must be text, got {type(content).__name__}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def check_job_id(job_id: Any) -> str:
    """Return the id, or raise JobRejected if it cannot be part of a key."""
    if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id):
        raise JobRejected(
            f"job_id {job_id!r:.60} must be 1 to 128 letters, digits, dots, dashes or underscores"
        )
    return str(job_id)


def check_name(name: Any) -> str | None:
    """Return the job's name, or raise JobRejected if it is no text that can be stored."""
    try:
        if name is not None:
            name.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise JobRejected(f"name must be text, got {name!a:.60}") from error
    return name if name is None else str(name)


def check_tier(tier: Any) -> str:
    """Return the tier, or raise JobRejected if there is no such tier."""
    if tier not in TIERS:
        raise JobRejected(f"tier must be one of {', '.join(TIERS)}, got {tier!r}")
    return str(tier)


def seconds(value: Any, name: str) -> float:
    """Return a positive duration in seconds, given as a number or a timedelta.

    Raises:
        JobRejected: It is neither, or not above zero.
    """
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number > 0:
        raise JobRejected(f"{name} must be more than 0 seconds, got {value!r}")
    return float(number)


def deadline_at(deadline: float | timedelta | datetime | None, now: datetime) -> float | None:
    """Return the moment, in UNIX seconds, after which an answer is of no use any more.

    Raises:
        JobRejected: It has passed already, is more than ten years off, or is a datetime without a
            time zone.
    """
    if deadline is None:
        return None
    if not isinstance(deadline, datetime):
        left_s = seconds(deadline, "deadline")
        if left_s > _LONGEST_DEADLINE_S:
            raise JobRejected(
                f"deadline must be at most ten years of seconds from now, got {deadline!r}; for a "
                "moment pass a datetime with a zone"
            )
        return now.timestamp() + left_s
    if deadline.tzinfo is None:
        raise JobRejected("deadline needs a time zone: datetime(…, tzinfo=UTC)")
    if deadline <= now:
        raise JobRejected(f"deadline {deadline.isoformat()} has passed already")
    return deadline.astimezone(UTC).timestamp()
