"""OpenAI Batch requests: what is taken over, and what is refused by name."""

import json
from typing import Any

import pytest

from docmill.errors import Reason
from docmill.intake.base import Document, Refusal
from docmill.intake.jsonl import parse_line
from docmill.intake.openai_batch import parse_request

USER = {"role": "user", "content": "the document"}


def line(**body: Any) -> dict[str, Any]:
    """Return a request line."""
    return {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "m", "messages": [USER], **body},
    }


def test_the_last_user_message_is_the_document() -> None:
    """The others keep their place and text, marks in them included."""
    messages = [
        {"role": "system", "content": "Say {document} twice"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "ok"},
        USER,
    ]

    document, options = parse_request(line(messages=messages))

    assert "the document" == document
    assert [["Say {document} twice"], ["first"], ["ok"], [None]] == [
        message["content"] for message in options["messages"]
    ]


def test_sampling_parameters_are_taken_over() -> None:
    """Both names of the output limit count; null means not given."""
    body = {"temperature": 0.5, "top_p": 0.9, "stop": ["x"], "seed": 3, "max_completion_tokens": 9}

    _, options = parse_request(line(**body, max_tokens=None))

    del options["messages"]
    assert {
        "model": "m",
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["x"],
        "seed": 3,
        "max_tokens": 9,
    } == options


def test_text_parts_are_joined() -> None:
    """Content in parts is one text, part under part."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    document, _ = parse_request(line(messages=[{"role": "user", "content": parts}]))

    assert "one\ntwo" == document


def test_what_asks_for_nothing_special_is_accepted() -> None:
    """Neutral values, and fields that say nothing about the answer, pass."""
    parse_request(line(n=1, stream=False, user="me", metadata={"k": "v"}, tools=[], logprobs=False))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": [{"type": "function"}]}, "body.tools is"),
        ({"n": 2}, "body.n=2"),
        ({"stream": True}, "body.stream=True"),
        ({"logit_bias": {"5": 1}}, "body.logit_bias"),
        ({"response_format": {"type": "json_object"}}, "body.response_format"),
        ({"frequency_penalty": 0.1}, "body.frequency_penalty=0.1"),
        ({"made_up": 1}, "body.made_up=1"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "system", "content": "x"}]}, "no user message"),
        ({"messages": ["x"]}, "messages[0] must be an object"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role 'tool'"),
        ({"messages": [{"role": "user", "content": None}]}, "content must be text"),
        ({"messages": [{**USER, "tool_calls": []}]}, "messages[0].tool_calls"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "content of type 'image_url'",
        ),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "content of type 'str'"),
    ],
)
def test_the_unsupported_is_refused_by_name(body: dict[str, Any], words: str) -> None:
    """Nothing that would change the answer is dropped silently."""
    refusal = parse_line(json.dumps(line(**body)).encode(), {"file": "in.jsonl", "line": 3})

    assert isinstance(refusal, Refusal)
    assert ("a", Reason.BAD_REQUEST, 3) == (refusal.custom_id, refusal.code, refusal.line)
    assert words in refusal.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "/v1/embeddings"}, "url '/v1/embeddings'"),
        ({"method": "GET"}, "method 'GET'"),
        ({"body": 5}, "body must be an object"),
    ],
)
def test_other_requests_are_refused(change: dict[str, Any], words: str) -> None:
    """Only chat completions by POST are understood."""
    refusal = parse_line(json.dumps({**line(), **change}).encode(), {"file": "in.jsonl", "line": 3})

    assert isinstance(refusal, Refusal)
    assert words in refusal.message


def test_a_request_without_method_and_url_is_understood() -> None:
    """The body is what counts."""
    item = parse_line(
        json.dumps({"custom_id": "a", "body": {"messages": [USER]}}).encode(),
        {"file": "in.jsonl", "line": 3},
    )

    assert isinstance(item, Document)
    assert "the document" == item.text
