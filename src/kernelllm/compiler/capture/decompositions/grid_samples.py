"""Places outside of a sampled image are zeros, whatever the image holds: torch's decomposition reads its first pixel times 0 for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler.capture.patching import patch


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
