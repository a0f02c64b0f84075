"""Workers that a certain document kills, for tests of what it takes along.

`python -m tests.support.deadly_worker engine|preprocess`: the real worker, configured as it is, but
for a fake engine or tokenizer that ends the process by SIGKILL when it meets `POISON`.
"""

import os
import signal
import sys
from collections.abc import Sequence

from docmill.errors import EngineError
from engine.base import Capacity, Engine, Row
from engine.fake import FakeEngine
from preprocess.base import Tokens
from preprocess.fake_tokenizer import FakeTokenizer
from workers import engine_worker, preparation, preprocess_worker
from workers.models import ModelFiles
from workers.process import Process, run
from workers.settings import Settings

#: As a prompt, and as the text of a document.
POISON = [7, 7, 7]
POISON_TEXT = b"poison"


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fault(row: Row) -> EngineError | None:
    if list(row.prompt) == POISON:
        _die()
    return None


def _create(settings: Settings, files: ModelFiles) -> Engine:
    capacity = Capacity(files.context_len, settings.max_rows, settings.max_batch_tokens)
    return FakeEngine(files.name, capacity=capacity, token_delay_s=0.002, fault=_fault)


class DeadlyTokenizer(FakeTokenizer):
    """Kills the process when it is given the poison."""

    def encode_documents(self, texts: Sequence[str]) -> list[Tokens | None]:
        """Tokenise, or die."""
        if POISON_TEXT.decode() in texts:
            _die()
        return super().encode_documents(texts)


def _work(process: Process) -> None:
    if sys.argv[1] == "engine":
        engine_worker.work(process, _create)
    else:
        preparation.load_tokenizer = lambda files: DeadlyTokenizer()
        preprocess_worker.work(process)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], _work))
