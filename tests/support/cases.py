"""Inputs on which other projects stumbled; see tests/data/cases."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"
CASES = DATA / "cases"


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file."""
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def documents(name: str) -> dict[str, bytes]:
    """Return the documents of a JSON Lines file by custom id; lone surrogates are encoded."""
    return {
        row["custom_id"]: row["text"].encode("utf-8", "surrogatepass")
        for row in rows(name)
        if row.get("text") is not None
    }
