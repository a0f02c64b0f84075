"""Which path serves a model."""

from pathlib import Path

import pytest

from engine.torch_engine import TorchEngine
from tests.support.tiny_model import save_llama, tiny_deepseek_v4, tiny_llama
from tests.support.tiny_models.dense import mistral
from tests.support.tiny_models.experts import deepseek_v3, gpt_oss


def unpacked_because(path: Path) -> str | None:
    """Load a model and return why it is not packed."""
    return TorchEngine.load(path, dtype="float32").unpacked_because


def test_plain_and_sliding_window_models_are_packed() -> None:
    """Causal attention, with a window or without, needs no second path."""
    assert unpacked_because(tiny_llama()) is None
    assert unpacked_because(mistral()) is None


def test_a_stateful_model_is_not_packed() -> None:
    """A cache that pools tokens cannot be packed."""
    assert "stateful" in str(unpacked_because(tiny_deepseek_v4()))


def test_a_rotary_embedding_that_couples_rows_is_not_packed() -> None:
    """Angles that depend on the longest row would make answers depend on neighbours."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}

    assert "dynamic" in str(unpacked_because(save_llama(rope_parameters=rope)))


def test_attention_with_sinks_is_packed() -> None:
    """Sinks and windows by layer, as gpt-oss has them, need no second path."""
    assert unpacked_because(gpt_oss()) is None


def test_attention_over_a_compressed_cache_is_packed() -> None:
    """MLA, as in DeepSeek-V3, stores less than it attends: it is given its rows back."""
    engine = TorchEngine.load(deepseek_v3(), dtype="float32")

    assert engine.unpacked_because is None
    assert engine._loaded is not None
    assert "gathered" == engine._loaded.way


def test_a_packed_result_that_differs_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cause, rows that come out differently packed are not packed."""
    monkeypatch.setattr(
        "engine.attention.fused_causal", lambda query, *_: query[0].transpose(0, 1) * 0
    )

    assert "differ" in str(unpacked_because(tiny_llama()))
