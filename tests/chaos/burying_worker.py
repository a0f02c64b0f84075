"""An engine worker that gives up every document, and may die while it writes the dead letter.

`python -m tests.chaos.burying_worker SECONDS MOMENT FILE`: each batch fails for good after so long.
At the moment `before`, `in` or `after` the burial is sent, or at its `reply`, the process ends by
SIGKILL and leaves a line in FILE; at any other word it lives. Everything else is the real worker.
"""

import hashlib
import sys
from pathlib import Path

from docmill.errors import NonFiniteLogits
from docmill.scripts import source
from engine.base import Capacity, Engine
from engine.fake import FakeEngine
from tests.chaos.mortal import Fate, Mortality, install
from workers.engine_worker import work
from workers.models import ModelFiles
from workers.process import Process, run
from workers.settings import Settings

_DIGEST = hashlib.sha1(source("bury").encode(), usedforsecurity=False).hexdigest()
_BURIAL = f"EVALSHA\r\n$40\r\n{_DIGEST}".encode()


class _Doom(Mortality):
    """Dies at one moment of the burial, and at no other."""

    def __init__(self, moment: str, obituaries: Path) -> None:
        super().__init__(Fate("", 1, 1, obituaries, obituaries))
        self._moment = moment
        self._is_burial = False

    def passes(self, moment: str, command: bytes) -> None:
        """Live on, unless this is the moment."""
        self._is_burial = _BURIAL in command
        if self._is_burial and moment == self._moment:
            self.end(moment, command)

    def is_due(self) -> bool:
        """Whether the command that is about to be sent is to be cut."""
        return self._is_burial and self._moment == "in"


def _create(settings: Settings, files: ModelFiles) -> Engine:
    capacity = Capacity(files.context_len, settings.max_rows, settings.max_batch_tokens)
    return FakeEngine(
        files.name,
        capacity=capacity,
        batch_delay_s=float(sys.argv[1]),
        fault=lambda row: NonFiniteLogits("nothing but NaN"),
    )


def _work(process: Process) -> None:
    install(_Doom(sys.argv[2], Path(sys.argv[3])))
    work(process, _create)


if __name__ == "__main__":
    sys.exit(run("engine", _work))
