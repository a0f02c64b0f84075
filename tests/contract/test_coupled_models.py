"""A model whose rows change each other is never silently wrong: refused by name, or kept apart.

Rows get mixed up through the tokens of a pass, as experts that take the best tokens of all do, or
through the rows of a batch. A configuration shows neither, so a tiny Llama's stands for them.
"""

from typing import Any

import pytest
from torch import Tensor
from transformers import LlamaForCausalLM

from docmill.errors import ModelLoadError
from engine.torch_engine import TorchEngine
from tests.support.exactness import make_rows, run
from tests.support.tiny_models.dense import llama


def mix(monkeypatch: pytest.MonkeyPatch, dims: tuple[int, ...]) -> None:
    """Let every Llama compute its tokens less their mean over these dimensions of [B, T, E]."""
    forward = LlamaForCausalLM.forward

    def mixed(self: Any, input_ids: Tensor, **kwargs: Any) -> Any:
        embeddings = self.get_input_embeddings()(input_ids)
        kwargs["inputs_embeds"] = 2 * embeddings - embeddings.mean(dim=dims, keepdim=True)
        return forward(self, **kwargs)

    monkeypatch.setattr(LlamaForCausalLM, "forward", mixed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_couples_tokens_is_refused(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Where no path computes rows as each is alone, the error names the class."""
    mix(monkeypatch, (0, 1))

    with pytest.raises(ModelLoadError, match=r"LlamaForCausalLM cannot be served.*differ"):
        TorchEngine.load(llama(), dtype=dtype)


@pytest.mark.parametrize("packable", [True, False])
def test_rows_that_would_change_each_other_never_meet(
    monkeypatch: pytest.MonkeyPatch, packable: bool
) -> None:
    """Rows of equal length too answer as each does alone, on whichever path serves the model."""
    mix(monkeypatch, (0,))
    monkeypatch.setattr(LlamaForCausalLM, "_supports_attention_backend", packable)
    engine = TorchEngine.load(llama(), dtype="float32")
    rows = make_rows((5, 5, 5, 40, 40, 9))
    alone = {key: tokens for row in rows for key, tokens in run(engine, [row]).items()}

    assert alone == run(engine, rows)
