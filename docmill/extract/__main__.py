"""The process that reads files: an order in, a text or a refusal out, until its input ends.

Started by docmill.intake.extraction with the limits as its arguments. A file that breaks a limit
ends the process; a file that only breaks a library is refused. May import docmill.extract and,
for each format when it first comes, its library.
"""

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from docmill.errors import InvalidDocument, Reason
from docmill.extract.base import Extract, Order
from docmill.extract.frames import receive, send
from docmill.extract.limits import EXIT_NO_MEMORY, Limits, hold_file, hold_process, release_file


def main() -> None:
    """Serve orders until standard input ends."""
    limits = Limits(*map(int, sys.argv[1:]))
    hold_process(limits)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, whatever a library does
    orders, answers = _pipes()
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders, waiting), daemon=True).start()
    while True:
        asked = waiting.get()
        hold_file(limits)
        try:
            answer = _answer(asked)
        except MemoryError:
            os._exit(EXIT_NO_MEMORY)
        release_file()
        send(answers, answer)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take the pipes for ourselves: what a library prints must not reach them."""
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return os.fdopen(orders, "rb"), os.fdopen(answers, "wb")


def _listen(orders: BinaryIO, waiting: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Hand on orders, and end the process with whoever gave them, also in the middle of a file."""
    while asked := receive(orders):
        waiting.put(asked)
    os._exit(0)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    order = Order(
        Path(os.fsdecode(asked["path"])),
        asked["encoding"],
        asked["max_text_bytes"],
        asked["max_file_bytes"],
    )
    try:
        extract = _extractor(asked["format"])(order)
    except InvalidDocument as error:
        return {"code": error.reason.value, "message": error.message}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 # what a library raises on a broken file is its own
        kind = asked["format"].upper()
        message = f"it is no {kind} file, or a broken one ({type(error).__name__})"
        return {"code": Reason.EXTRACTION.value, "message": message}
    text = extract.text.encode("utf-8", "surrogatepass")
    return {"text": text, "about": {k: v for k, v in extract.about.items() if v is not None}}


def _extractor(name: str) -> Callable[[Order], Extract]:
    """Return what reads a format; its library is loaded now."""
    if name == "pdf":
        from docmill.extract.pdf import extract_pdf

        return extract_pdf
    if name == "docx":
        from docmill.extract.docx import extract_docx

        return extract_docx
    from docmill.extract.html import extract_html

    return extract_html


if __name__ == "__main__":
    main()
