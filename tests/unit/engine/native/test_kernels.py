"""The kernels against plain torch, and against themselves in other company.

Sums in fp32 of products of bf16 are exact to 1e-6 or so; what is left is one rounding of the result
to bf16, half a unit in its last place: a relative error of 2**-9.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from engine.native.layers import NativeHead, NativeLinear, NativeNorm

#: Twice the half unit: where a sum lies next to the middle, both neighbours are right.
ROUNDING = 2**-8


def random(*shape: int, seed: int = 0) -> Tensor:
    """Return random bf16 values of order one."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def assert_rounded(expected: Tensor, got: Tensor) -> None:
    """Hold a bf16 result to an exact one."""
    assert got.dtype is torch.bfloat16
    scale = expected.abs().max()

    assert torch.allclose(expected, got.double(), rtol=ROUNDING, atol=float(1e-5 * scale))


@pytest.mark.parametrize("rows", [1, 3, 11, 12, 13, 200])
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 16), (96, 64), (50, 34), (7, 2)])
def test_rows_times_a_weight(rows: int, outputs: int, inputs: int) -> None:
    """Any number of rows, and of outputs, also such that fill no panel; with a bias or without."""
    ops = torch.ops.docmill
    x, weight, bias = random(rows, inputs), random(outputs, inputs, seed=1), random(outputs).float()
    packed = ops.pack(weight)
    expected = x.double() @ weight.double().T

    assert_rounded(expected, ops.linear(x, packed, outputs, None, None, False))
    assert_rounded(expected + bias.double(), ops.linear(x, packed, outputs, bias, None, False))


def test_exact_scores_are_not_rounded() -> None:
    """The head's products come as fp32."""
    x, weight = random(5, 64), random(90, 64, seed=1)

    got = torch.ops.docmill.linear_exact(x, torch.ops.docmill.pack(weight), 90, None)

    assert got.dtype is torch.float32
    assert torch.allclose(x.double() @ weight.double().T, got.double(), rtol=1e-5, atol=1e-5)


def test_a_residual_is_added_before_rounding() -> None:
    """The sum is rounded once."""
    x, weight, residual = random(14, 64), random(96, 64, seed=1), random(14, 96, seed=2)

    got = torch.ops.docmill.linear(x, torch.ops.docmill.pack(weight), 96, None, residual, False)

    assert_rounded(x.double() @ weight.double().T + residual.double(), got)


def test_a_gate_lets_through_what_it_says() -> None:
    """Panels of 16 gates and the 16 values they gate give silu(gate) * value."""
    x, gate, value = random(14, 64), random(48, 64, seed=1), random(48, 64, seed=2)
    panels = torch.stack((gate.view(3, 16, 64), value.view(3, 16, 64)), 1).view(96, 64)

    got = torch.ops.docmill.linear(x, torch.ops.docmill.pack(panels), 96, None, None, True)

    expected = silu(x.double() @ gate.double().T) * (x.double() @ value.double().T)
    assert torch.allclose(expected, got.double(), rtol=ROUNDING, atol=1e-4)


def test_extreme_gates_are_zero_or_one() -> None:
    """Far from zero the gate neither overflows nor gives NaN."""
    x = torch.tensor([[300.0, 1.0], [-300.0, 1.0]]).bfloat16()
    panels = torch.zeros(32, 2).bfloat16()
    panels[0, 0] = panels[16, 1] = 1.0

    got = torch.ops.docmill.linear(x, torch.ops.docmill.pack(panels), 32, None, None, True)

    assert torch.allclose(torch.tensor([300.0, 0.0]), got[:, 0].float(), atol=1e-30)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """To the last bit: alone, among 11 others, among 300."""
    ops = torch.ops.docmill
    x, packed = random(301, 64), ops.pack(random(96, 64, seed=1))
    alone = ops.linear(x[:1], packed, 96, None, None, False)

    for rows in (2, 12, 13, 301):
        assert torch.equal(alone, ops.linear(x[:rows], packed, 96, None, None, False)[:1])


@pytest.mark.parametrize("size", [16, 576])
def test_norm(size: int) -> None:
    """The mean square becomes 1; the weight comes after a rounding, as in Llama."""
    x, weight = random(9, size), random(size, seed=1).float()
    exact = x.float() * (x.float().square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    got = torch.ops.docmill.rms_norm(x, weight, 1e-5)

    assert torch.allclose(exact.bfloat16().float() * weight, got.float(), rtol=2 * ROUNDING)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "part of wider rows": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "columns": lambda x: x.mT.contiguous().mT,
    "every other row": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "one row many times": lambda x: x[:, :1].expand_as(x),
    "no rows": lambda x: x[:, :0],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_inputs_may_lie_in_memory_as_they_like(layout: Callable[[Tensor], Tensor]) -> None:
    """A model may hand over a view of something else."""
    x = layout(random(1, 5, 64))
    weight, residual = random(50, 64, seed=1), layout(random(1, 5, 50, seed=2))
    linear, norm = NativeLinear(weight, None), NativeNorm(torch.ones(64), 1e-5)

    assert torch.equal(linear(x.contiguous()), linear(x))
    assert torch.equal(NativeHead(weight, None)(x.contiguous()), NativeHead(weight, None)(x))
    assert torch.equal(norm(x.contiguous()), norm(x))
    given = linear.packed, 50, None
    added = torch.ops.docmill.linear(x[0].contiguous(), *given, residual[0].contiguous(), False)
    assert torch.equal(added, torch.ops.docmill.linear(x[0], *given, residual[0], False))


def test_what_would_be_misread_is_refused() -> None:
    """Another dtype, rows of another length, and other outputs than the weight has."""
    ops = torch.ops.docmill
    packed = ops.pack(random(32, 64))

    with pytest.raises(RuntimeError, match="dtype"):
        ops.linear(random(2, 64).float(), packed, 32, None, None, False)
    with pytest.raises(RuntimeError, match="rows of 32"):
        ops.linear_exact(random(2, 32), packed, 32, None)
    with pytest.raises(RuntimeError, match="33 outputs"):
        ops.linear_exact(random(2, 64), packed, 33, None)
    with pytest.raises(RuntimeError, match="other rows"):
        ops.linear(random(2, 64), packed, 32, None, random(1, 32), False)


def test_sizes_that_would_be_read_beyond_are_refused() -> None:
    """An odd number of inputs, a norm that fills no vector, heads that fill no panel."""
    ops = torch.ops.docmill
    where = torch.zeros(1, dtype=torch.int64)

    with pytest.raises(RuntimeError, match="3 inputs"):
        ops.pack(random(32, 3))
    with pytest.raises(RuntimeError, match="24 values"):
        ops.rms_norm(random(2, 24), torch.ones(24), 1e-5)
    with pytest.raises(RuntimeError, match="heads of 16"):
        ops.store(random(1, 48), where, *random(2, 32, 1, 16), 1, 1, *[None] * 4, 0.0)
    turns = random(2, 1, 16)
    with pytest.raises(RuntimeError, match="16 turned"):
        ops.store(random(1, 96), where, *random(2, 32, 1, 32), 1, 1, *turns, None, None, 0.0)
