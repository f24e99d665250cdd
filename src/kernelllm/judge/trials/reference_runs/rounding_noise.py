"""Adds rounding noise to a run: inputs, parameters and all that is computed from them move by a few last bits.

Moved inputs alone do not show all of it. Of two numbers, a group norm makes -1 and 1 whatever they are; in float32 the rounding of their
mean, far larger than their difference, moves both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from kernelllm.judge.checks.operator_families import HEAVY, family, operator, weight
from kernelllm.problems.nested import mapped
from kernelllm.problems.without_dynamo import OperatorMode

_EXACT = frozenset((
    "abs", "amax", "amin", "aminmax", "ceil", "clamp", "clamp_max", "cummax", "cummin", "floor", "fmax", "fmin", "hardtanh", "kthvalue",
    "masked_select", "max", "max pooling", "maximum", "median", "min", "minimum", "neg", "relu", "round", "sign", "sort", "topk", "trunc",
    "where",
))  # fmt: skip
"""Families of operators whose result is an operand, or a whole number: nothing is rounded."""
_CENTRED = frozenset((
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
    "_batch_norm_with_update",
))  # fmt: skip
"""Norms that subtract a mean, which they return beside its scale."""
_WEIGHTS = frozenset(("_softmax", "_safe_softmax"))
_LOGARITHMS = "_log_softmax"
"""One number is subtracted from a whole row: the logarithm of its sum, whose rounding does not average out over the row."""
_MOST_OF_SCORES = 0.005
"""Beyond it a weight says nothing, and a kernel that is further off has another reason."""
_RUNNING = frozenset(("cumsum",))
"""Each sum is rounded, and goes on to all that follow: with equal steps to the same side."""
_ALIKE = 1024
"""So many of them in a row at most: more would be larger than what the tolerance allows for a sum."""
_COMPUTED = 0.25
"""What is computed moves by this share of what inputs and parameters move by, which stands for the rounding of long sums as well."""

NOISE_SEED = 0x5EED_0F05
"""Added to the seed of the inputs: noise of their own seed follows their values, on a GPU as much as those of doubles on a CPU."""


class Float64Noise(OperatorMode):
    """Moves what operators compute in float64 at random. ``roundings``: units of rounding of ``narrow`` that inputs and parameters move
    by."""

    def __init__(self, generator: torch.Generator, roundings: float, narrow: torch.dtype = torch.float32) -> None:
        super().__init__()
        self._narrow, self._epsilons = narrow, torch.finfo(narrow).eps / torch.finfo(torch.float32).eps
        self._generator, self._roundings = generator, roundings * _COMPUTED

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), str(func)
        if operator(name) in _CENTRED and result[1].numel():
            result = (result[0] + self._of_mean(operator(name), args[1], *result[:3]), *result[1:])
        if operator(name) in _WEIGHTS and args[0].dim() and result.numel() and self._roundings <= 1:
            result = result * (1 + self._of_scores(args[0], args[1]))
        if operator(name) == _LOGARITHMS and result.numel():
            subtracted = _subtracted(args[0], result, args[1])
            result = result + (subtracted - self.moved(subtracted))
        if operator(name) in _RUNNING and result.dtype is torch.float64 and result.numel():
            share = min(self._roundings, 1.0) * self._epsilons * torch.finfo(torch.float32).eps  # it is no share of what all else moves by
            moved = result + _of_running_sums(result * share, args[1], self._generator)
            result = torch.where(result.to(self._narrow) == result, result, moved)
        if family(name) in _EXACT or not (weight(name) or family(name) in HEAVY):
            return result
        if func._schema.is_mutable:
            for tensor in (t for t in (result if isinstance(result, tuple | list) else [result]) if isinstance(t, torch.Tensor)):
                tensor.copy_(self.moved(tensor))
            return result
        return tree_map(lambda leaf: self.moved(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """What working precision holds exactly (zero, counts, powers of two) stays."""
        if tensor.dtype is not torch.float64:
            return tensor
        noise = torch.rand(tensor.shape, dtype=tensor.dtype, device=tensor.device, generator=self._generator)
        moved = _moved_by(tensor, noise, self._roundings * self._epsilons)
        return torch.where(tensor.to(self._narrow) == tensor, tensor, moved)

    def _of_scores(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """What rounding makes of an exponential of large numbers: who computes it twice, as part and as sum of a row, has two of them."""
        largest = scores.abs().nan_to_num(0.0, 0.0).amax(dim, keepdim=True)
        noise = torch.rand(largest.shape, dtype=torch.float64, device=scores.device, generator=self._generator)
        return (largest * self._roundings * torch.finfo(torch.float32).eps).clamp_max(_MOST_OF_SCORES) * (2 * noise - 1)

    def _of_mean(self, name: str, factor: torch.Tensor | None, out: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """What another rounding of the mean changes of a norm's output."""
        change = (mean - self.moved(mean)) * scale
        if name != "native_layer_norm":
            channels = (-1, out.shape[1], *(1,) * (out.dim() - 2))
            of_each = out.shape[1] // mean.shape[-1]
            change = change.repeat_interleave(of_each, -1).reshape(channels)
            factor = None if factor is None else factor.reshape(channels)
        return change if factor is None else change * factor


