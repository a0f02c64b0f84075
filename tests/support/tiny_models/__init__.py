"""One tiny random model of each architecture that the engine must answer exactly with.

Decides which architectures those are: `ARCHITECTURES` maps each one's name to a function that
returns its directory. A further one is one function in a module of this package and one line here.
May import the modules of this package and tests.support.tiny_model.
"""

from collections.abc import Callable
from pathlib import Path

from tests.support.tiny_models.dense import gemma2, gemma3, gpt2, llama, mistral, phi3, qwen2, qwen3
from tests.support.tiny_models.experts import deepseek_v3, gpt_oss, qwen3_moe
from tests.support.tiny_models.stateful import deepseek_v4, qwen3_next

ARCHITECTURES: dict[str, Callable[[], Path]] = {
    build.__name__: build
    for build in (
        llama,
        qwen2,
        qwen3,
        mistral,
        phi3,
        gemma2,
        gemma3,
        gpt2,
        qwen3_moe,
        gpt_oss,
        deepseek_v3,
        deepseek_v4,
        qwen3_next,
    )
}
