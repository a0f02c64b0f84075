"""Where a model's files are, what it is called and which version of it this is.

`resolve` turns what an operator names (a directory, a hub name, or `smollm2-135m`) into files on
this machine, setting them up on first use. The version is read off the files alone, so
preprocessing and engine agree on it without talking. Loads no weights and imports no torch.
`python -m workers.models [NAME]` prepares a model and prints its directory.
"""

import hashlib
import json
import re
import struct
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from docmill.errors import ConfigError, DocmillError, ModelLoadError
from workers import log, settings, smollm2
from workers.settings import Settings
from workers.smollm2 import Report

#: The name of the small model that docmill can set up by itself.
SMOLLM2 = "smollm2-135m"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
#: What decides a prompt's tokens or an answer's end, beside the weights.
_SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
#: What different families call the longest sequence their positions allow.
_CONTEXT_LEN_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length")
_NUM_SAMPLES, _SAMPLE_BYTES = 64, 4096


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this machine. `path` is None for the fake engine, which needs none.

    `version`: 12 hex digits over the files. `context_len`: prompt plus output tokens.
    """

    path: Path | None
    name: str
    version: str
    context_len: int


FAKE = ModelFiles(path=None, name="fake", version="fake", context_len=32_768)


def for_settings(config: Settings, report: Report | None = None) -> ModelFiles:
    """Return the model the service is set to serve, under its served name and context length.

    Raises:
        ConfigError: No such model, or its directory lacks a file.
        ModelLoadError: The model cannot be set up here.
    """
    files = FAKE
    if config.engine != "fake":
        files = resolve(config.model, config.state_dir, report)
    context_len = min(files.context_len, config.max_context_len or files.context_len)
    return replace(files, name=config.model_name or files.name, context_len=context_len)


def resolve(name: str, state_dir: Path, report: Report | None = None) -> ModelFiles:
    """Find the model `name`, setting it up on first use.

    Args:
        name: A model directory, a hub name such as `org/model`, or `smollm2-135m`.
        state_dir: Where set-up models are kept; `~` is expanded.
        report: Told in one line what is being done when that takes more than a moment.

    Raises:
        ConfigError: No such model, or its directory lacks a file.
        ModelLoadError: The model cannot be set up here.
    """
    report = report or _say_nothing
    if name == SMOLLM2:
        return _describe(smollm2.set_up(state_dir.expanduser() / "models", report), SMOLLM2)
    path = Path(name).expanduser()
    if path.is_dir():
        return _describe(path.resolve(), path.resolve().name)
    if path.exists():
        raise ConfigError(f"model {name}: this is a file; name the directory that holds the model")
    if _HUB_NAME.fullmatch(name):
        return _describe(_from_hub(name, report), name)
    raise ConfigError(
        f"model {name}: no such directory; name a model directory, a hub name such as org/model, "
        f"or {SMOLLM2}"
    )


def _say_nothing(line: str) -> None:
    pass


def _describe(path: Path, name: str) -> ModelFiles:
    config = _read_config(path)
    for needed in ("tokenizer.json", "tokenizer_config.json"):
        if not (path / needed).is_file():
            raise ConfigError(
                f"model {name}: {path} has no {needed}; save a fast tokenizer there "
                "(AutoTokenizer.from_pretrained(…).save_pretrained(…))"
            )
    weights = _weight_files(path, name)
    return ModelFiles(path, name, _version(path, weights), _context_len(config, path))


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"model {path.name}: {path} has no config.json") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"model {path.name}: {path}/config.json: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"model {path.name}: {path}/config.json is not a JSON object")
    return config


def _context_len(config: dict[str, Any], path: Path) -> int:
    parts = [part for part in (config, config.get("text_config")) if isinstance(part, dict)]
    for part in parts:
        for name in _CONTEXT_LEN_NAMES:
            context_len = part.get(name)
            if isinstance(context_len, int) and context_len > 0:
                return context_len
    raise ConfigError(
        f"model {path.name}: {path}/config.json names no {_CONTEXT_LEN_NAMES[0]}; add it, or is "
        "this no causal language model?"
    )


def _weight_files(path: Path, name: str) -> list[Path]:
    wanted: set[str] = set()
    for index in path.glob("*.index.json"):
        wanted.update(_read_index(index))
    missing = sorted(file for file in wanted if not (path / file).is_file())
    if missing:
        raise ModelLoadError(f"model {name}: {path} lacks the weight file {missing[0]}")
    files = sorted({file for pattern in _WEIGHT_PATTERNS for file in path.glob(pattern)})
    if not files:
        raise ModelLoadError(f"model {name}: {path} holds no weights ({_WEIGHT_PATTERNS[0]})")
    return files


def _read_index(index: Path) -> set[str]:
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelLoadError(f"model {index.parent.name}: {index} is no weight index") from error


def _version(path: Path, weights: list[Path]) -> str:
    """Hash the small files whole, and each weight file's size, header and evenly spread samples.

    The samples tell two fine-tunes of one architecture apart, whose headers and sizes are equal.
    """
    digest = hashlib.blake2b(digest_size=6)
    for name in _SMALL_FILES:
        content = (path / name).read_bytes() if (path / name).is_file() else b""
        digest.update(struct.pack("<Q", len(content)) + content)
    for file in weights:
        size = file.stat().st_size
        digest.update(file.name.encode() + struct.pack("<Q", size))
        with file.open("rb") as opened:
            digest.update(opened.read(_header_len(opened.read(8), size)))
            for sample in range(_NUM_SAMPLES):
                opened.seek(sample * size // _NUM_SAMPLES)
                digest.update(opened.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _header_len(first_bytes: bytes, size: int) -> int:
    """Length of a safetensors header; the samples alone must do for other formats."""
    length: int = struct.unpack("<Q", first_bytes.ljust(8, b"\0"))[0]
    return length if length <= min(size, 1 << 26) else 0


def _from_hub(name: str, report: Report) -> Path:
    """Return the hub model's local snapshot, reaching for the network only when it is not whole."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = ["*.json", "*.jinja", "*.safetensors"]
    try:
        local = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=True))
        _describe(local, name)
    except (LocalEntryNotFoundError, ConfigError, ModelLoadError):
        report(f"downloading {name} from the model hub (once)")
    else:
        return local
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, OSError, ValueError) as error:
        sentence = re.split(r"(?<=\.)\s|\n", str(error).strip())[0] or type(error).__name__
        raise ModelLoadError(
            f"model {name}: no such directory, and the model hub does not give it "
            f"({sentence}); check the name, or name a model directory"
        ) from error


def main() -> None:
    """Prepare the model that is named, or the configured one, and print its directory."""
    try:
        config = settings.load(model=sys.argv[1] if len(sys.argv) > 1 else None)
        log.configure(config.log_level, config.log_format, "models")
        files = resolve(config.model, config.state_dir, _report_to_person)
    except DocmillError as error:
        sys.exit(error.message)
    sys.stdout.write(f"{files.path}\n")


def _report_to_person(line: str) -> None:
    sys.stderr.write(f"docmill: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
