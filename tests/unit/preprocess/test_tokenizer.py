"""A model directory's tokenizer, and what plain text can never produce."""

import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from docmill.errors import ConfigError
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.tokenizer import ModelTokenizer
from tests.support.cases import documents
from tests.support.cpu_time import cpu_seconds
from tests.support.small_tokenizer import (
    CONTROL_TOKENS,
    HARMLESS_TOKEN,
    THINK_TOKEN,
    build_tokenizer,
    decode,
    write_tokenizer,
)


def _encode(tokenizer: ModelTokenizer, text: str) -> list[int]:
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None
    return [int(token) for token in tokens]


def test_control_tokens_spelled_out_stay_text(tokenizer: ModelTokenizer) -> None:
    """No document of the case file makes a control id, and every text survives."""
    for custom_id, document in documents("v01_special_tokens.jsonl").items():
        tokens = _encode(tokenizer, document.decode())

        assert tokenizer.control_ids.isdisjoint(tokens), custom_id
        assert document.decode() == decode(tokens)


def test_tokens_the_template_writes_are_controls_too(tokenizer: ModelTokenizer) -> None:
    """Some models do not call their thinking marks special; text must not forge them either."""
    think = build_tokenizer().token_to_id(THINK_TOKEN)

    assert think in tokenizer.control_ids
    assert think not in _encode(tokenizer, f"a {THINK_TOKEN} b")


def test_other_added_tokens_stay_what_they_are(tokenizer: ModelTokenizer) -> None:
    """Added tokens for ordinary text, such as markup, are used: the model was trained with them."""
    assert build_tokenizer().token_to_id(HARMLESS_TOKEN) in _encode(tokenizer, HARMLESS_TOKEN)


def test_template_text_has_its_control_tokens(tokenizer: ModelTokenizer) -> None:
    """The template's own text is encoded with control tokens."""
    tokens = tokenizer.encode_piece("<|im_start|>", is_template=True, precedes_document=False)

    assert tokens is not None
    assert [1] == tokens.tolist()


def test_what_spells_control_tokens_is_noticed(tokenizer: ModelTokenizer) -> None:
    """The warning needs to know, also for a token inside other text."""
    assert all(tokenizer.spells_control_token(f"a{token}b") for token in CONTROL_TOKENS)
    assert not tokenizer.spells_control_token("im_start <| > [INST]")


def test_thousands_of_control_tokens_cost_no_more(tmp_path: Path) -> None:
    """Markup is searched in a moment, however many control tokens the model has."""
    write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    fields = json.loads(path.read_text())
    added = fields["added_tokens"]
    template = added[0]
    added += [template | {"id": 1000 + i, "content": f"<unused{i}>"} for i in range(6000)]
    path.write_text(json.dumps(fields))
    tokenizer = ModelTokenizer(tmp_path)
    markup = "<p>text</p><unuse" * 20_000
    started = time.monotonic()

    assert not tokenizer.spells_control_token(markup)
    assert tokenizer.spells_control_token(markup + "d5999>")
    assert time.monotonic() - started < 2.0


def test_a_file_s_own_truncation_and_padding_are_ignored(tokenizer: ModelTokenizer) -> None:
    """Lengths are the text's, whatever cutting or padding the file carries."""
    short, long = tokenizer.encode_documents(["a", "word " * 100])
    assert short is not None
    assert long is not None

    assert (1, True) == (len(short), len(long) > 100)


def test_a_text_that_cannot_be_expressed_harms_no_neighbour(tokenizer: ModelTokenizer) -> None:
    """The library fails a whole batch for one text; here only that text has no tokens."""
    outcomes = tokenizer.encode_documents(["good", "lone \ud800 surrogate", "good"])

    assert [False, True, False] == [tokens is None for tokens in outcomes]


