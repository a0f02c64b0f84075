"""Others' words in the logs: no id, error or file name starts a line or steers a terminal."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from workers import log

#: What ends a line for somebody, moves a cursor, or colours what follows.
HOSTILE = "\x1b[2J\x1b[31m[red]\r\n2099-01-01 [info] forged\x07\x7f\x9b1m\u2028\u202e\udc80"


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()


def _fail(document: str) -> None:
    raise ValueError(HOSTILE + document[:0])


def written(
    monkeypatch: pytest.MonkeyPatch, log_format: Literal["json", "console"]
) -> io.TextIOWrapper:
    """Log hostile words in every place of a record; return what standard error got."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    monkeypatch.setattr(sys, "stderr", shown)
    log.configure("info", log_format, "engine")
    logger = structlog.get_logger()
    logger.info("row.failed", custom_id=HOSTILE, problem=OSError(2, HOSTILE, f"/tmp/{HOSTILE}"))
    logger.info("row.failed", custom_id="\x1b[2J")  # needs no quotes for any other reason
    odd = f"odd.{HOSTILE}"
    logger.info(odd, names=[HOSTILE], raw=HOSTILE.encode("utf-8", "surrogatepass"))
    logging.getLogger("redis").warning("bad %s", HOSTILE)
    for fail in (logger.exception, logging.getLogger("arq").exception):
        try:
            _fail("-".join(("a", "secret")))
        except ValueError:
            fail("job.failed")
    shown.flush()
    shown.seek(0)
    return shown


def test_a_json_record_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLD-O07: every line is JSON in plain ASCII, and gives the words back as they were."""
    text = written(monkeypatch, "json").read()
    records = [json.loads(line) for line in text.split("\n")[:-1]]

    assert text.isascii()
    assert not any(ord(letter) < 32 or letter == "\x7f" for letter in text.replace("\n", ""))
    assert [record["event"] for record in records] == [
        *("row.failed", "row.failed", f"odd.{HOSTILE}", f"bad {HOSTILE}"),
        *("job.failed", "job.failed"),
    ]
    assert HOSTILE == records[0]["custom_id"]
    assert [HOSTILE] == records[2]["names"]
    for record in records[-2:]:
        assert "Traceback" in record["exception"]
        assert f"ValueError: {HOSTILE}" in record["exception"]


def test_a_console_record_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLD-O07: it holds nothing but printable text and our own colours; tracebacks are indented."""
    text = written(monkeypatch, "console").read()
    lines = text.split("\n")[:-1]
    styles = structlog.dev.ConsoleRenderer.get_default_column_styles(colors=True)
    for style in {*structlog.dev.ConsoleRenderer.get_default_level_styles().values()} | {
        *(getattr(styles, name) for name in dir(styles) if not name.startswith("_"))
    }:
        if isinstance(style, str) and style:
            lines = [line.replace(style, "") for line in lines]
    records = [line for line in lines if not line.startswith("    ")]

    assert all(line.isprintable() for line in lines)
    assert 6 == len(records)
    assert all(record.startswith("20") and "role=engine" in record for record in records)
    assert "\\x1b[2J" in records[1]
    assert not any(record.startswith("2099") for record in records)
    assert any("ValueError: \\x1b[2J" in line for line in lines)


def test_a_traceback_shows_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document lies in a local variable of whatever fails; logs hold no document's text."""
    assert "a-secret" not in written(monkeypatch, "console").read()
