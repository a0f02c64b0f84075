"""Which parts of a model the kernels take over, and that nothing else changes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaMLP

from engine.base import Row, RowDone, Sampling
from engine.native import install, layers
from engine.native.install import use_kernels
from engine.native.layers import NativeHead, NativeLayer, NativeLinear, NativeNorm
from engine.native.slab import BlockSlab
from engine.options import Limits
from engine.torch_engine import TorchEngine
from tests.support.tiny_model import save, save_llama

SIZES: dict[str, Any] = {
    "vocab_size": 328,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def llama() -> Path:
    """Save a tiny Llama with heads that the kernels take."""
    return save_llama(hidden_size=64, head_dim=32)


def qwen2() -> Path:
    """Save a tiny Qwen2: its projections have biases, its second layer has a window."""
    config = Qwen2Config(
        **SIZES | {"num_attention_heads": 2, "num_key_value_heads": 1},
        use_sliding_window=True,
        sliding_window=20,
        max_window_layers=1,
    )
    return save(Qwen2ForCausalLM, config, "qwen2")


def qwen3() -> Path:
    """Save a tiny Qwen3: it normalises queries and keys."""
    return save(Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=32), "qwen3")


def kinds(engine: TorchEngine) -> dict[type, int]:
    """Count the modules of each kind."""
    assert engine._loaded is not None
    found: dict[type, int] = {}
    for module in engine._loaded.model.modules():
        found[type(module)] = found.get(type(module), 0) + 1
    return found


@pytest.fixture
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[Path, TorchEngine]]:
    """Load a model that the test names in bfloat16."""
    path = request.param()
    engine = TorchEngine.load(path, dtype="bfloat16", device="cpu")
    yield path, engine
    engine.close()


@pytest.mark.parametrize("loaded", [llama, qwen2, qwen3], indirect=True)
def test_layers_of_the_usual_shape_are_replaced(loaded: tuple[Path, TorchEngine]) -> None:
    """Both layers, the last norm and the head; biases, windows and head norms included."""
    path, engine = loaded
    found = kinds(engine)

    assert 2 == found[NativeLayer]
    assert 1 == found[NativeHead]
    assert not found.get(torch.nn.Linear)
    assert engine._loaded is not None
    assert engine._loaded.new_slab is BlockSlab
    reference = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    layer = engine._loaded.model.model.layers[0]
    joined = torch.cat(
        [getattr(reference.model.layers[0].self_attn, f"{name}_proj").weight for name in "qkv"]
    )
    assert torch.equal(joined, layer.qkv_proj.weight)


def native_layers(engine: TorchEngine) -> list[NativeLayer]:
    """Return the layers that were replaced, in order."""
    assert engine._loaded is not None
    return [each for each in engine._loaded.model.modules() if isinstance(each, NativeLayer)]


def answers(engine: TorchEngine) -> dict[str, tuple[int, ...]]:
    """Answer rows that are computed in parts, first one alone, so that passes choose no token."""
    prompts = [np.arange(length, dtype=np.uint32) * 7 % 300 for length in (90, 3, 40, 41)]
    rows = [Row(str(at), prompt, Sampling(max_tokens=12)) for at, prompt in enumerate(prompts)]
    return {
        event.row_id: event.token_ids for event in engine.run(rows) if isinstance(event, RowDone)
    }


class Counting:
    """The kernels, noting how many tokens each layer goes on with."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels
        self.num_ended: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def end_layer(self, hidden: Tensor, *rest: Any) -> Any:
        """Note the tokens."""
        self.num_ended.append(len(hidden))
        return self._kernels.end_layer(hidden, *rest)


