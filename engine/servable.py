"""What a model directory asks for that is not done here: refused by name, or said.

Decides it from the directory's small files and the headers of its weights, before the weights are
read, and from what reading them left over. May import transformers and docmill.errors.
"""

import json
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from docmill.errors import ModelLoadError

_log = logging.getLogger(__name__)

#: Numbers that weights can be stored in and mean what they say.
_PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
#: Longest header of a safetensors file that is looked at.
_MAX_HEADER_BYTES = 1 << 28

#: What a generation config may demand that changes which tokens may follow. Nothing of it is done,
#: and answers without it are not the ones that its author meant.
_DEMANDS = (
    *("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id"),
    *("bad_words_ids", "force_words_ids", "sequence_bias", "constraints", "stop_strings"),
    *("min_length", "min_new_tokens", "no_repeat_ngram_size", "exponential_decay_length_penalty"),
    *("guidance_scale", "penalty_alpha", "dola_layers", "watermarking_config", "token_healing"),
)
#: What it recommends for chatting; here, each request says how its tokens are chosen.
_RECOMMENDED = (
    *("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff"),
    *("eta_cutoff", "repetition_penalty"),
)


def check_directory(path: Path) -> None:
    """Refuse a directory that holds something else than a model.

    Raises:
        ModelLoadError: It does; the message names it and the remedy.
    """
    if (path / "adapter_config.json").is_file():
        raise ModelLoadError(
            f"{path}: an adapter (adapter_config.json) is not a model; merge it into its base "
            "(PEFT's merge_and_unload) and save that"
        )
    if not (path / "config.json").is_file():
        raise ModelLoadError(
            f"{path}: no config.json; give a directory with a transformers model in safetensors"
        )


def has_own_code(path: Path) -> bool:
    """Say whether a model brings Python files of its own."""
    try:
        return "auto_map" in json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def check_config(path: Path, config: Any) -> None:
    """Refuse a model that is not a causal language model of text, whole and unquantised.

    Raises:
        ModelLoadError: It is not; the message names what it is and the remedy.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise ModelLoadError(f"{path}: encoder-decoder models are not served; choose a causal one")
    names = config.architectures or []
    _check_inner(path, config, names)
    if not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        what = ", ".join(names) or f"type {config.model_type} without an architecture"
        raise ModelLoadError(
            f"{path}: {what} is not a causal language model; choose one whose config.json names "
            "an architecture ending in ForCausalLM"
        )
    _check_direction(path, config, names[0])
    served = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    if str(served).casefold() not in [name.casefold() for name in names]:
        raise ModelLoadError(
            f"{path}: {', '.join(names)} is not what transformers has for type "
            f"{config.model_type} ({served}), and code of a model's own is not run; choose a model "
            "that transformers has built in"
        )
    method = getattr(config, "quantization_config", None)
    method = method or getattr(config, "compression_config", None)
    if method:
        name = method.get("quant_method", "unknown") if isinstance(method, dict) else method
        raise ModelLoadError(
            f"{path}: weights are quantised ({name}); save the model unquantised in safetensors"
        )


def _check_inner(path: Path, config: Any, names: list[str]) -> None:
    """Refuse a model of pictures or sound, which has one of text inside."""
    parts = [part for part in ("vision_config", "audio_config") if getattr(config, part, None)]
    if config.get_text_config(decoder=True) is not config and not parts:
        parts = ["text_config"]
    if parts:
        what = ", ".join(names) or f"type {config.model_type}"
        raise ModelLoadError(
            f"{path}: {what} has a language model inside another ({', '.join(parts)}), which is "
            "not served; save the language model by itself, or choose the text-only variant"
        )


def _check_direction(path: Path, config: Any, name: str) -> None:
    """Refuse a model whose tokens look at later ones."""
    # "vision": only tokens of pictures look ahead
    looks_ahead = getattr(config, "use_bidirectional_attention", None) in (True, "all")
    # GPT-NeoX has `is_decoder` as well and makes no use of it; encoders know of cross-attention too
    encodes = hasattr(config, "add_cross_attention") and not getattr(config, "is_decoder", True)
    if looks_ahead or encodes:
        setting = "use_bidirectional_attention" if looks_ahead else "is_decoder=false"
        raise ModelLoadError(
            f"{path}: {name} looks at later tokens ({setting}): it is no causal language model; "
            "choose one that is"
        )


def check_weight_files(path: Path) -> None:
    """Refuse weights that are not there, or whose numbers do not mean what they say.

    Raises:
        ModelLoadError: They are quantised without a word in the config, or not in safetensors.

    Cost: reads the files' headers.
    """
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ModelLoadError(f"{path}: no *.safetensors file; convert the weights to safetensors")
    for file in files:
        for name, kind in _stored(file):
            is_weight = name.endswith("weight") or kind.startswith("F")
            if is_weight and kind not in _PLAIN:
                raise ModelLoadError(
                    f"{path}: {name} is stored as {kind}, which is quantised; save the model "
                    "unquantised in safetensors"
                )


def _stored(file: Path) -> Iterator[tuple[str, str]]:
    """Return names and formats of a file's tensors; none of a broken one, refused when read."""
    try:
        with file.open("rb") as opened:
            length: int = struct.unpack("<Q", opened.read(8))[0]
            fields = json.loads(opened.read(length)) if length <= _MAX_HEADER_BYTES else {}
    except (OSError, ValueError, struct.error):
        return
    for name, tensor in fields.items():
        if name != "__metadata__":
            yield name, tensor["dtype"]


