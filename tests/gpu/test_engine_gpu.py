"""What the torch engine on CUDA does beside answering right; see test_exactness_gpu.py for that."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.base import Row, RowDone, Sampling
from engine.options import Limits
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import tiny_llama

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

LENGTHS = (1, 5, 9, 40, 150, 9)


def rows() -> list[Row]:
    """Build rows of mixed lengths."""
    random = np.random.default_rng(0)
    return [
        Row(f"r{index}", random.integers(4, 320, length).astype(np.uint32), Sampling(12))
        for index, length in enumerate(LENGTHS)
    ]


def answers(path: Path, device: str, dtype: str, batch: list[Row]) -> dict[str, tuple[int, ...]]:
    """Answer rows in small chunks, rows joining as slots get free."""
    limits = Limits(max_rows=3, chunk_tokens=32, refill_share=0.0)
    engine = TorchEngine.load(path, device=device, dtype=dtype, limits=limits)
    events = list(engine.run(batch))
    engine.close()
    return {event.row_id: event.token_ids for event in events if isinstance(event, RowDone)}


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float16"])
def test_half_precision_answers_every_row(dtype: str) -> None:
    """Each row has a whole answer in the formats that GPUs are used with."""
    assert len(LENGTHS) == len(answers(tiny_llama(), "cuda", dtype, rows()))


def test_memory_is_given_back() -> None:
    """After `close` the device holds what it held before."""
    before = torch.cuda.memory_allocated()

    answers(tiny_llama(), "cuda", "float32", rows())

    assert before == torch.cuda.memory_allocated()
