"""What is refused at load, and what the message says."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils.logging import warning_once

from docmill.errors import ModelLoadError
from engine.loading import LoadedModel, load
from engine.probe import single_scores
from tests.support.tiny_model import CONTEXT_LEN, tiny_llama
from tests.support.tiny_models.stateful import qwen3_next


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A copy of the tiny Llama that a test may damage."""
    return Path(shutil.copytree(tiny_llama(), tmp_path / "model"))


def load_here(path: Path, max_len: int | None = None) -> LoadedModel:
    """Load on the CPU in fp32."""
    return load(path, torch.device("cpu"), torch.float32, max_len)


def edit(path: Path, **changes: Any) -> None:
    """Change a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def drop_a_weight(path: Path) -> None:
    """Remove one tensor from the weights."""
    weights = load_file(path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def misshape_a_weight(path: Path) -> None:
    """Give one tensor another shape."""
    weights = load_file(path / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(7)
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def store_as(path: Path, kind: torch.dtype) -> None:
    """Store one weight in a format of quantised models, without a word in the config."""
    weights = load_file(path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    weights[name] = weights[name].to(kind)
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def add_a_weight(path: Path) -> None:
    """Add a bias that a Llama does not have."""
    weights = load_file(path / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.bias"] = torch.ones(4)
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def add_a_token(path: Path) -> None:
    """Give the tokenizer a token more than the model has."""
    fields = json.loads((path / "tokenizer.json").read_text())
    vocab_size = json.loads((path / "config.json").read_text())["vocab_size"]
    missing = vocab_size - len(fields["model"]["vocab"])
    last = fields["added_tokens"][-1]
    for index in range(missing + 1):
        token = last | {"id": vocab_size - missing + index, "content": f"<extra-{index}>"}
        fields["added_tokens"].append(token)
    (path / "tokenizer.json").write_text(json.dumps(fields))


def generate_with(path: Path, **demands: Any) -> None:
    """Write a generation config that demands something."""
    edit(path / "generation_config.json", **demands)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda path: (path / "config.json").unlink(), "no config.json"),
    "broken config": (lambda path: (path / "config.json").write_text("{"), "config.json"),
    "unknown type": (lambda path: edit(path / "config.json", model_type="zork"), "zork"),
    "not causal": (
        lambda path: edit(path / "config.json", architectures=["BertForMaskedLM"]),
        "BertForMaskedLM is not a causal",
    ),
    "no architecture": (
        lambda path: edit(path / "config.json", architectures=None),
        "type llama without an architecture",
    ),
    "quantised": (
        lambda path: edit(path / "config.json", quantization_config={"quant_method": "gptq"}),
        "gptq",
    ),
    "encoder-decoder": (
        lambda path: edit(path / "config.json", is_encoder_decoder=True),
        "encoder",
    ),
    "pictures": (
        lambda path: edit(
            path / "config.json",
            model_type="gemma3",
            architectures=["Gemma3ForConditionalGeneration"],
        ),
        "Gemma3ForConditionalGeneration has a language model inside",
    ),
    "an encoder": (
        lambda path: edit(
            path / "config.json", model_type="bert", architectures=["BertLMHeadModel"]
        ),
        "BertLMHeadModel looks at later tokens",
    ),
    "both directions": (
        lambda path: edit(
            path / "config.json",
            model_type="gemma3_text",
            architectures=["Gemma3ForCausalLM"],
            use_bidirectional_attention=True,
        ),
        "use_bidirectional_attention",
    ),
    "another architecture": (
        lambda path: edit(path / "config.json", architectures=["ZorkForCausalLM"]),
        "ZorkForCausalLM is not what transformers has for type llama (LlamaForCausalLM)",
    ),
    "code of its own": (
        lambda path: edit(
            path / "config.json",
            model_type="zork",
            auto_map={"AutoConfig": "zork.ZorkConfig", "AutoModelForCausalLM": "zork.Zork"},
        ),
        "code of its own",
    ),
    "an adapter": (
        lambda path: (path / "adapter_config.json").write_text("{}"),
        "merge it into its base",
    ),
    "secretly fp8": (
        lambda path: store_as(path, torch.float8_e4m3fn),
        "model.layers.0.mlp.up_proj.weight is stored as F8_E4M3",
    ),
    "secretly int8": (lambda path: store_as(path, torch.int8), "is stored as I8"),
    "a weight too many": (add_a_weight, "q_proj.bias"),
    "a token too many": (add_a_token, "<extra-0>"),
    "suppressed tokens": (
        lambda path: generate_with(path, suppress_tokens=[5]),
        "suppress_tokens is not supported",
    ),
    "a forced end": (
        lambda path: generate_with(path, forced_eos_token_id=1),
        "forced_eos_token_id",
    ),
    "beams": (lambda path: generate_with(path, num_beams=4), "num_beams"),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), "safetensors"),
    "cut weights": (lambda path: (path / "model.safetensors").write_bytes(b"1234"), "weights"),
    "missing weight": (drop_a_weight, "layers.1.mlp.up_proj.weight"),
    "misshapen weight": (misshape_a_weight, "weights"),
    "no tokenizer": (
        lambda path: (path / "tokenizer.json").unlink(),
        "tokenizer",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_cannot_be_served_is_refused_in_one_line(name: str, model_dir: Path) -> None:
    """The message names the directory and the thing, and is one line long."""
    damage, named = DAMAGES[name]
    damage(model_dir)

    with pytest.raises(ModelLoadError) as caught:
        load_here(model_dir)

    assert named in caught.value.message
    assert str(model_dir) in caught.value.message
    assert "\n" not in caught.value.message


def test_what_a_generation_config_recommends_is_said_not_followed(
    model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests say how tokens are chosen; one line of the log names what is not followed."""
    generate_with(model_dir, do_sample=True, temperature=0.7, repetition_penalty=1.1)

    with caplog.at_level("INFO", logger="engine.servable"):
        load_here(model_dir)

    [record] = caplog.records
    assert record.getMessage().endswith("temperature, repetition_penalty")


def test_a_cpu_is_not_advised_to_install_kernels_of_gpus(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever else transformers has to say of its kernels is still said."""
    warning_once.cache_clear()  # an earlier test may have said it
    log = logging.getLogger("transformers.integrations.hub_kernels")
    # once, whatever CI says: where it is true, transformers hands its messages on to the root
    monkeypatch.setattr(log, "handlers", [caplog.handler])
    monkeypatch.setattr(log, "propagate", False)

    single_scores(load_here(qwen3_next()))
    log.warning("something else")

    assert ["something else"] == caplog.messages


def test_the_case_of_an_architectures_name_does_not_matter(model_dir: Path) -> None:
    """Early conversions of Llama spell it LLaMAForCausalLM."""
    edit(model_dir / "config.json", architectures=["LLaMAForCausalLM"])

    load_here(model_dir)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The message names the path."""
    with pytest.raises(ModelLoadError, match="nowhere"):
        load_here(tmp_path / "nowhere")


def test_every_end_of_text_token_is_known(model_dir: Path) -> None:
    """Both the generation config's set and the model config's token end an answer."""
    edit(model_dir / "config.json", eos_token_id=2)

    assert frozenset({1, 2, 3}) == load_here(model_dir).eos_ids


def test_the_context_is_the_models_or_less(model_dir: Path) -> None:
    """A limit shortens the model's context and never lengthens it."""
    assert CONTEXT_LEN == load_here(model_dir).context_len
    assert 64 == load_here(model_dir, 64).context_len
    assert CONTEXT_LEN == load_here(model_dir, 10**6).context_len
