"""Long documents on which other projects lost their template, their counts or their settings."""

from typing import Any, get_args

import pytest

from docmill.wire import Header, Message, Prepared, Spec
from preprocess.base import Ready, Submission
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from preprocess.tokenizer import ModelTokenizer
from preprocess.truncate import Policy
from tests.support.cases import documents
from tests.support.small_tokenizer import decode

CONTEXT_LEN = 2048
DOCUMENTS = documents("t01_very_long.jsonl")
CUTTING = tuple(policy for policy in get_args(Policy) if policy != "refuse")
CHAT = (Message(role="user", content=(None, "\n\nWhich valves?")),)
WITH_SYSTEM = (Message(role="system", content=("Be brief.",)), *CHAT)
FEW_SHOT = (
    Message(role="user", content=("A log.",)),
    Message(role="assistant", content=("No valve.",)),
    *CHAT,
)


def _ready(tokenizer: ModelTokenizer, document: bytes, **fields: Any) -> Ready:
    preprocessor = Preprocessor(
        tokenizer, Served("small", "v1", CONTEXT_LEN, 1_000_000), clock=lambda: 0.0
    )
    spec = Spec(**({"messages": CHAT, "max_tokens": 16} | fields))
    header = Header(request_id="r", job_id="j", custom_id="c", spec=spec.digest(), submitted_at=1.0)
    (verdict,) = preprocessor.prepare([Submission(header, spec, document)], 1_796_000_000.0)
    assert isinstance(verdict, Ready), verdict
    return verdict


def _around(prepared: Prepared) -> tuple[str, str]:
    """Return the prompt's text in front of the document and behind it."""
    tokens = memoryview(prepared.tokens).cast("I").tolist()
    behind = prepared.prefix_len + prepared.document_len
    return decode(tokens[: prepared.prefix_len]), decode(tokens[behind:])


@pytest.mark.parametrize("policy", CUTTING)
def test_a_cut_leaves_the_template_whole(tokenizer: ModelTokenizer, policy: Policy) -> None:
    """Only document tokens are missing, and the result says how many and by which policy."""
    whole = _ready(tokenizer, DOCUMENTS["short"], truncate=policy)
    cut = _ready(tokenizer, DOCUMENTS["long-20k"], truncate=policy)

    assert whole.report is None
    assert _around(whole.prepared) == _around(cut.prepared)
    assert _around(cut.prepared)[1].endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert cut.report is not None
    assert cut.report.truncation is not None
    tokens = tokenizer.encode_documents([DOCUMENTS["long-20k"].decode()])[0]
    assert tokens is not None
    assert (policy, len(tokens), cut.prepared.document_len) == (
        cut.report.truncation.policy,
        cut.report.truncation.original_tokens,
        cut.report.truncation.kept_tokens,
    )
    assert cut.prepared.prompt_len + cut.prepared.max_tokens <= CONTEXT_LEN
    assert cut.prepared.document_len > 0.9 * (CONTEXT_LEN - 100)


@pytest.mark.parametrize("policy", CUTTING)
@pytest.mark.parametrize("is_chat", [True, False])
def test_preparation_and_engine_count_alike(
    tokenizer: ModelTokenizer, bare_tokenizer: ModelTokenizer, policy: Policy, is_chat: bool
) -> None:
    """With L-1 and L tokens nothing is cut, with L+1 as little as the policy can."""
    subject = tokenizer if is_chat else bare_tokenizer
    around = _ready(subject, b"!").prepared.prompt_len - 1
    limit = CONTEXT_LEN - around - 16

    kept = []
    for num_tokens in (limit - 1, limit, limit + 1):
        ready = _ready(subject, b"!" * num_tokens, truncate=policy)
        assert ready.prepared.prompt_len == around + ready.prepared.document_len
        kept.append(ready.prepared.document_len)

    assert [limit - 1, limit] == kept[:2]
    # whole sentences may leave a few tokens unused
    assert limit >= kept[2] >= (0.98 * limit if policy == "key_information" else limit)


@pytest.mark.parametrize("policy", CUTTING)
@pytest.mark.parametrize("messages", [CHAT, WITH_SYSTEM, FEW_SHOT])
@pytest.mark.parametrize("is_chat", [True, False])
def test_every_kind_of_request_honours_the_limit(
    tokenizer: ModelTokenizer,
    bare_tokenizer: ModelTokenizer,
    messages: tuple[Message, ...],
    policy: Policy,
    is_chat: bool,
) -> None:
    """64 tokens of the document are 64 tokens of it, plain or in a chat, and alike."""
    subject = tokenizer if is_chat else bare_tokenizer
    asked = {"truncate": policy, "max_document_tokens": 64}

    ready = _ready(subject, DOCUMENTS["long-20k"], messages=messages, **asked)

    assert 32 <= ready.prepared.document_len <= 64
    if policy in ("head", "tail", "middle"):
        assert 64 == ready.prepared.document_len
