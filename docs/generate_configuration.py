"""Writes docs/configuration.md from the settings model, so that the page cannot go stale.

Run as `python -m docs.generate_configuration` (`make docs`); a test compares the page with
`page()`. May import workers.settings.
"""

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from workers.settings import PREFIX, Settings

TARGET = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

Generated from `workers/settings.py` by `make docs`; edit there.

The service reads these environment variables and nothing else; options of the `docmill` command
line override them. Every problem is reported at once, and a `DOCMILL_*` name that is not in this
table is refused, because a typing error must not silently keep a default. The Python client takes
arguments only and reads no variable.

| variable | type | default | limits | what it does |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    return INTRODUCTION + "".join(
        _row(name, field) for name, field in Settings.model_fields.items()
    )


def _row(name: str, field: FieldInfo) -> str:
    cells = (
        f"`{PREFIX}{name.upper()}`",
        _type(field.annotation),
        _default(field.default),
        _limits(field),
        field.description or "",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _type(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return _type(next(part for part in get_args(annotation) if part is not types.NoneType))
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "JSON list of numbers"
    names = {int: "whole number", float: "number", str: "text", Path: "path", SecretStr: "secret"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _limits(field: FieldInfo) -> str:
    names = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits: list[str] = []
    for rule in field.metadata:
        limits += [
            f"{sign} {getattr(rule, key)}" for key, sign in names.items() if hasattr(rule, key)
        ]
        if pattern := getattr(rule, "pattern", None):
            limits.append(f"matches `{pattern}`")
    return ", ".join(limits)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
