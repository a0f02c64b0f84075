"""Where custom ids stood first."""

import tracemalloc

from docmill.intake import Document
from docmill.submission import FirstSeen


def test_places_are_named_as_people_name_them() -> None:
    """File and line where there are any, else the number."""
    seen = FirstSeen()
    line = Document("a", "x", source={"file": "in.jsonl", "line": 3})
    later = Document("a", "x", source={"file": "other.jsonl", "line": 1})

    assert ("in.jsonl:3", None) == seen.note(line, 1)
    assert ("document 2", "in.jsonl:3") == seen.note(Document("a", "x"), 2)
    assert ("other.jsonl:1", "in.jsonl:3") == seen.note(later, 3)
    assert ("document 4", None) == seen.note(Document("b", "x", source={"file": "b.txt"}), 4)
    assert ("document 5", "document 4") == seen.note(Document("b", "x"), 5)


def test_ids_are_remembered_in_little_memory() -> None:
    """About a hundred bytes each, however long they are."""
    seen = FirstSeen()
    tracemalloc.start()
    for number in range(20_000):
        seen.note(Document(f"a rather long name {number:0200}", "x"), number)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held_bytes / 20_000 < 150
