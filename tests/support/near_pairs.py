"""Pairs of almost equal documents, each labelled with whether one's answer may serve the other.

The texts and what makes the second of each pair lie in tests/data/near; written for this purpose.
"""

import json
import re
import textwrap
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent.parent / "data" / "near"


@dataclass(frozen=True)
class Pair:
    """Two documents; `kind` says in what they differ."""

    name: str
    kind: str
    may_reuse: bool
    left: str
    right: str


def pairs() -> list[Pair]:
    """Return all pairs in the order of the file."""
    texts = {row["text"]: row["content"] for row in _rows("texts.jsonl")}
    return [_pair(texts[row["of"]], row) for row in _rows("pairs.jsonl")]


def _pair(left: str, row: dict[str, Any]) -> Pair:
    to = row.get("change", [["", ""]])[0][1]
    name = f"{row['of']} {row['kind']} {to}".strip()
    return Pair(name, row["kind"], row["may_reuse"], left, _changed(left, row))


def _changed(text: str, row: dict[str, Any]) -> str:
    for old, new in row.get("change", ()):
        text = text.replace(old, new, 1)
    if "wrap" in row:
        text = textwrap.fill(text, row["wrap"], break_on_hyphens=False)
    if "wrap_chars" in row:
        text = "\n".join(re.findall(f".{{1,{row['wrap_chars']}}}", text))
    text = row.get("prepend", "") + text + row.get("append", "")
    text = text.replace("\n", row.get("line_end", "\n"))
    return unicodedata.normalize(row["form"], text) if "form" in row else text


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_DATA / name).read_text(encoding="utf-8").splitlines()]
