"""Samples of images: by a template, or by torch's decomposition, which computes each place again for each channel.

In that, places outside of an image are zeros, whatever the image holds: it reads the first pixel times 0 for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler.capture.patching import patch

_CHANNELS = 4
"""As many share what is computed of a place, or it may be fused as well."""
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def of_images(context: Any, x: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool | None) -> Any:
    """``grid_sample`` of images by the template, or NotImplemented."""
    few = isinstance(x.shape[1], int) and x.shape[1] < _CHANNELS
    if few or mode not in _MODES[:2] or padding_mode not in _PADDINGS or grid.dtype != x.dtype or not x.is_floating_point():
        return NotImplemented
    if x.dim() != grid.dim() or grid.shape[-1] != 2 or context.options.backward:
        return NotImplemented
    if torch.is_grad_enabled() and (x.requires_grad or grid.requires_grad):
        return _Sampled.apply(context.namespace, x, grid, mode, padding_mode, bool(align_corners))  # type: ignore[no-untyped-call]
    return context.namespace.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


class _Sampled(torch.autograd.Function):
    """The template, with torch's own operator for gradients."""

    @staticmethod
    def forward(ctx: Any, namespace: Any, x: Any, grid: Any, mode: str, padding_mode: str, align_corners: bool) -> Any:
        ctx.save_for_backward(x, grid)
        ctx.settings = (_MODES.index(mode), _PADDINGS.index(padding_mode), align_corners)
        return namespace.grid_sample(x, grid, mode, padding_mode, align_corners)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, grid = ctx.saved_tensors
        wanted = [bool(ctx.needs_input_grad[1]), bool(ctx.needs_input_grad[2])]
        of_x, of_grid = torch.ops.aten.grid_sampler_2d_backward(grad, x, grid, *ctx.settings, wanted)
        return None, of_x if wanted[0] else None, of_grid if wanted[1] else None, None, None, None


def patched(stack: ExitStack) -> None:
    """Until ``stack`` closes, what ``grid_sample`` reads with a weight of 0 counts as 0."""
    from torch._decomp import decompositions

    patch(stack, decompositions, "_grid_sampler_2d", _of_image(decompositions._grid_sampler_2d))


def _of_image(plain: Callable[..., Any]) -> Callable[..., Any]:
    def sampled(a: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(_Image(a), *args, **kwargs)

    return sampled


class _Image:
    """What the decomposition asks of an image."""

    def __init__(self, image: Any) -> None:
        self.image, self.shape, self.device = image, image.shape, image.device

    def __getitem__(self, index: Any) -> Any:
        return _Pixels(self.image[index])


class _Pixels:
    """What is read of an image, to be weighted."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __mul__(self, weight: Any) -> Any:
        return torch.where(weight == 0, 0, self.values * weight)
