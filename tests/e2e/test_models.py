"""Whole jobs through real models: tiny random ones, and the small one that the demo uses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import docmill
from tests.support.tiny_model import tiny_deepseek_v4, tiny_llama

#: Where `make test` has put the model before.
USER_STATE = Path("~/.cache/docmill").expanduser()

WORDS = ("the", "river", "runs", "under", "an", "old", "bridge", "and", "names", "its", "source")


def _mixed_lengths(path: Path, number: int) -> None:
    """Write documents of 1 to about 150 words, no two of them alike."""
    with path.open("w", encoding="utf-8") as file:
        for at in range(number):
            text = " ".join(WORDS[(at + word) % len(WORDS)] for word in range(1 + at * at // 2))
            file.write(json.dumps({"id": f"d{at}", "text": f"{at}: {text}"}) + "\n")


def _answers(source: Path, target: Path, *asked: str | Path, **environment: str) -> dict[str, Any]:
    finished = docmill(
        *("run", source, "-o", target, "-p", "Sum up.", "--dtype", "float32", *asked),
        **environment,
    )
    assert finished.status == 0, finished.stderr
    lines = target.read_text(encoding="utf-8").split("\n")[:-1]
    bodies = {line["custom_id"]: line["response"]["body"] for line in map(json.loads, lines)}
    return {name: body["choices"][0]["message"]["content"] for name, body in bodies.items()}


@pytest.mark.parametrize("model", [tiny_llama, tiny_deepseek_v4], ids=["llama", "deepseek-v4"])
def test_batched_answers_equal_single_ones(model: Any, tmp_path: Path) -> None:
    """A mixed-length job gives the same answers in batches and one document at a time."""
    source = tmp_path / "in.jsonl"
    _mixed_lengths(source, 16)
    asked = ("--model", model(), "--max-tokens", "24")
    batched = _answers(source, tmp_path / "batched.jsonl", *asked)
    single = _answers(source, tmp_path / "single.jsonl", *asked, DOCMILL_MAX_ROWS="1")

    assert len(batched) == 16
    assert single == batched


@pytest.mark.skipif(not (USER_STATE / "models").is_dir(), reason="run `make model` first")
def test_the_small_real_model_answers(tmp_path: Path) -> None:
    """SmolLM2 says something sensible through the whole service."""
    source = tmp_path / "paris.txt"
    source.write_text("The capital of France is Paris. It lies on the Seine.", encoding="utf-8")
    finished = docmill(
        *("run", source, "-o", "-", "--max-tokens", "24"),
        *("-p", "Answer in one sentence: what is the capital of France?\n\n{document}"),
        DOCMILL_STATE_DIR=str(USER_STATE),
    )
    body = json.loads(finished.stdout)["response"]["body"]

    assert finished.status == 0
    assert body["model"] == "smollm2-135m"
    assert "Paris" in body["choices"][0]["message"]["content"]