def test_long_runs_take_linear_time(tokenizer: ModelTokenizer) -> None:
    """300,000 equal characters take no more than a moment; see the suite's time limit."""
    for run in ("a", " ", "\n", "あ", "<|", "a."):
        assert _encode(tokenizer, run * (300_000 // len(run)))


def test_rows_of_repeated_characters_take_a_moment(tokenizer: ModelTokenizer) -> None:
    """Each row of the case file costs at most ten times what prose of its length does."""
    rows = documents("v07_repeated_runs.jsonl")
    prose = _seconds(tokenizer, "The pump house log lists three valves. " * 1000) / 39_000

    for custom_id, document in rows.items():
        text = document.decode()
        assert _seconds(tokenizer, text) < 10 * prose * len(text) + 0.05, custom_id


@pytest.mark.parametrize("character", ["a", "^", "_", " ", "\n", "="])
def test_a_million_equal_characters_take_less_than_two_seconds(
    tokenizer: ModelTokenizer, character: str
) -> None:
    """No run without a break takes time above what its length explains."""
    assert _seconds(tokenizer, character * 1_000_000) < 2.0


def _seconds(tokenizer: ModelTokenizer, text: str) -> float:
    def encode() -> None:
        assert _encode(tokenizer, text)

    return cpu_seconds(encode, runs=1)


@given(text=st.text(max_size=200))
def test_tokens_are_located_by_their_bytes(tokenizer: ModelTokenizer, text: str) -> None:
    """The sum of token lengths says what the library says after tokenising once more."""
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None

    encoding = _plain_tokenizer().encode(text, add_special_tokens=False)

    assert encoding.offsets == [tuple(pair) for pair in tokenizer.locate(text, tokens).tolist()]


@cache
def _plain_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_str(build_tokenizer().to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


@given(text=st.text(alphabet="aA é\u0301b日本語 \n", max_size=40))
def test_other_vocabularies_are_located_by_the_library(tmp_path_factory: Any, text: str) -> None:
    """Where letters are folded, tokens do not spell the text; each still has its characters."""
    tokenizer = _folding_tokenizer(tmp_path_factory.getbasetemp())
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None

    offsets = tokenizer.locate(text, tokens)

    assert (len(tokens), 2) == offsets.shape
    assert 1 == tokenizer.fewest_tokens(text * 1000)
    assert all(0 <= start <= end <= len(text) for start, end in offsets.tolist())


@cache
def _folding_tokenizer(directory: Path) -> ModelTokenizer:
    """Return a byte-level tokenizer that folds case and strips accents first."""
    directory = directory / "folding"
    directory.mkdir()
    write_tokenizer(directory)
    fields = json.loads((directory / "tokenizer.json").read_text())
    steps: list[dict[str, Any]] = [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]
    fields["normalizer"] = {"type": "Sequence", "normalizers": steps}
    (directory / "tokenizer.json").write_text(json.dumps(fields))
    return ModelTokenizer(directory)


def test_a_template_file_wins_over_the_configuration(tmp_path: Path) -> None:
    """Newer models keep their template in a file of its own."""
    write_tokenizer(tmp_path, chat_template="old")
    (tmp_path / "chat_template.jinja").write_text("new")

    chat = ModelTokenizer(tmp_path).chat

    assert chat is not None
    assert "new" == chat.source


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_missing_or_broken_files_are_named(tmp_path: Path, name: str, content: str | None) -> None:
    """The message names the file, in one line."""
    write_tokenizer(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)

    with pytest.raises(ConfigError, match=name) as caught:
        ModelTokenizer(tmp_path)
    assert "\n" not in caught.value.message


def test_it_needs_neither_torch_nor_transformers() -> None:
    """Preparing documents starts fast and small."""
    code = (
        "import sys, preprocess.pipeline, preprocess.tokenizer, preprocess.fake_tokenizer;"
        "assert not {'torch', 'transformers', 'redis'} & set(sys.modules)"
    )
    root = Path(__file__).parents[3]

    assert 0 == subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode


@given(text=st.text(max_size=200))
def test_any_text_survives_without_control_tokens(tokenizer: ModelTokenizer, text: str) -> None:
    """Byte-level tokens hold every text exactly, and none of them is a control token."""
    tokens = _encode(tokenizer, text)

    assert text == decode(tokens)
    assert tokenizer.control_ids.isdisjoint(tokens)


@given(text=st.text(max_size=200))
def test_the_fake_tokenizer_holds_the_bytes(text: str) -> None:
    """Four bytes are one token, padded with zeros."""
    tokens = FakeTokenizer().encode_documents([text])[0]
    data = text.encode()

    assert tokens is not None
    assert data + bytes(-len(data) % 4) == tokens.tobytes()
