"""With the CPU's kernels bf16 answers depend on the row alone, to the last bit.

Every sum runs in an order that only the row itself determines, so company, chunks, refills, copied
beginnings and drafts change nothing. That needs no fp32.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from engine.native.build import why_unavailable
from engine.native.slab import BlockSlab
from engine.options import Limits
from engine.torch_engine import TorchEngine
from tests.support.exactness import make_rows, run, sharing_rows, waiting_list
from tests.support.tiny_model import save_llama

SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "seed": 5}
#: Long enough that copied beginnings end within blocks, and that what was said is drafted again.
MAX_TOKENS = 40


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    """A tiny Llama in bf16 whose heads the kernels take."""
    if reason := why_unavailable():
        pytest.skip(f"no CPU kernels: {reason}")
    engine = TorchEngine.load(save_llama(hidden_size=64, head_dim=32), dtype="bfloat16")
    assert engine._loaded is not None
    assert engine._loaded.new_slab is BlockSlab
    yield engine
    engine.close()


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(chunk_tokens=13),
        Limits(max_rows=3, refill_share=0.0, chunk_tokens=29),
        Limits(max_drafts=0),
    ],
    ids=["as usual", "chunks", "narrow", "no drafts"],
)
def test_company_changes_no_answer(
    engine: TorchEngine, limits: Limits, sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of mixed lengths, all at once, in parts, or joining as others leave."""
    rows = make_rows(max_tokens=MAX_TOKENS, **sampling)
    alone = {key: ids for row in rows for key, ids in run(engine, [row]).items()}
    monkeypatch.setattr(engine, "_limits", limits)

    assert alone == run(engine, rows)
    assert alone == run(engine, rows[:2], waiting_list(rows[2:]))


@pytest.mark.parametrize("chunk_tokens", [2048, 37])
def test_a_copied_beginning_changes_no_answer(
    engine: TorchEngine, chunk_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that share a prefix, a part of it or all of it say what each says alone."""
    rows = sharing_rows()
    alone = {key: ids for row in rows for key, ids in run(engine, [row]).items()}
    monkeypatch.setattr(engine, "_limits", Limits(chunk_tokens=chunk_tokens))

    assert alone == run(engine, rows)
