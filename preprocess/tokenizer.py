"""The tokenizer of a model directory, without torch and without transformers.

Decides which of a model's tokens are control tokens, and that plain text can never produce one.
Reads the directory when it is made and does no I/O afterwards. May import tokenizers and numpy.
"""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from docmill.errors import ConfigError
from preprocess.base import ChatMessage, Offsets, TemplateRefusal, Tokens
from preprocess.chat import ChatTemplate
from preprocess.token_bytes import TokenBytes, is_byte_level
from preprocess.windows import windows

#: A letter that is a token of its own: stands in for the beginning of a document.
_PROBE = "A"
#: Characters of one text that the library gets in one call, and in how many windows.
_MAX_AT_ONCE, _WINDOWS_AT_ONCE = 1024 * 1024, 8
_SPECIAL_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class ModelTokenizer:
    """A model's `tokenizer.json` with its chat template. One thread at a time; batches use more.

    A control token is one the file calls special, or an added one that the chat template writes
    (some models add `<think>` or `<tool_call>` without calling them special).

    Raises:
        ConfigError: A file is missing or cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        fields = _read_json(directory / "tokenizer.json")
        config = _read_json(directory / "tokenizer_config.json")
        self.chat = _chat_template(directory, config)
        controls = _mark_controls(fields, self.chat.source if self.chat else "")
        self.control_ids = frozenset(controls.values())
        # (?!) finds nothing
        self._control_pattern = re.compile(_pattern_of(controls) if controls else "(?!)")
        # two instances: whether spelled-out control tokens count is a switch of the whole tokenizer
        self._for_templates = _load(fields, directory)
        self._for_text = _load(fields, directory)
        self._for_text.encode_special_tokens = True
        self._token_bytes = TokenBytes(self._for_text) if is_byte_level(fields) else None
        self._normalises = fields.get("normalizer") is not None

    def encode_documents(self, texts: Sequence[str]) -> list[Tokens | None]:
        """Return the tokens of plain texts; see `preprocess.base.Tokenizer`.

        Cost: some 0.3 µs a byte, spread over RAYON_NUM_THREADS threads, without the GIL.
        """
        if self._token_bytes and any(len(text) > _MAX_AT_ONCE for text in texts):
            return [self._encode_long(text) for text in texts]
        return self._encode_all(texts)

    def _encode_long(self, text: str) -> Tokens | None:
        """Return the tokens of a text by windows: all at once would take some 120 bytes a byte."""
        pieces: list[Tokens] = []
        todo = list(windows(text, _MAX_AT_ONCE // _WINDOWS_AT_ONCE))
        for first in range(0, len(todo), _WINDOWS_AT_ONCE):
            for tokens in self._encode_all(todo[first : first + _WINDOWS_AT_ONCE]):
                if tokens is None:
                    return None
                pieces.append(tokens)
        return np.concatenate(pieces)

    def _encode_all(self, texts: Sequence[str]) -> list[Tokens | None]:
        try:
            encodings = self._for_text.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception:  # noqa: BLE001 - it raises bare Exceptions, for the whole batch at once
            return [_encode(self._for_text, text) for text in texts]
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def locate(self, text: str, tokens: Tokens) -> Offsets:
        """Return which characters each token stands for; see `preprocess.base.Tokenizer`.

        Cost: some 50 ns a byte for a byte-level vocabulary; else the text is tokenised once more.
        """
        offsets = self._token_bytes.locate(text, tokens) if self._token_bytes else None
        if offsets is None:
            encoding = self._for_text.encode(text, add_special_tokens=False)
            offsets = np.array(encoding.offsets, dtype=np.uint32).reshape(-1, 2)
            assert len(offsets) == len(tokens)  # `encode_batch_fast` leaves out offsets alone
        return offsets

    def fewest_tokens(self, text: str) -> int:
        """Return a lower bound: no token is longer than the longest. 1 where none is known."""
        if self._token_bytes is None or self._normalises:
            return 1
        return -(-len(text.encode()) // self._token_bytes.longest)

    def encode_piece(
        self, text: str, *, is_template: bool, precedes_document: bool
    ) -> Tokens | None:
        """Return the tokens of a piece around a document; see `preprocess.base.Tokenizer`."""
        tokenizer = self._for_templates if is_template else self._for_text
        if precedes_document:
            tokens = _encode(tokenizer, text + _PROBE)
            if tokens is not None and tokenizer.id_to_token(int(tokens[-1])) == _PROBE:
                return tokens[:-1]
        # else the piece's last token would reach into the document, as a space does
        return _encode(tokenizer, text)

    def render_chat(self, messages: Sequence[ChatMessage], moment: datetime) -> str | None:
        """Return the messages in the model's chat format; None for a model without one."""
        return self.chat.render(messages, moment) if self.chat else None

    def start_tokens(self) -> Tokens:
        """Return what the tokenizer itself puts in front of a text."""
        plain = self._for_templates.encode("a", add_special_tokens=False).ids
        whole = self._for_templates.encode("a", add_special_tokens=True).ids
        at = whole.index(plain[0]) if plain and plain[0] in whole else 0
        return np.array(whole[:at], dtype=np.uint32)

    def spells_control_token(self, text: str) -> bool:
        """Whether the text spells out a control token of this model."""
        return self._control_pattern.search(text) is not None


def _encode(tokenizer: tokenizers.Tokenizer, text: str) -> Tokens | None:
    try:
        encoding = tokenizer.encode(text, add_special_tokens=False)
    except Exception:  # noqa: BLE001 - a vocabulary that lacks an unknown token raises a bare one
        return None
    return np.array(encoding.ids, dtype=np.uint32)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the model's {path.name}: {path}: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"the model's {path.name} is not a JSON object: {path}")
    return fields


def _load(fields: dict[str, Any], directory: Path) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(fields))
    except Exception as error:  # it raises bare Exceptions
        raise ConfigError(f"the model's tokenizer.json cannot be used: {error}") from error
    # a file may carry the cutting and padding of somebody's training run
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _mark_controls(fields: dict[str, Any], template: str) -> dict[str, int]:
    """Call every control token special, in place, and return them all with their ids."""
    controls = {}
    for token in fields.get("added_tokens") or ():
        content = token["content"]
        if token.get("special") or (content.strip() and content in template):
            token["special"] = True
            controls[content] = token["id"]
    return controls


def _pattern_of(words: Iterable[str]) -> str:
    """Return a pattern that finds any of the words, branching by letter.

    Some models have thousands of control tokens, which one by one would cost milliseconds at every
    `<` of a page of markup.
    """
    endings: dict[str, list[str]] = {}
    for word in words:
        if not word:
            return ""  # a shorter word ends here, which is enough to know
        endings.setdefault(word[0], []).append(word[1:])
    branches = [re.escape(letter) + _pattern_of(rest) for letter, rest in endings.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _chat_template(directory: Path, config: dict[str, Any]) -> ChatTemplate | None:
    file = directory / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(source, list):  # several named ones, as older models have them
        source = {item["name"]: item["template"] for item in source}.get("default")
    if not source:
        return None
    try:
        return ChatTemplate(source, _special_tokens(config))
    except TemplateRefusal as error:
        raise ConfigError(f"{directory}: {error}") from error


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    tokens = {}
    for role in _SPECIAL_ROLES:
        value = config.get(f"{role}_token")
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            tokens[f"{role}_token"] = content
    return tokens
