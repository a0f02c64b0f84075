"""Documents from Python values."""

from pathlib import Path
from typing import Any

import pytest

from docmill.errors import Reason
from docmill.intake.base import Document, Refusal
from docmill.intake.extraction import Extraction
from docmill.intake.values import item_of, items_of

#: Lists in lists, far deeper than anybody needs.
DEEP: Any = []
for _ in range(100):
    DEEP = [DEEP]

SOURCE = {"file": "f", "line": 3, "tags": ["a", 1.5, None, True], "more": {"size": 2**64 - 1}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", Document("document-3", "text")),
        (b"bytes", Document("document-3", b"bytes")),
        (("id", "text"), Document("id", "text")),
        ({"text": "text"}, Document("document-3", "text")),
        ({"id": 5, "text": "text"}, Document("5", "text")),
        (
            {"custom_id": "a", "text": "t", "seed": 1, "other": 2},
            Document("a", "t", options={"seed": 1}),
        ),
        (Document("a", "t"), Document("a", "t")),
        (Document("a", "t", source=SOURCE), Document("a", "t", source=SOURCE)),
        (Refusal("a", Reason.BAD_LINE, "m"), Refusal("a", Reason.BAD_LINE, "m")),
    ],
)
def test_values_become_documents(value: Any, expected: Any) -> None:
    """Whatever has no id is named by its place."""
    assert expected == item_of(value, 3)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "NoneType cannot be a document"),
        (("a", "b", "c"), "tuple cannot"),
        ((1, "text"), "custom_id must be text"),
        (("id", None), "text must be str or bytes, got NoneType"),
        ({"id": "a"}, "text must be"),
        ({"id": "a\ud800", "text": "t"}, "surrogate"),
        ({"id": "a", "body": {"messages": []}}, "at least one message"),
        (Document("", "t"), "empty"),
        (Document("a", 5), "text must be str or bytes, got int"),  # type: ignore[arg-type]
        (Document("a", b"t", None), "encoding"),  # type: ignore[arg-type]
        (Document("a", "t", source="f"), "source"),  # type: ignore[arg-type]
        (Document("a", "t", source={"digest": b"\xff"}), "source"),
        (Document("a", "t", source={"at": {1: 2}}), "source"),
        (Document("a", "t", source={"size": 2**64}), "source"),
        (Document("a", "t", source={"when": object()}), "source"),
        (Document("a", "t", source={"deep": DEEP}), "source"),
        (Document("a", "t", source={"long": [0] * 70_000}), "source"),
    ],
)
def test_other_values_are_refused_with_their_place(value: Any, words: str) -> None:
    """One bad value is an error record, never an exception."""
    refusal = item_of(value, 3)

    assert isinstance(refusal, Refusal)
    assert words in refusal.message
    assert refusal.message.startswith("document 3: ")
    refusal.custom_id.encode()


def test_paths_among_values_are_read_by_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of files costs no more than a folder of them."""
    read = Extraction.read

    def noted(self: Extraction, *args: Any, **options: Any) -> Any:
        found = read(self, *args, **options)
        pids.add(self.pid)
        return found

    pids: set[int | None] = set()
    monkeypatch.setattr(Extraction, "read", noted)
    paths = [tmp_path / "a.html", tmp_path / "b.html"]
    for path in paths:
        path.write_text(path.stem)
    documents = list(items_of(["plain", *paths], max_document_bytes=1000))

    assert ["plain", "a\n", "b\n"] == [
        item.text for item in documents if isinstance(item, Document)
    ]
    assert 1 == len(pids)
