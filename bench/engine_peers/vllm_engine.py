"""vLLM on the CPU, eager or compiled, with its prefix cache as it is by default.

May import vLLM.
"""

import os
from collections.abc import Sequence
from typing import Any

from bench.engine_peers.base import Answers, Prompt, Task

#: Room for keys and values: twice what the workload of 64 documents needs at once. The default
#: takes half of the machine.
_KV_GIB = 2


def load(task: Task, mode: str) -> "Vllm":
    """Load the model; `mode` is eager or compiled."""
    os.environ |= {  # noqa: TID251 - the library is set up by its environment
        "VLLM_CPU_KVCACHE_SPACE": str(_KV_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{task.threads - 1}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its process would poll
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    from vllm import LLM

    llm = LLM(
        model=str(task.model),
        dtype=task.dtype,
        enforce_eager=mode == "eager",
        generation_config="vllm",
        seed=0,
    )
    return Vllm(llm)


class Vllm:
    """One `LLM`."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm

    def forget(self) -> None:
        """Empty the prefix cache."""
        assert self._llm.reset_prefix_cache()

    def answer(self, prompts: Sequence[Prompt]) -> Answers:
        """Hand over all prompts at once."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        outputs = self._llm.generate(
            [TokensPrompt(prompt_token_ids=list(prompt.ids)) for prompt in prompts],
            [
                SamplingParams(
                    temperature=0.0,
                    max_tokens=prompt.max_tokens,
                    ignore_eos=True,
                    detokenize=False,
                )
                for prompt in prompts
            ],
            use_tqdm=False,
        )
        return {
            prompt.prompt_id: list(output.outputs[0].token_ids)
            for prompt, output in zip(prompts, outputs, strict=True)
        }

    def close(self) -> None:
        """The model goes with the process."""
