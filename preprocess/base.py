"""What preparation needs of a tokenizer, and what it says about a document.

Decides the vocabulary only. May import docmill.wire and numpy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from docmill.report import Report
from docmill.wire import Failure, Header, Outcome, Prepared, Spec

Tokens = NDArray[np.uint32]
#: [T, 2]: where each token's text starts and ends, in characters.
Offsets = NDArray[np.uint32]


def pack(tokens: Tokens) -> bytes:
    """Return tokens as they travel: little-endian uint32."""
    return tokens.astype("<u4", copy=False).tobytes()


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as a chat template sees it."""

    role: str
    content: str


class Tokenizer(Protocol):
    """Turns text into a model's tokens, and knows the model's chat template."""

    def encode_documents(self, texts: Sequence[str]) -> list[Tokens | None]:
        """Return the tokens of plain texts: never a control token, whatever the texts spell out.

        None stands for a text that this tokenizer cannot express. The texts hold no surrogates.
        """
        ...

    def locate(self, text: str, tokens: Tokens) -> Offsets:
        """Return which characters each token stands for.

        A character may belong to several tokens, as one of several bytes does.

        Args:
            text: A text.
            tokens: What `encode_documents` returned for it.
        """
        ...

    def fewest_tokens(self, text: str) -> int:
        """Return a number of tokens that the text has at least; made without tokenising it."""
        ...

    def encode_piece(
        self, text: str, *, is_template: bool, precedes_document: bool
    ) -> Tokens | None:
        """Return the tokens of a piece of what stands around a document.

        None stands for a text that this tokenizer cannot express.

        Args:
            text: The piece, without surrogates.
            is_template: Written by the model's template: control tokens count as such.
            precedes_document: The document follows at once: tokenised as in front of a word.
        """
        ...

    def render_chat(self, messages: Sequence[ChatMessage], moment: datetime) -> str | None:
        """Return the messages in the model's chat format, up to where the answer begins.

        None for a model without a chat template.

        Raises:
            TemplateRefusal: The template does not take these messages.
        """
        ...

    def start_tokens(self) -> Tokens:
        """Return what a prompt without a chat template begins with; often nothing."""
        ...

    def spells_control_token(self, text: str) -> bool:
        """Whether the text spells out a control token of this model."""
        ...


class TemplateRefusal(Exception):
    """The model's chat template does not take these messages; says why."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One document with who asked (`header`) and what is asked (`spec`, whose digest it names).

    `answers` are the result bodies of a document's parts, in order: now they are to be combined,
    for the `rounds`-th time.
    """

    header: Header
    spec: Spec
    document: bytes
    answers: tuple[bytes, ...] = ()
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """The document can go to an engine; `report` says what was noticed and done, if anything."""

    prepared: Prepared
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Divided:
    """The document is answered in parts, each asked `spec`; then their answers are combined.

    `document_len` counts the document's tokens; 0 for answers that are combined in groups.
    """

    spec: Spec
    parts: tuple[str, ...]
    report: Report | None = None
    document_len: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The document gets no answer, and why; its neighbours are not affected."""

    failure: Failure
    outcome: Outcome = "failed"
    report: Report | None = None


Verdict = Ready | Divided | Refused
