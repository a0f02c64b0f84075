"""Which documents of a request get one answer, from bytes to fingerprint."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from docmill.wire import Header, Message, Spec
from preprocess.base import Ready, Submission, Verdict
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from preprocess.tokenizer import ModelTokenizer
from tests.support.cases import documents
from tests.support.near_pairs import pairs
from tests.support.small_tokenizer import decode

SPEC = {"messages": (Message(role="user", content=("Summarise:\n\n", None)),), "max_tokens": 16}


@pytest.fixture
def preprocessor(tokenizer: ModelTokenizer) -> Preprocessor:
    """One that has seen nothing yet."""
    return Preprocessor(tokenizer, Served("small", "v1", 8192, 1_000_000), clock=lambda: 0.0)


def _prepare(
    preprocessor: Preprocessor, texts: Iterable[tuple[str, bytes]], tenant: str = "", **fields: Any
) -> dict[str, Verdict]:
    """Return the verdicts on these documents, by custom id."""
    spec = Spec(**(SPEC | fields))
    batch = []
    for custom_id, text in texts:
        ids = {"request_id": custom_id, "job_id": "job", "custom_id": custom_id}
        header = Header(spec=spec.digest(), submitted_at=1.0, tenant=tenant, **ids)
        batch.append(Submission(header, spec, text))
    verdicts = preprocessor.prepare(batch, 1_796_000_000.0)
    return {item.header.custom_id: one for item, one in zip(batch, verdicts, strict=True)}


def _groups(verdicts: dict[str, Verdict]) -> list[list[str]]:
    """Return the ids of the documents that share a fingerprint, in order."""
    groups: dict[str, list[str]] = {}
    for custom_id, verdict in verdicts.items():
        if isinstance(verdict, Ready):
            groups.setdefault(verdict.prepared.fingerprint, []).append(custom_id)
    return list(groups.values())


@pytest.mark.parametrize(
    "fields", [{"dedup": "exact"}, {"dedup": "text"}, {"dedup": "text", "near_threshold": 0.5}]
)
def test_short_documents_share_only_with_their_copies(
    preprocessor: Preprocessor, fields: dict[str, Any]
) -> None:
    """Of thirteen short documents two repeat another and two are empty, in every mode."""
    verdicts = _prepare(preprocessor, documents("d01_short_documents.jsonl").items(), **fields)

    shared = [group for group in _groups(verdicts) if len(group) > 1]
    assert [["sd-1", "sd-10"], ["sd-4", "sd-11"]] == shared
    refused = [name for name, verdict in verdicts.items() if not isinstance(verdict, Ready)]
    assert ["sd-12", "sd-13"] == refused


def test_spellings_of_a_text_share_where_text_decides(preprocessor: Preprocessor) -> None:
    """Five spellings of one text are one group; by tokens only what reads alike to the model."""
    texts = list(documents("d03_same_after_normalizing.jsonl").items())
    by_text = _groups(_prepare(preprocessor, texts, dedup="text"))
    by_tokens = _groups(_prepare(preprocessor, texts, dedup="exact"))

    same = ["eq-1", "eq-2", "eq-3", "eq-4", "eq-5"]
    assert [same, ["ne-6"], ["ne-7"], ["ne-8"], ["ne-9"], ["ne-10"]] == by_text
    assert ["eq-1", "eq-5"] in by_tokens  # the byte order mark is no part of a text
    assert [] == [group for group in by_tokens if len(group) > 2]


def test_the_model_reads_what_was_submitted(preprocessor: Preprocessor) -> None:
    """What counts as the same is processed as it came."""
    text = "cafe\u0301 report\r\nline two\n\n"
    verdict = _prepare(preprocessor, [("a", text.encode())], dedup="text")["a"]

    assert isinstance(verdict, Ready)
    prepared = verdict.prepared
    ids = np.frombuffer(prepared.tokens, "<u4")[prepared.prefix_len :][: prepared.document_len]
    assert text == decode(ids.tolist())


def test_tenants_share_nothing(preprocessor: Preprocessor) -> None:
    """One text of two tenants has two fingerprints; of one tenant it has one."""
    groups, prints = [], []
    for tenant in ("north", "south"):
        verdicts = _prepare(preprocessor, [("a", b"one"), ("b", b"one")], tenant=tenant)
        groups.append(_groups(verdicts))
        prints += [one.prepared.fingerprint for one in verdicts.values() if isinstance(one, Ready)]

    assert [[["a", "b"]], [["a", "b"]]] == groups
    assert 2 == len(set(prints))


def test_no_pair_that_differs_in_a_fact_shares_an_answer(preprocessor: Preprocessor) -> None:
    """Of every sixth labelled pair, a request with a threshold has one answer only where it may."""
    wrong = []
    for number, pair in enumerate(pairs()[::6]):
        sides = [("left", pair.left.encode()), ("right", pair.right.encode())]
        verdicts = _prepare(
            preprocessor, sides, tenant=str(number), dedup="text", near_threshold=0.6
        )
        if pair.may_reuse != (1 == len(_groups(verdicts))):
            wrong.append(pair.name)

    assert [] == wrong
