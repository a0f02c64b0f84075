"""SmolLM2-135M-Instruct out of its GGUF file: safetensors, tokenizer and chat template.

Decides how that one file becomes a model directory; `workers.smollm2` decides where it comes from
and goes, and runs this as a process of its own (`python -m workers.smollm2_convert GGUF
DIRECTORY`), so that neither torch nor the memory of a conversion stays with a worker. Imports gguf,
torch, safetensors and tokenizers where they are needed.

Source: the names and the order of rows within a head are llama.cpp's (`convert_hf_to_gguf.py`,
`LlamaModel.permute`); the digits rule is its pre-tokenizer `smollm`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docmill.errors import ModelLoadError

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3  # gguf's TokenType.CONTROL


def convert(gguf_path: Path, target: Path) -> None:
    """Write the model of `gguf_path` into the existing directory `target`.

    Raises:
        ModelLoadError: The `gguf` package is missing.

    Cost: about 9 s and 1 GB of memory; writes 270 MB.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelLoadError(
            "converting SmolLM2 needs the package gguf: pip install 'docmill[small-model]'"
        ) from error
    reader = GGUFReader(gguf_path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    _write_config(fields, target)
    _write_tokenizer(fields, target)
    _write_weights(reader.tensors, fields, target)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _write_config(fields: dict[str, Any], target: Path) -> None:
    ids = {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": fields["llama.rope.freq_base"],
        "vocab_size": fields["llama.vocab_size"],
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
    _write_json(target / "config.json", config | ids)
    _write_json(target / "generation_config.json", ids)


def _write_tokenizer(fields: dict[str, Any], target: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    controls = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in controls]
    )
    tokenizer.save(str(target / "tokenizer.json"))
    named = {
        f"{role}_token": tokens[fields[f"tokenizer.ggml.{key}_token_id"]]
        for role, key in (
            ("bos", "bos"),
            ("eos", "eos"),
            ("pad", "padding"),
            ("unk", "unknown"),
        )
    }
    _write_json(
        target / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": fields["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "additional_special_tokens": controls,
            **named,
        },
    )
    (target / "chat_template.jinja").write_text(
        fields["tokenizer.chat_template"], encoding="utf-8", newline=""
    )


def _write_weights(tensors: Any, fields: dict[str, Any], target: Path) -> None:
    import torch
    from gguf.quants import dequantize
    from safetensors.torch import save_file

    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    weights = {}
    for tensor in tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        for name, num_heads in heads.items():
            if f".{name}." in tensor.name:
                values = _rotate_halves(values, num_heads)
        weights[_hub_name(tensor.name)] = torch.from_numpy(values.copy()).to(torch.bfloat16)
    save_file(weights, target / "model.safetensors", {"format": "pt"})


def _hub_name(name: str) -> str:
    """Return the tensor's name in transformers' Llama."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None:
        raise ModelLoadError(f"unexpected tensor {name} in the SmolLM2 file")
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.weight"


def _rotate_halves(weight: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Turn rows from pairs beside each other (llama.cpp) to two halves per head (transformers)."""
    num_rows, num_columns = weight.shape
    # [H*D, E] -> [H, D/2, 2, E] -> [H, 2, D/2, E] -> [H*D, E]
    pairs = weight.reshape(num_heads, num_rows // num_heads // 2, 2, num_columns)
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def main() -> None:
    """Convert the file named first into the directory named second."""
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except ModelLoadError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