class EagerNoise(OperatorMode):
    """Moves what operators compute in working precision at random, by up to a unit of its rounding: eager, had it rounded otherwise."""

    def __init__(self, generator: torch.Generator | None) -> None:
        super().__init__()
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = func(*args, **(kwargs or {})), str(func)
        if func._schema.is_mutable or family(name) in _EXACT or not (weight(name) or family(name) in HEAVY):
            return result
        if operator(name) == _LOGARITHMS and result.numel():
            subtracted = _subtracted(args[0], result, args[1])
            result = result + (subtracted - self._moved(subtracted))
        if operator(name) in _RUNNING and result.is_floating_point() and result.numel():
            share = self._unit(result) * torch.finfo(result.dtype).eps
            result = (result + _of_running_sums(share, args[1], self._generator).nan_to_num(0.0, 0.0, 0.0)).to(result.dtype)
        return tree_map(self._moved, result)

    def _moved(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        noise = torch.rand(leaf.shape, dtype=torch.float64, device=leaf.device, generator=self._generator)
        moved = (leaf + self._unit(leaf) * torch.finfo(leaf.dtype).eps * (2 * noise - 1)).to(leaf.dtype)
        return torch.where(leaf.isfinite(), moved, leaf)  # a mask's minus infinity is no number that rounds

    def _unit(self, leaf: torch.Tensor) -> torch.Tensor:
        """What a unit of rounding is a share of."""
        return leaf.double()


class WideNoise(EagerNoise):
    """Eight times as much: all decisions within the reach of rounding turn over in every other run."""

    def _unit(self, leaf: torch.Tensor) -> torch.Tensor:
        return 8 * leaf.double()


class LastBitNoise(EagerNoise):
    """The same, and no further than to a neighbour: one number of six moves, which is about as much again as eager has rounded."""

    def _unit(self, leaf: torch.Tensor) -> torch.Tensor:
        wide = leaf.double()
        return torch.where(wide == 0, 0.0, torch.ldexp(torch.full_like(wide, 0.6), torch.frexp(wide).exponent - 1))


def _subtracted(x: torch.Tensor, result: torch.Tensor, dim: int) -> torch.Tensor:
    """What ``log_softmax`` subtracts from each row, in ``result``'s dtype."""
    return (x - result).nan_to_num(0.0, 0.0, 0.0).amax(dim, keepdim=True) if x.dim() else x.new_zeros(())


def _of_running_sums(unit: torch.Tensor, dim: int, generator: torch.Generator | None) -> torch.Tensor:
    """What becomes of such sums where each is made of the one before, which was rounded by up to half a ``unit``."""
    row = torch.rand(unit.narrow(dim, 0, 1).shape if unit.dim() else (), dtype=unit.dtype, device=unit.device, generator=generator)
    each = torch.rand(unit.shape, dtype=unit.dtype, device=unit.device, generator=generator)
    alike = min(1.0, _ALIKE / max(unit.shape[dim], 1)) if unit.dim() else 1.0
    return (unit * (alike * (row - 0.5) + (each - 0.5)) / 2).cumsum(dim)


def add_rounding_noise(value: Any, generator: torch.Generator, roundings: float) -> Any:
    """The value with all floating-point tensors moved by up to so many units of float32's rounding."""

    def tensor(t: torch.Tensor) -> torch.Tensor:
        if not t.is_floating_point():
            return t
        return _moved_by(t, torch.rand(t.shape, dtype=torch.float64, device=t.device, generator=generator), roundings)

    return mapped(value, tensor)


def add_noise_to_state(model: torch.nn.Module, generator: torch.Generator, roundings: float) -> None:
    """Moves parameters as :func:`add_rounding_noise` does, and what is no whole number of buffers: masks, positions and codes are exact,
    tables of computed numbers are not."""
    for parameter in model.parameters() if roundings else ():
        parameter.copy_(add_rounding_noise(parameter, generator, roundings))
    for buffer in model.buffers() if roundings else ():
        if buffer.is_floating_point():
            buffer.copy_(torch.where(buffer == buffer.trunc(), buffer, add_rounding_noise(buffer, generator, roundings)))


def _moved_by(t: torch.Tensor, noise: torch.Tensor, roundings: float) -> torch.Tensor:
    return t * (1 + roundings * torch.finfo(torch.float32).eps * (2 * noise - 1))
