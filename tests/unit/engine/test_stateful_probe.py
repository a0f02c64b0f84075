"""Which path serves a stateful model, and which models none serves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BambaConfig,
    BambaForCausalLM,
    FalconH1Config,
    FalconH1ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from docmill.errors import ModelLoadError
from engine.base import Row, RowDone, Sampling
from engine.loading import LoadedModel, load
from engine.options import Limits
from engine.ragged_batch import RaggedBatch
from engine.ragged_compressor import RaggedCompressor
from engine.stateful import GroupedBatch
from engine.stateful_path import choose_path
from engine.stateful_probe import Outcome, difference, may_cut_prompts
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import save, save_llama, tiny_deepseek_v4, tiny_llama
from tests.support.tiny_models.stateful import qwen3_next

LIMITS = Limits(chunk_tokens=100)


def read(path: Path) -> LoadedModel:
    """Load in the dtype in which answers are exact."""
    return load(path, torch.device("cpu"), torch.float32, None)


def bamba() -> LoadedModel:
    """A hybrid whose positions transformers derives wrongly from its cache."""
    config = BambaConfig(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=16,
        initializer_range=0.3,
    )
    return read(save(BambaForCausalLM, config, "bamba"))


def falcon_h1() -> LoadedModel:
    """A hybrid whose every layer has attention and a recurrent state."""
    config = FalconH1Config(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        mamba_d_ssm=32,
        mamba_n_heads=4,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=16,
    )
    return read(save(FalconH1ForCausalLM, config, "falcon-h1"))


def mamba() -> LoadedModel:
    """A model whose layers do not take a prompt in parts."""
    config = MambaConfig(vocab_size=320, hidden_size=32, num_hidden_layers=2, state_size=8)
    return read(save(MambaForCausalLM, config, "mamba"))


def test_compressed_and_recurrent_models_run_rows_of_unequal_length() -> None:
    """Found by their parts: DeepSeek-V4, Qwen3-Next, Bamba, Falcon-H1."""
    for loaded in (read(tiny_deepseek_v4()), read(qwen3_next()), bamba(), falcon_h1()):
        assert (RaggedBatch, LIMITS, None) == choose_path(loaded, LIMITS)


def test_the_engine_takes_the_path_that_is_chosen() -> None:
    """It says why a model is not packed, and that its rows need not be equal."""
    engine = TorchEngine.load(tiny_deepseek_v4(), dtype="float32")

    assert "stateful" in str(engine.unpacked_because)
    assert engine.grouped_because is None


def test_a_group_is_told_its_positions() -> None:
    """Bamba, left to derive them from its cache, says something else from the fourth token on."""
    loaded = bamba()
    prompt = np.arange(5, 12, dtype=np.uint32)

    [event] = GroupedBatch(loaded, LIMITS, None, None).run([Row("r", prompt, Sampling(8))])

    ids = torch.from_numpy(prompt.astype(np.int64))[None]
    expected = loaded.model.generate(ids, do_sample=False, max_new_tokens=8)[0, 7:]
    assert isinstance(event, RowDone)
    assert tuple(expected.tolist()) == event.token_ids


def test_a_coupled_rotary_embedding_keeps_prompts_whole() -> None:
    """Its angles depend on the longest row of a pass, so rows are of one length and uncut."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}

    batch, limits, obstacle = choose_path(read(save_llama(rope_parameters=rope)), LIMITS)

    assert GroupedBatch is batch
    assert "dynamic" in str(obstacle)
    assert 512 == limits.chunk_tokens


def test_what_cannot_be_computed_in_parts_is_grouped_whole() -> None:
    """Mamba's layers forget what came before when a prompt goes on."""
    batch, limits, obstacle = choose_path(mamba(), LIMITS)

    assert GroupedBatch is batch
    assert "differ" in str(obstacle)
    assert LIMITS.chunk_tokens < limits.chunk_tokens


def test_a_model_left_to_groups_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced parts are taken back when the check fails."""
    loaded = read(tiny_deepseek_v4())
    own = loaded.model.config._attn_implementation
    monkeypatch.setattr("engine.ragged_compressor.RaggedCompressor._pool", _zeros)

    batch, limits, obstacle = choose_path(loaded, LIMITS)

    assert (GroupedBatch, LIMITS) == (batch, limits)
    assert "differ" in str(obstacle)
    assert own == loaded.model.config._attn_implementation
    assert not any(isinstance(module, RaggedCompressor) for module in loaded.model.modules())


def _zeros(_: Any, part: Any, windows: Any, kv: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return kv.new_zeros(len(windows.rows), part.head_dim)


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        (torch.tensor([[0.0, 2.0]]), None),
        (torch.tensor([[0.0, 2.1]]), "differ from single ones by 5.0e-02"),
        (torch.tensor([[0.0, float("nan")]]), "differ from single ones by nan"),
        (None, "its layer 3 keeps its state elsewhere"),
    ],
)
def test_states_count_as_scores_do(state: torch.Tensor | None, complaint: str | None) -> None:
    """Scores that agree do not excuse a state that does not."""
    scores = torch.ones(1, 4)
    expected = Outcome(scores, {(3, "conv", 0): torch.tensor([[0.0, 2.0]])})
    got = Outcome(scores, {} if state is None else {(3, "conv", 0): state})

    found = difference(read(tiny_llama()), got, expected)

    assert complaint in str(found) if complaint else found is None


def test_a_model_whose_rows_influence_each_other_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot be served in batches, and one by one is not what a batch engine is for."""
    loaded = read(tiny_llama())
    forward = loaded.model.forward

    def coupled(input_ids: torch.Tensor, **kwargs: Any) -> Any:
        output = forward(input_ids=input_ids, **kwargs)
        output.logits = output.logits + output.logits.mean(0, keepdim=True)
        return output

    monkeypatch.setattr(loaded.model, "forward", coupled)

    with pytest.raises(ModelLoadError, match="LlamaForCausalLM cannot be served: rows together"):
        may_cut_prompts(loaded)


def test_a_model_that_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the model and what it said."""
    loaded = read(tiny_llama())

    def broken(**_: Any) -> Any:
        raise ValueError("a cache of its own")

    monkeypatch.setattr(loaded.model, "forward", broken)

    with pytest.raises(ModelLoadError, match=r"LlamaForCausalLM cannot be served.*of its own"):
        may_cut_prompts(loaded)
