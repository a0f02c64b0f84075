"""When two answers are the same, and when they must not be."""

import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from docmill.wire import Message, Spec
from preprocess.canonical import canonical
from preprocess.fingerprint import Fingerprints
from tests.support.cases import rows


def _fingerprint(
    tokens: bytes = b"abcd",
    text: str | None = None,
    *,
    model_version: str = "v1",
    tenant: str = "",
    leading: bytes = b"ab",
    trailing: bytes = b"yz",
    **fields: Any,
) -> str:
    spec = Spec(messages=(Message(role="user", content=(None,)),), **fields)
    return Fingerprints(spec, model_version, tenant, leading, trailing).of(tokens, text)


def test_it_is_32_hex_digits_and_stable() -> None:
    """The same request has the same fingerprint in every process and on every day."""
    assert re.fullmatch("[0-9a-f]{32}", _fingerprint())
    assert "61a2c05d5fb0e59a12d3fe9e9f313c4f" == _fingerprint()
    assert "53ff65db70e46563a7cc5754b73176b3" == _fingerprint(text="a\r\nb", dedup="text")


@pytest.mark.parametrize("seed", ["0", "1"])
def test_no_process_sees_another_one(seed: str) -> None:
    """How a process seeds its hashes has no part in fingerprint and canonical form."""
    program = (
        "from tests.unit.preprocess.test_fingerprint import _fingerprint;"
        "from preprocess.canonical import canonical;"
        "print(_fingerprint(text='e\\u0301\\r\\n', dedup='text', stop=('b', 'a')),"
        " ascii(canonical('e\\u0301\\r\\n')))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        env={"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    here = _fingerprint(text="é", dedup="text", stop=("b", "a"))
    assert f"{here} {canonical('é')!a}\n" == printed


CHANGES: list[dict[str, Any]] = [
    {"tokens": b"abce"},
    {"tokens": b"abcdabcd"},
    {"model_version": "v2"},
    {"tenant": "north"},
    {"tenant": "south"},
    {"leading": b"a", "tokens": b"babcd"},
    {"tokens": b"abcdy", "trailing": b"z"},
    {"leading": b"yz", "trailing": b"ab"},
    {"max_tokens": 17},
    {"stop": ("\n",)},
    {"stop": ("a", "b")},
    {"stop": ("ab",)},
    {"temperature": 0.5, "seed": 1},
    {"temperature": 0.5, "seed": 2},
    {"temperature": 0.5, "seed": 1, "top_p": 0.5},
    {"near_threshold": 0.9},
    {"near_threshold": 0.95},
    {"dedup": "text", "text": "abcd"},
    {"dedup": "text", "text": "abce"},
]


def test_whatever_changes_the_answer_changes_it() -> None:
    """Tenant, prompt, model, sampling and stops: all of them count, and none runs into another."""
    fingerprints = [_fingerprint(), *(_fingerprint(**change) for change in CHANGES)]

    assert len(CHANGES) + 1 == len(set(fingerprints))


@pytest.mark.parametrize("change", [{"seed": 7}, {"top_p": 0.5}, {"model": "named"}])
def test_what_a_greedy_answer_does_not_depend_on_does_not_count(change: dict[str, Any]) -> None:
    """Without temperature neither seed nor top_p matters, and the model counts by its version."""
    assert _fingerprint() == _fingerprint(**change)


@pytest.mark.parametrize("change", [{"temperature": 0.7}, {"dedup": "off"}])
def test_what_must_not_be_shared_has_none(change: dict[str, Any]) -> None:
    """Samples without a seed have no fingerprint, nor has what asks for an answer of its own."""
    assert "" == _fingerprint(**change)


def test_tenants_are_framed() -> None:
    """Tenants and versions that read alike when joined share nothing; one tenant shares."""
    names = [("org_1", "2345"), ("org_12345", ""), ("", "org_12345")]
    prints = [_fingerprint(tenant=tenant, model_version=rest) for tenant, rest in names]

    assert all(one != other for one, other in combinations(prints, 2))
    assert prints[0] == _fingerprint(tenant="org_1", model_version="2345")


def test_equal_text_counts_as_equal_only_where_that_is_asked() -> None:
    """By text, one spelling's tokens share with another's; by tokens they do not."""
    spellings: list[tuple[bytes, str]] = [(b"abcd", "\u00e9\n"), (b"efgh", "e\u0301\r\n")]
    by_text = {_fingerprint(tokens, text, dedup="text") for tokens, text in spellings}
    by_tokens = {_fingerprint(tokens, text, dedup="exact") for tokens, text in spellings}
    cut = {_fingerprint(tokens, None, dedup="text") for tokens, _ in spellings}

    assert (1, 2, 2) == (len(by_text), len(by_tokens), len(cut))


def test_spellings_of_one_text_form_a_group_and_others_stay_apart() -> None:
    """Composition, line ends, a byte order mark and trailing lines do not count; all else does."""
    groups: dict[str, list[str]] = {}
    for row in rows("d03_same_after_normalizing.jsonl"):
        fingerprint = _fingerprint(text=row["text"], dedup="text")
        groups.setdefault(fingerprint, []).append(row["custom_id"])

    same = ["eq-1", "eq-2", "eq-3", "eq-4", "eq-5"]
    assert [same, ["ne-6"], ["ne-7"], ["ne-8"], ["ne-9"], ["ne-10"]] == list(groups.values())