@pytest.mark.parametrize("build", [llama, qwen2, qwen3])
def test_the_last_layer_computes_only_what_is_asked_for(
    build: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leaves out changes no answer: it ends with the tokens that scores are made of."""
    engine = TorchEngine.load(
        build(), dtype="bfloat16", device="cpu", limits=Limits(chunk_tokens=16)
    )
    first, last = native_layers(engine)
    assert not first.is_last
    assert last.is_last
    kernels = Counting(layers._ops)
    monkeypatch.setattr(layers, "_ops", kernels)

    spared = answers(engine)
    assert sum(kernels.num_ended[1::2]) < sum(kernels.num_ended[::2]) / 2
    assert 0 in kernels.num_ended

    last.is_last = False
    assert answers(engine) == spared
    engine.close()


def test_a_layer_before_another_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last that was replaced need not be the model's last."""
    alike = install._alike

    def first_alone(layer: Any, *seen: Any) -> Any:
        return None if layer.self_attn.layer_idx else alike(layer, *seen)

    monkeypatch.setattr(install, "_alike", first_alone)
    engine = TorchEngine.load(llama(), dtype="bfloat16", device="cpu")

    assert [False] == [layer.is_last for layer in native_layers(engine)]
    engine.close()


def gemma() -> Path:
    """Save a tiny Gemma, whose layers look usual and compute something else."""
    return save(GemmaForCausalLM, GemmaConfig(**SIZES, head_dim=32), "gemma")


def phi() -> Path:
    """Save a tiny Phi, whose layers have other parts."""
    config = PhiConfig(**SIZES | {"num_attention_heads": 2, "num_key_value_heads": 2})
    return save(PhiForCausalLM, config, "phi")


@pytest.mark.parametrize("loaded", [gemma, phi], indirect=True)
def test_other_layers_keep_their_code(loaded: tuple[Path, TorchEngine]) -> None:
    """Their linear layers and their attention are replaced, what is between them is not."""
    found = kinds(loaded[1])

    assert NativeLayer not in found
    assert found[NativeLinear] > 2
    assert NativeNorm not in found
    assert 1 == found[NativeHead]


def test_heads_that_fill_no_panel_are_left_alone() -> None:
    """The model runs without kernels, on a slab that torch reads."""
    engine = TorchEngine.load(save_llama(), dtype="bfloat16", device="cpu")

    assert not {NativeLayer, NativeLinear} & kinds(engine).keys()
    assert engine._loaded is not None
    assert engine._loaded.new_slab is not BlockSlab
    engine.close()


def test_a_layer_that_computes_something_else_is_kept() -> None:
    """A layer built from the usual parts, with another activation, is found out by its output."""
    path = save(LlamaForCausalLM, _config_with("gelu"), "llama-gelu")
    engine = TorchEngine.load(path, dtype="bfloat16", device="cpu")

    assert NativeLayer not in kinds(engine)
    assert kinds(engine)[NativeLinear] == 2 * 7
    engine.close()


def _config_with(activation: str) -> Any:
    return LlamaConfig(**SIZES, head_dim=32, hidden_act=activation)


def test_a_layer_that_clamps_far_out_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a few tokens do not show is looked for in larger values."""

    def clamping(self: Any, hidden: Tensor) -> Any:
        gate = self.act_fn(self.gate_proj(hidden)).clamp(max=100.0)
        return self.down_proj(gate * self.up_proj(hidden))

    monkeypatch.setattr(LlamaMLP, "forward", clamping)
    engine = TorchEngine.load(llama(), dtype="bfloat16", device="cpu")

    assert NativeLayer not in kinds(engine)
    engine.close()


def test_a_layer_that_minds_its_place_is_kept() -> None:
    """Ministral scales queries from some position on, which short prompts do not show."""
    sizes = SIZES | {"num_attention_heads": 2, "num_key_value_heads": 1}
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 256,
        "llama_4_scaling_beta": 0.1,
    }
    config = Ministral3Config(**sizes, head_dim=32, sliding_window=None, rope_parameters=rope)
    engine = TorchEngine.load(
        save(Ministral3ForCausalLM, config, "ministral3"), dtype="bfloat16", device="cpu"
    )

    assert engine.unpacked_because is None
    assert NativeLayer not in kinds(engine)
    assert NativeLinear in kinds(engine)
    engine.close()


def test_other_dtypes_have_no_kernels() -> None:
    """In float32 there is a reason, and nothing is touched."""
    engine = TorchEngine.load(llama(), dtype="float32", device="cpu")
    assert engine._loaded is not None

    assert "bfloat16" in str(use_kernels(engine._loaded, lambda: torch.zeros(1)))
    engine.close()
