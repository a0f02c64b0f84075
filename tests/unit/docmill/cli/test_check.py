"""What `docmill check` says of a document, and of all of them."""

from typing import Any

from docmill.cli.check import Summary, describe

CUT = {"policy": "semantic", "original_tokens": 900, "kept_tokens": 640, "dropped": [[70, 99]]}
NEAR = {"custom_id": "a", "job_id": "j", "similarity": 0.934, "is_reused": True}
FOUND = {"rule": "bidi_controls", "action": "repair", "count": 2, "at": 7}


def _row(verdict: str, **more: Any) -> dict[str, Any]:
    row = {"custom_id": "b", "characters": 5000, "tokens": 900, "verdict": verdict}
    return {**row, **more}


def _refused(custom_id: str, message: str) -> dict[str, Any]:
    error = {"code": "bad_line", "message": message}
    return {"custom_id": custom_id, "verdict": "refused", "error": error}


def test_each_fate_is_told_with_its_reason() -> None:
    """What is cut, split, shared or refused is told in the document's own line."""
    rows = [
        _row("ready"),
        _row("ready", near={**NEAR, "is_reused": False}),
        _row("truncated", truncation=CUT, findings=[FOUND]),
        _row("split", parts=3),
        _row("duplicate", same_as="a"),
        _row("near_duplicate", near=NEAR),
        _refused("f:3", "f:3: not JSON"),
    ]

    assert [
        "ready",
        "ready; like a (0.93)",
        "truncated; semantic keeps 640 tokens; bidi_controls repaired (2, first at character 7)",
        "split into 3 parts",
        "duplicate of a",
        "near duplicate of a (0.93)",
        "refused: bad_line: not JSON",
    ] == [describe(row)[63:] for row in rows]
    assert ["b", "5,000", "900"] == describe(rows[0]).split()[:3]


def test_the_summary_counts_what_matters() -> None:
    """Documents by fate, tokens by what becomes of them, findings by rule, errors by code."""
    summary = Summary()
    for row in (
        _row("ready", near={**NEAR, "is_reused": False}),
        _row("truncated", truncation=CUT, findings=[FOUND]),
        _row("duplicate", same_as="a", findings=[FOUND, FOUND | {"rule": "mojibake"}]),
        _row("near_duplicate", near=NEAR),
        _refused("f:3", "f:3: not JSON"),
        _refused("f:4", "f:4: cut off"),
    ):
        summary.add(row)

    assert [
        "documents   1 ready, 1 truncated, 1 duplicate, 1 near duplicate, 2 refused",
        "tokens      1,540 of documents to compute, 260 cut off, 1,800 saved by duplicates",
        "flagged     2 documents: bidi_controls 2, mojibake 1",
        "alike       1 document almost equal to another, answered all the same",
        "2 x bad_line, first: f:3: not JSON",
    ] == summary.lines()


def test_nothing_is_told_of_nothing() -> None:
    """A summary without findings, likenesses and errors has no lines about them."""
    assert ["documents", "tokens"] == [line.split()[0] for line in Summary().lines()]
