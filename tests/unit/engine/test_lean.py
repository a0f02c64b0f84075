"""What importing transformers' models leaves out, in processes of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

_LEAN = """
import sys
from engine import lean
lean.import_models()
import torch
import engine.torch_engine
from transformers import LlamaConfig, LlamaForCausalLM
with lean.without_compiler(), torch.device("meta"):
    LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, num_attention_heads=1))
"""

#: Every class that transformers can find by name.
_NAMES = "import transformers.models as models; print(sorted(models._class_to_module.items()))"


def run(code: str) -> str:
    """Run Python code in a process of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_takes_long_and_serves_nothing_is_not_imported() -> None:
    """After everything that an engine needs, the compiler and the rest are not there."""
    heavy = "'scipy', 'torch._dynamo', 'torch._inductor', 'torch.distributed.tensor'"

    assert "[]\n" == run(f"{_LEAN}print([name for name in ({heavy}) if name in sys.modules])")


def test_what_asks_for_the_compiler_later_gets_the_real_one() -> None:
    """The stand-in is gone when the import is over: compiling works, masks index as torch does."""
    code = f"""{_LEAN}
import torch
from transformers import masking_utils
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
with masking_utils.TransformGetItemToIndex():
    assert torch.arange(3)[torch.tensor(1)].item() == 1
print(torch._dynamo.__file__)
"""

    assert "torch/_dynamo/__init__.py" in run(code)


def test_transformers_finds_every_model_as_before() -> None:
    """The second look through its files, which is left out, would have found the same."""
    assert run(_NAMES) == run(f"{_LEAN}{_NAMES}")


def test_a_release_that_wants_more_of_the_compiler_gets_all_of_it() -> None:
    """Where a stand-in lacks something, the ordinary import comes after it."""
    code = f"""
import sys
from engine import lean
lean._unmarked = None
{_LEAN}print("torch._dynamo" in sys.modules)
"""

    assert "True\n" == run(code)


def test_a_model_that_needs_the_compiler_while_it_is_made_gets_it() -> None:
    """What the stand-in does not have comes from the real one, which then stays."""
    code = f"""
{_LEAN}
with lean.without_compiler():
    double = torch.compile(lambda x: 2 * x, backend="eager")
    assert double(torch.ones(1)).item() == 2
print(torch._dynamo is sys.modules["torch._dynamo"], torch._dynamo.__file__)
"""

    printed = run(code)

    assert printed.startswith("True")
    assert "torch/_dynamo/__init__.py" in printed
