"""A model's own chat template, rendered as transformers renders it.

Decides the environment that templates run in: sandboxed, and with the names that templates written
for transformers use. Knows nothing of documents or tokens. May import jinja2.

Source: `transformers.utils.chat_template_utils` 5.24, which is not imported because it takes
seconds.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from preprocess.base import ChatMessage, TemplateRefusal


class ChatTemplate:
    """A compiled template with the special tokens it may name (`bos_token` and so on).

    Raises:
        TemplateRefusal: The template's syntax is wrong.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateRefusal(f"the model's chat template is broken: {error}") from error

    def render(self, messages: Sequence[ChatMessage], moment: datetime) -> str:
        """Return the conversation as text, up to where the assistant's answer begins.

        Raises:
            TemplateRefusal: The template does not take these messages.
        """
        try:
            return self._template.render(
                messages=[{"role": item.role, "content": item.content} for item in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                strftime_now=moment.strftime,
                **self._special_tokens,
            )
        except Exception as error:  # a template is a program: whatever it raises is its refusal
            raise TemplateRefusal(
                f"the model's chat template does not take these messages: {error}"
            ) from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Keep what stands between the tags, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes HTML, which no model was trained on
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
