"""OpenAI Batch request lines: what docmill understands of them.

The document is the content of the last user message; everything else is the document's options.
Whatever would change the answer and is not supported is refused by name, never dropped. May import
nothing of docmill.
"""

from collections.abc import Mapping
from typing import Any

URL = "/v1/chat/completions"

_TAKEN_OVER = ("model", "temperature", "top_p", "stop", "seed")
#: Say nothing about the answer.
_WITHOUT_EFFECT = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier"})
#: Values that ask for what happens anyway.
_NEUTRAL: dict[str, Any] = {
    "n": 1,
    "stream": False,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "response_format": {"type": "text"},
    "tools": [],
    "logit_bias": {},
    "modalities": ["text"],
}


class UnsupportedRequest(Exception):
    """The line asks for something docmill does not do; the message names it."""


def parse_request(line: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a request line's document and options.

    Raises:
        UnsupportedRequest: The line is malformed or asks for something unsupported.
    """
    method, url, body = line.get("method", "POST"), line.get("url", URL), line.get("body")
    if method != "POST":
        raise UnsupportedRequest(f"method {method!r:.40} is not supported; use POST")
    if url != URL:
        raise UnsupportedRequest(f"url {url!r:.60} is not supported; use {URL}")
    if not isinstance(body, dict):
        raise UnsupportedRequest(f"body must be an object, got {type(body).__name__}")
    given = {name: value for name, value in body.items() if value is not None}
    options = {name: given.pop(name) for name in _TAKEN_OVER if name in given}
    limits = [given.pop(name, None) for name in ("max_completion_tokens", "max_tokens")]
    limit = next((value for value in limits if value is not None), None)
    if limit is not None:
        options["max_tokens"] = limit
    document, options["messages"] = _split_messages(given.pop("messages", None))
    _refuse_the_rest(given)
    return document, options


def _refuse_the_rest(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name in _WITHOUT_EFFECT or (name in _NEUTRAL and _NEUTRAL[name] == value):
            continue
        shown = "" if isinstance(value, list | dict) else f"={value!r:.40}"
        raise UnsupportedRequest(f"body.{name}{shown} is not supported")


def _split_messages(messages: Any) -> tuple[str, list[dict[str, Any]]]:
    """Take the last user message's content out; None is left in its place."""
    if not isinstance(messages, list) or not messages:
        raise UnsupportedRequest("body.messages must be a list with at least one message")
    turns = [_parse_turn(at, message) for at, message in enumerate(messages)]
    for at in range(len(turns) - 1, -1, -1):
        if turns[at]["role"] == "user":
            document = str(turns[at]["content"][0])
            turns[at] = {"role": "user", "content": [None]}
            return document, turns
    raise UnsupportedRequest("body.messages has no user message to take the document from")


def _parse_turn(at: int, message: Any) -> dict[str, Any]:
    where = f"body.messages[{at}]"
    if not isinstance(message, dict):
        raise UnsupportedRequest(f"{where} must be an object with role and content")
    for name, value in message.items():
        if name not in ("role", "content") and value is not None:
            raise UnsupportedRequest(f"{where}.{name} is not supported")
    role = message.get("role")
    if role not in ("system", "developer", "user", "assistant"):
        raise UnsupportedRequest(f"{where}.role {role!r:.40} is not supported")
    return {"role": role, "content": [_text_of(where, message.get("content"))]}


def _text_of(where: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise UnsupportedRequest(f"{where}.content must be text, got {type(content).__name__}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise UnsupportedRequest(f"{where}.content of type {kind!r:.40} is not supported")
        texts.append(part["text"])
    return "\n".join(texts)
