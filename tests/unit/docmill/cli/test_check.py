"""What `docmill check` says of a document, and of all of them."""

from typing import Any

from docmill.cli.check import Summary, describe
from docmill.cli.summary import Tally

CUT = {"policy": "semantic", "original_tokens": 900, "kept_tokens": 640, "dropped": [[70, 99]]}
NEAR = {"custom_id": "a", "job_id": "j", "similarity": 0.934, "is_reused": True}
FOUND = {"rule": "bidi_controls", "action": "repair", "count": 2, "at": 7}
REJECTED = {"rule": "mojibake", "action": "reject", "count": 1, "at": 0}


def _row(verdict: str, **more: Any) -> dict[str, Any]:
    row = {"custom_id": "b", "characters": 5000, "tokens": 900, "verdict": verdict}
    row["prompt_tokens"] = 930
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
        _row("ready", ignored={"rule": "rules"}),
        _row("split", parts=3, prompt_tokens=1100),
        _row("duplicate", same_as="a"),
        _row("near_duplicate", near=NEAR),
        _refused("f:3", "f:3: not JSON"),
        _refused("f:4", "rule found 1") | {"findings": [REJECTED, FOUND]},
    ]

    assert [
        "ready",
        "ready; almost equal to a (0.93)",
        "truncated; semantic keeps 640 tokens; bidi_controls repaired (2, first at character 7)",
        "ready; its key 'rule' is ignored: is 'rules' meant?",
        "split into 3 parts; prompts of 1,100 tokens in all, and those that combine",
        "duplicate of a",
        "near duplicate of a (0.93)",
        "refused: bad_line: not JSON",
        "refused: bad_line: rule found 1; bidi_controls repaired (2, first at character 7)",
    ] == [describe(row)[63:] for row in rows]
    assert ["b", "5,000", "900"] == describe(rows[0]).split()[:3]


def test_the_summary_counts_what_matters() -> None:
    """Documents by fate, tokens by what becomes of them, findings by rule, errors by code."""
    summary = Summary()
    for row in (
        _row("ready", near={**NEAR, "is_reused": False}),
        _row("truncated", truncation=CUT, findings=[FOUND], prompt_tokens=670),
        _row("duplicate", same_as="a", saved_tokens=930, findings=[FOUND, REJECTED]),
        _row("near_duplicate", near=NEAR, saved_tokens=925),
        _row("split", parts=3, prompt_tokens=1100, saved_tokens=100),
        _refused("f:3", "f:3: not JSON"),
        _refused("f:4", "f:4: cut off"),
    ):
        summary.add(row)

    assert [
        "documents   1 ready, 1 truncated, 1 split, 1 duplicate, 1 near duplicate, 2 refused",
        "tokens      2,600 in, 1,955 saved by repeats, 260 cut; combining the answers to parts "
        "comes on top",
        "repaired    2 documents: bidi_controls 2",
        "rejected    1 document: mojibake 1",
        "alike       1 document almost equal to another, answered by itself",
        "2 x bad_line, first: f:3: not JSON",
    ] == list(summary.lines())
    told = summary.to_dict()
    assert (7, 2, 2, 1) == tuple(
        told[name] for name in ("documents", "refused", "repeats", "near_duplicates")
    )
    assert (2600, 1955, 260) == tuple(
        told[name] for name in ("prompt_tokens", "saved_tokens", "cut_tokens")
    )


def test_what_run_tells_too_has_the_same_name() -> None:
    """A program can compare what was foretold with what came."""
    foretold, came = Summary().to_dict(), Tally().to_dict(1.0, "out.jsonl", 0)

    own = {"documents", "refused", "same_id"}
    assert own | {"skipped_files"} == foretold.keys() - came.keys()  # run looks through for these


def test_ids_that_stand_twice_are_told_as_run_takes_them() -> None:
    """Alone each is an error, but the commands take no such input."""
    summary = Summary()
    summary.add(_refused("b@f:4", "custom_id 'b' stands twice") | {"same_id_as": "f:2"})

    assert (
        "'docmill run' and 'docmill submit' refuse this input as a whole: 1 custom id given again"
    ) == list(summary.lines())[-1]


def test_files_of_other_kinds_are_told() -> None:
    """To people in a line, to programs by suffix."""
    summary = Summary()
    summary.skipped.by_suffix.update({".png": 2, ".doc": 1})

    assert "skipped 3 files of other kinds (2 .png, 1 .doc)" in list(summary.lines())
    assert {".png": 2, ".doc": 1} == summary.to_dict()["skipped_files"]


def test_nothing_is_told_of_nothing() -> None:
    """A summary without findings, likenesses and errors has no lines about them."""
    assert ["documents", "tokens"] == [line.split()[0] for line in Summary().lines()]
