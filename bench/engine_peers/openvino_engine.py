"""OpenVINO GenAI's continuous batching, reading the model's Q4_1 file: the fastest of its forms.

Its prefix cache is on. It cannot be emptied, so that the model is loaded anew for each run. May
import openvino.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

from bench.engine_peers.base import Answers, Prompt, Task

_FILE = "smollm2-q4_1.gguf"


def load(task: Task, mode: str) -> "OpenVino":
    """Load the model."""
    return OpenVino(task.gguf_dir / (mode or _FILE), task.threads)


class OpenVino:
    """One continuous batching pipeline."""

    def __init__(self, file: Path, threads: int) -> None:
        self._file = file
        self._threads = threads
        self._pipeline: Any = self._load()

    def _load(self) -> Any:
        scheduling = openvino_genai.SchedulerConfig()
        scheduling.enable_prefix_caching = True
        settings = {"INFERENCE_NUM_THREADS": self._threads}
        return openvino_genai.ContinuousBatchingPipeline(self._file, scheduling, "CPU", settings)

    def forget(self) -> None:
        """Load the model anew."""
        self._pipeline = None  # the old one first, or memory counts double
        self._pipeline = self._load()

    def answer(self, prompts: Sequence[Prompt]) -> Answers:
        """Hand over all prompts at once."""
        results = self._pipeline.generate(
            [openvino.Tensor(np.array([prompt.ids], dtype=np.int64)) for prompt in prompts],
            [_greedy(prompt.max_tokens) for prompt in prompts],
        )
        return {
            prompt.prompt_id: list(result.m_generation_ids[0])
            for prompt, result in zip(prompts, results, strict=True)
        }

    def close(self) -> None:
        """Free the model."""
        self._pipeline = None


def _greedy(max_tokens: int) -> Any:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = max_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config
