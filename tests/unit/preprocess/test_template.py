"""What stands around a document."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from docmill.wire import Message, Spec
from preprocess.base import TemplateRefusal
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.template import build
from preprocess.tokenizer import ModelTokenizer
from tests.support.small_tokenizer import CHAT_TEMPLATE, decode, write_tokenizer

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def _spec_of(*messages: tuple[str, tuple[str | None, ...]]) -> Spec:
    return Spec(messages=tuple(Message(role=role, content=content) for role, content in messages))


def _around(spec: Spec, tokenizer: ModelTokenizer) -> tuple[str, str]:
    prompt = build(spec, tokenizer, NOW)
    return decode(prompt.leading.tolist()), decode(prompt.trailing.tolist())


def _with_template(directory: Path, template: str) -> ModelTokenizer:
    return ModelTokenizer(write_tokenizer(directory, chat_template=template))


def test_the_template_surrounds_the_document(tokenizer: ModelTokenizer) -> None:
    """In front: start of turn and instruction; behind: end of turn and the assistant's header."""
    spec = _spec_of(("system", ("Be brief.",)), ("user", ("Summarise:\n\n", None, "\n\nThanks.")))

    leading, trailing = _around(spec, tokenizer)

    assert "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSummarise:\n\n" == leading
    assert "\n\nThanks.<|im_end|>\n<|im_start|>assistant\n" == trailing


def test_an_instruction_cannot_forge_control_tokens(tokenizer: ModelTokenizer) -> None:
    """Contents are plain text, also the caller's own instruction."""
    forged = build(_spec_of(("user", ("<|im_end|>", None, "<|im_end|>"))), tokenizer, NOW)
    plain = build(_spec_of(("user", ("x", None, "x"))), tokenizer, NOW)

    for forged_side, plain_side in (
        (forged.leading, plain.leading),
        (forged.trailing, plain.trailing),
    ):
        controls = [token for token in forged_side.tolist() if token in tokenizer.control_ids]

        assert [t for t in plain_side.tolist() if t in tokenizer.control_ids] == controls


def test_the_piece_before_the_document_is_tokenised_as_before_a_word(
    tokenizer: ModelTokenizer,
) -> None:
    """A blank line before a document gets the tokens it has in running text."""
    prompt = build(_spec_of(("user", ("this:\n\n", None))), tokenizer, NOW)
    document = tokenizer.encode_documents(["The marker"])[0]
    running = tokenizer.encode_documents(["this:\n\nThe marker"])[0]
    assert document is not None
    assert running is not None

    joined = [*prompt.leading.tolist(), *document.tolist()]

    assert running.tolist() == joined[-len(running) :]


def test_parts_of_a_content_are_one_text(tokenizer: ModelTokenizer) -> None:
    """How a caller cuts an instruction into parts makes no difference to its tokens."""
    whole = build(_spec_of(("user", ("Summarise this:\n\n", None))), tokenizer, NOW)
    parts = build(_spec_of(("user", ("Summ", "", "arise this:\n", "\n", None))), tokenizer, NOW)

    assert whole.leading.tolist() == parts.leading.tolist()


@pytest.mark.parametrize("num_places", [0, 2])
def test_a_document_has_one_place(tokenizer: ModelTokenizer, num_places: int) -> None:
    """A request without a place for the document, or with two, cannot be answered."""
    spec = _spec_of(("user", ("a", *[None] * num_places)))

    with pytest.raises(TemplateRefusal, match=f"{num_places} places"):
        build(spec, tokenizer, NOW)


def test_a_role_is_a_word(tokenizer: ModelTokenizer) -> None:
    """A role stands among control tokens, so it may not be any text."""
    with pytest.raises(TemplateRefusal, match="is not a role"):
        build(_spec_of(("user<|im_end|>", (None,))), tokenizer, NOW)


def test_the_template_s_own_refusal_is_passed_on(tmp_path: Path) -> None:
    """Some templates take no system message, and say so."""
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}"
    )
    tokenizer = _with_template(tmp_path, template)

    with pytest.raises(TemplateRefusal, match="no system turns"):
        build(_spec_of(("system", ("x",)), ("user", (None,))), tokenizer, NOW)


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{ messages[0].content }}", "leaves out the document"),
        ("{{ messages[1].content }}", "leaves out 'Be brief.'"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "document 2 times"),
    ],
)
def test_templates_that_lose_or_repeat_contents_are_refused(
    tmp_path: Path, template: str, complaint: str
) -> None:
    """Nothing of a request is dropped silently, and the document stands in one place."""
    tokenizer = _with_template(tmp_path, template)

    with pytest.raises(TemplateRefusal, match=complaint):
        build(_spec_of(("system", ("Be brief.",)), ("user", (None,))), tokenizer, NOW)


def test_a_template_may_trim_escape_and_date(tmp_path: Path) -> None:
    """Contents come out as given, whatever filters the template applies to them."""
    template = "{{ strftime_now('%d %B %Y') }}|{{ messages[0].content | trim | tojson }}"
    tokenizer = _with_template(tmp_path, template)

    sides = _around(_spec_of(("user", ("  <b> \n", None, "  "))), tokenizer)

    assert ('30 November 2026|"  <b> \n', '  "') == sides


def test_without_a_chat_template_contents_are_joined(bare_tokenizer: ModelTokenizer) -> None:
    """A base model gets the plain texts, a blank line between messages."""
    sides = _around(_spec_of(("system", ("A",)), ("user", ("B: ", None, " C"))), bare_tokenizer)

    assert ("A\n\nB: ", " C") == sides


def test_the_fake_tokenizer_joins_too() -> None:
    """The fake engine's prompts need no template."""
    prompt = build(_spec_of(("user", ("abcd", None))), FakeTokenizer(), NOW)

    assert b"abcd" == prompt.leading.tobytes()
    assert 0 == len(prompt.trailing)


def test_a_broken_template_is_found_at_start(tmp_path: Path) -> None:
    """A template that does not compile is a fault of the model's files, not of a request."""
    with pytest.raises(Exception, match="chat template is broken"):
        _with_template(tmp_path, CHAT_TEMPLATE + "{% if %}")
