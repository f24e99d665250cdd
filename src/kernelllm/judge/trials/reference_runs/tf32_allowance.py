"""Allows TF32 where torch does, and nowhere else.

PyTorch lets fp32 convolutions compute in TF32 by default, and matrix products not. A candidate is right within the error that
TF32 convolutions alone would cause, and behind that error TF32 products can hide. Where a candidate needed the excuse for a model
that has products as well, one more trial is made with inputs and convolution weights that TF32 holds exactly: a convolution of
them is no less exact in TF32, and what is still inexact is something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernelllm.judge.checks.operator_families import HEAVY, family
from kernelllm.problems.nested import mapped
from kernelllm.problems.without_dynamo import OperatorMode

_CONVOLVED = 3
"""Inputs and weights of convolutions have at least so many dimensions; the weights of products two."""
_OPERANDS = {torch.ops.aten.convolution.default: 2, torch.ops.aten.convolution_backward.default: 3}
"""How many of an operator's first arguments are convolved."""


def has_matrix_products(operators: Mapping[str, int]) -> bool:
    """Whether a model that ran these ATen operators multiplies matrices beside its convolutions."""
    families = {family(name) for name in operators}
    return "convolution" in families and bool(families & HEAVY - {"convolution"})


def round_to_tf32(value: Any) -> Any:
    """The same with every float32 tensor of three or more dimensions rounded to TF32, in lists, tuples and dictionaries too."""
    return mapped(value, _rounded)


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is not torch.float32 or tensor.dim() < _CONVOLVED:
        return tensor
    made = to_tf32(tensor.detach())
    return made if made.stride() == tensor.stride() or 0 in tensor.stride() else torch.empty_like(tensor).copy_(made)


class ExactConvolutions(OperatorMode):
    """No convolution in TF32, where torch lets a GPU do so."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        assert generator is None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cudnn: Any = torch.backends.cudnn
        with cudnn.flags(enabled=True, allow_tf32=False):
            return func(*args, **(kwargs or {}))


class Tf32Convolutions(OperatorMode):
    """Rounds the operands of fp32 convolutions to TF32: the precision that PyTorch allows them by default on a GPU.

    cuDNN does not use it at every size, so on a GPU too eager's own result does not show it. There the low bits are
    cut off, as tensor cores do with operands that nobody rounded before. With a ``generator`` each operand goes up or down at random.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = _OPERANDS.get(func, 0)
        if operands and args[0].dtype is torch.float32:
            shorten = self._at_random if self._generator else truncate_to_tf32 if args[0].is_cuda else to_tf32
            args = (*map(shorten, args[:operands]), *args[operands:])
        return func(*args, **(kwargs or {}))

    def _at_random(self, tensor: torch.Tensor) -> torch.Tensor:
        bits = tensor.contiguous().view(torch.int32)
        low = torch.randint(0, 0x2000, bits.shape, generator=self._generator, device=bits.device, dtype=torch.int32)
        return ((bits + low) & ~0x1FFF).view(torch.float32)


def to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """float32 rounded to 10 mantissa bits, to nearest even."""
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def truncate_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """float32 with all but 10 mantissa bits cut off."""
    return (tensor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)
