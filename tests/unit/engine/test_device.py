"""Where a model runs and in which format."""

import pytest
import torch

from docmill.errors import ModelLoadError
from engine import device
from engine.device import choose_device, choose_dtype, is_out_of_memory

CPU = torch.device("cpu")


@pytest.mark.parametrize(("has", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_bfloat16_where_the_hardware_has_it(
    monkeypatch: pytest.MonkeyPatch, has: bool, dtype: torch.dtype
) -> None:
    """On a CPU without bf16 products the answer is fp32."""
    monkeypatch.setattr(device, "multiplies_bfloat16", lambda: has)

    assert choose_dtype("auto", CPU) is dtype


@pytest.mark.parametrize("name", ["int3", "float16"])
def test_a_dtype_that_cannot_be_used_is_refused(name: str) -> None:
    """The message names the dtype and another to use."""
    with pytest.raises(ModelLoadError, match=rf"{name}.*auto"):
        choose_dtype(name, CPU)


def test_a_named_dtype_is_taken_as_it_is() -> None:
    """Nothing is measured when the dtype is given."""
    assert choose_dtype("float32", CPU) is torch.float32


def test_devices_that_do_not_exist_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA without CUDA, and a word that is no device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert CPU == choose_device("auto")
    with pytest.raises(ModelLoadError, match=r"cuda.*cpu"):
        choose_device("cuda")
    with pytest.raises(ModelLoadError, match="toaster"):
        choose_device("toaster")


def test_running_out_of_memory_is_recognized() -> None:
    """The CPU allocator's error, CUDA's class and Python's own all count; others do not."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)

    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
