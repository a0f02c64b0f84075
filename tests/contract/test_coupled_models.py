"""A model whose rows change each other is never silently wrong: refused by name, or kept apart."""

import pytest

from docmill.errors import ModelLoadError
from engine.torch_engine import TorchEngine
from tests.support.exactness import make_rows, run
from tests.support.tiny_models.coupled import mixed_rows, mixed_tokens


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_couples_tokens_is_refused(dtype: str) -> None:
    """Where no path computes rows as each is alone, the error names the class."""
    with pytest.raises(ModelLoadError, match="MixedTokensForCausalLM"):
        TorchEngine.load(mixed_tokens(), dtype=dtype)


def test_rows_that_would_change_each_other_never_meet() -> None:
    """Rows of equal length too answer as each does alone, if the model is served at all."""
    engine = TorchEngine.load(mixed_rows(), dtype="float32")
    rows = make_rows((5, 5, 5, 40, 40, 9))
    alone = {key: tokens for row in rows for key, tokens in run(engine, [row]).items()}

    assert alone == run(engine, rows)
