"""When two answers are the same, and when they must not be."""

import re
from typing import Any

import pytest

from docmill.report import Truncation
from docmill.wire import Message, Spec
from preprocess.fingerprint import Fingerprints


def _fingerprint(
    tokens: bytes = b"abcd",
    truncation: Truncation | None = None,
    warnings: tuple[str, ...] = (),
    model_version: str = "v1",
    **fields: Any,
) -> str:
    spec = Spec(messages=(Message(role="user", content=(None,)),), **fields)
    return Fingerprints(spec, model_version).of(tokens, truncation, warnings)


def test_it_is_32_hex_digits_and_stable() -> None:
    """The same request has the same fingerprint in every process and on every day."""
    assert re.fullmatch("[0-9a-f]{32}", _fingerprint())
    assert "9793c107b334f6acccafe8c47eaeada9" == _fingerprint()


CHANGES: list[dict[str, Any]] = [
    {"tokens": b"abce"},
    {"tokens": b"abcdabcd"},
    {"model_version": "v2"},
    {"max_tokens": 17},
    {"stop": ("\n",)},
    {"stop": ("a", "b")},
    {"stop": ("ab",)},
    {"temperature": 0.5, "seed": 1},
    {"temperature": 0.5, "seed": 2},
    {"temperature": 0.5, "seed": 1, "top_p": 0.5},
    {"truncation": Truncation(policy="head", original_tokens=9, kept_tokens=1)},
    {"truncation": Truncation(policy="head", original_tokens=8, kept_tokens=1)},
    {"warnings": ("control_characters",)},
]


def test_whatever_changes_the_answer_changes_it() -> None:
    """Prompt, model, sampling, stops, and what is reported with the answer: all of them count."""
    fingerprints = [_fingerprint(), *(_fingerprint(**change) for change in CHANGES)]

    assert len(CHANGES) + 1 == len(set(fingerprints))


@pytest.mark.parametrize("change", [{"seed": 7}, {"top_p": 0.5}, {"model": "named"}])
def test_what_a_greedy_answer_does_not_depend_on_does_not_count(change: dict[str, Any]) -> None:
    """Without temperature neither seed nor top_p matters, and the model counts by its version."""
    assert _fingerprint() == _fingerprint(**change)


def test_fresh_samples_are_never_shared() -> None:
    """Sampling without a seed has no fingerprint."""
    assert "" == _fingerprint(temperature=0.7)