def check_loaded(path: Path, info: dict[str, Any], model: Any) -> None:
    """Refuse a model of which weights are missing, or left over.

    Args:
        path: The model's directory.
        info: What `from_pretrained` says about loading.
        model: What it returned.

    Raises:
        ModelLoadError: A weight is missing, misshapen, or belongs to nothing in the model.
    """
    wrong = sorted(info["missing_keys"]) + sorted(map(str, info["mismatched_keys"]))
    if wrong:
        raise ModelLoadError(
            f"{path}: {len(wrong)} weights are missing or misshapen, {wrong[0]} first; "
            "fetch the model again"
        )
    extra = sorted(info["unexpected_keys"])
    if extra:
        raise ModelLoadError(
            f"{path}: {len(extra)} weights belong to nothing in {type(model).__name__}, {extra[0]} "
            "first; it was changed or quantised: choose one that transformers has built in"
        )


def check_vocabulary(path: Path, vocab_size: int) -> None:
    """Refuse a tokenizer that makes tokens which the model does not have.

    Judged by tokenizer.json, with which documents are prepared: what transformers makes of it may
    have further tokens, which nothing makes.

    Raises:
        ModelLoadError: It does; the message names one.

    Cost: reads the file; 40 ms for 50,000 tokens.
    """
    beyond = [(token, name) for name, token in _tokens(path) if token >= vocab_size]
    if beyond:
        token, name = min(beyond)
        raise ModelLoadError(
            f"{path}: the tokenizer makes {name!r} token {token}, but the model has only "
            f"{vocab_size}; use the tokenizer that belongs to it, or take the token out of it"
        )


def _tokens(path: Path) -> Iterator[tuple[str, int]]:
    """Return the tokens of tokenizer.json; none where transformers had to read another file."""
    try:
        fields = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    vocabulary = fields["model"].get("vocab") or {}
    if isinstance(vocabulary, dict):
        yield from vocabulary.items()
    else:  # of a unigram model: tokens with their scores, in order
        yield from ((entry[0], token) for token, entry in enumerate(vocabulary))
    yield from ((added["content"], added["id"]) for added in fields.get("added_tokens") or ())


def check_generation(path: Path, generation: Any) -> None:
    """Refuse what the generation config demands and nothing here does; say what is not followed.

    Raises:
        ModelLoadError: It suppresses, forces or otherwise decides tokens.
    """
    demanded = [name for name in _DEMANDS if getattr(generation, name, None)]
    if (getattr(generation, "num_beams", None) or 1) > 1:
        demanded.append("num_beams")
    if demanded:
        raise ModelLoadError(
            f"{path}/generation_config.json: {demanded[0]} is not supported; take it out, if "
            "answers without it will do"
        )
    ignored = [name for name in _RECOMMENDED if getattr(generation, name, None) is not None]
    if ignored:
        _log.info("generation_config.json: not followed, requests decide: %s", ", ".join(ignored))
