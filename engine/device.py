"""Where a model runs and in which number format.

Decides device and dtype where the setting is `auto`; knows what running out of memory looks like on
each device. May import torch and docmill.errors.
"""

from functools import cache

import torch

from docmill.errors import ModelLoadError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """Return the device for a setting of `auto`, `cpu` or `cuda`.

    Raises:
        ModelLoadError: CUDA is asked for and absent, or the name is unknown.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ModelLoadError(f"device {name!r}: torch finds no CUDA device; use device `cpu`")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ModelLoadError(f"device {name!r} is unknown; use auto, cpu or cuda") from error


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype for a setting: what it names, or the fastest that is sound on the device.

    `auto` depends on the hardware alone, so that a service that starts again answers as before.

    Raises:
        ModelLoadError: The dtype is unknown, or unusable on the device.
    """
    if name == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        return torch.bfloat16 if multiplies_bfloat16() else torch.float32
    if name not in DTYPES:
        raise ModelLoadError(f"dtype {name!r} is not supported; use one of auto, {_known()}")
    if DTYPES[name] is torch.float16 and device.type == "cpu":
        raise ModelLoadError("dtype 'float16' overflows and is slow on a CPU; use bfloat16 or auto")
    return DTYPES[name]


def _known() -> str:
    return ", ".join(DTYPES)


@cache
def multiplies_bfloat16() -> bool:
    """Say whether this CPU has bf16 products; with them, bf16 is 2x to 4x as fast as fp32."""
    return any(has for name, has in torch.cpu.get_capabilities().items() if "bf16" in name)


@cache
def has_matrix_tiles() -> bool:
    """Say whether this CPU multiplies bf16 tiles in hardware (AMX)."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16", False))


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an exception means that memory ran out, on whichever device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # torch's CPU allocator has no class of its own
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def release_memory() -> None:
    """Hand memory that torch keeps for reuse back to the device."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
