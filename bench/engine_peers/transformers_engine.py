"""transformers, the way its users run it: `generate` in static batches, or continuous batching.

Decides the ways: one document at a time, left-padded batches of 8 as documents come, such batches
sorted by length, and `generate_batch`'s manager. May import torch and transformers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.utils import logging

from bench.engine_peers.base import Answers, Prompt, Task

_BATCH = 8
#: Keys and values of 24 K tokens (in pages of 256), and tokens of one pass. The defaults are for a
#: GPU's memory; a pass costs what its mask covers, passes times all pages read.
_BLOCKS, _BATCH_TOKENS = 96, 512


def load(task: Task, mode: str) -> "Transformers":
    """Load the model; `mode` is one of the ways."""
    torch.set_num_threads(task.threads)
    model = load_model(task, task.dtype)
    ways: dict[str, Callable[[Sequence[Prompt]], Answers]] = {
        "one_by_one": lambda prompts: generate(model, prompts, 1),
        "as_they_come_8": lambda prompts: generate(model, prompts, _BATCH),
        "sorted_8": lambda prompts: generate(model, by_length(prompts), _BATCH),
        "generate_batch": lambda prompts: generate_batch(model, prompts),
    }
    return Transformers(ways[mode])


def load_model(task: Task, dtype: str) -> Any:
    """Load the model the way transformers' users do."""
    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(task.model, dtype=getattr(torch, dtype))
    model.generation_config.pad_token_id = 0
    return model.eval()


class Transformers:
    """One model and one way to use it; nothing is kept from one call to the next."""

    def __init__(self, way: Callable[[Sequence[Prompt]], Answers]) -> None:
        self._way = way

    def forget(self) -> None:
        """There is nothing to forget."""

    def answer(self, prompts: Sequence[Prompt]) -> Answers:
        """Answer in the chosen way."""
        with torch.inference_mode():
            return self._way(prompts)

    def close(self) -> None:
        """The model goes with the process."""


def by_length(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return prompts in an order that pads little."""
    return sorted(prompts, key=lambda prompt: len(prompt.ids))


def generate(model: Any, prompts: Sequence[Prompt], batch_size: int) -> Answers:
    """Answer batch by batch, padded on the left."""
    answers = {}
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        longest = max(len(prompt.ids) for prompt in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for index, prompt in enumerate(batch):
            ids[index, longest - len(prompt.ids) :] = torch.tensor(prompt.ids)
            mask[index, longest - len(prompt.ids) :] = 1
        limit = max(prompt.max_tokens for prompt in batch)
        out = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=limit
        )
        for prompt, tokens in zip(batch, out[:, longest:].tolist(), strict=True):
            answers[prompt.prompt_id] = tokens[: prompt.max_tokens]
    return answers


def generate_batch(model: Any, prompts: Sequence[Prompt]) -> Answers:
    """Answer with continuous batching; `generate_batch` itself knows one limit for all prompts."""
    manager_of = model.continuous_batching_context_manager(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0),
        continuous_batching_config=ContinuousBatchingConfig(
            num_blocks=_BLOCKS, max_batch_tokens=_BATCH_TOKENS
        ),
    )
    answers: Answers = {}
    with manager_of as manager:
        for prompt in prompts:
            manager.add_request(list(prompt.ids), prompt.prompt_id, prompt.max_tokens)
        while len(answers) < len(prompts):
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                answers[result.request_id] = list(result.generated_tokens)
            assert manager.is_running(), "continuous batching ended early"
    return answers
