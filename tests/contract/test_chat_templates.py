"""Chat templates render as transformers renders them."""

from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from preprocess.base import ChatMessage
from preprocess.chat import ChatTemplate
from tests.support.small_tokenizer import CHAT_TEMPLATE

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
MESSAGES = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "What is <b>this</b>?\n"),
    ChatMessage("assistant", "A tag."),
    ChatMessage("user", "  And é?  "),
]
TEMPLATES = {
    "chatml": CHAT_TEMPLATE,
    "special tokens": (
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    ),
    "blocks": """{%- for message in messages %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {% generation %}
[{{ loop.index0 }}] {{ message['content'] | trim }}
    {% endgeneration %}
{%- endfor %}
""",
    "namespace": (
        "{% set ns = namespace(system='', n=0) %}{% for m in messages %}{% if m.role == 'system' %}"
        "{% set ns.system = m.content %}{% endif %}{% set ns.n = ns.n + 1 %}"
        "{% if ns.n > 2 %}{% break %}{% endif %}{% endfor %}{{ ns.system }}{{ ns.n }}"
    ),
    "json": "{{ messages | tojson }}{{ dict(a=1, b='é<') | tojson(indent=2) }}",
    "absent": "{% if tools is none and documents is not defined %}x{% endif %}{{ missing }}",
    "date": "{{ strftime_now('%d %b %Y') }}{{ add_generation_prompt }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_renders_as_transformers_does(name: str) -> None:
    """The same names, filters, white space and tags give the same prompt."""
    template = ChatTemplate(TEMPLATES[name], TOKENS)

    ours = template.render(MESSAGES, datetime.now().astimezone())

    conversation = [{"role": item.role, "content": item.content} for item in MESSAGES]
    arguments: dict[str, Any] = {"add_generation_prompt": True} | TOKENS
    theirs: Any = render_jinja_template([conversation], chat_template=TEMPLATES[name], **arguments)[
        0
    ]
    assert [ours] == theirs
