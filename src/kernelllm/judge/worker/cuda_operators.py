"""Runs operators that are CUDA's alone where there is no GPU.

Of ``torch.library.custom_op`` the function that is registered for CUDA is the one that runs, and what torch has for CUDA alone is computed
by what it has for both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

_register: Any = CustomOpDef.register_kernel
_kept: list[torch.library.Library] = []


def install() -> None:
    """For good, in this process and its forks."""
    CustomOpDef.register_kernel = _for_cuda  # type: ignore[method-assign]
    library = torch.library.Library("aten", "IMPL")
    library.impl("cudnn_convolution_relu", _convolution_relu, "CPU")
    library.impl("cudnn_convolution_add_relu", _convolution_add_relu, "CPU")
    _kept.append(library)


def _convolution_relu(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    return _convolution_add_relu(x, weight, None, None, bias, stride, padding, dilation, groups)


def _convolution_add_relu(
    x: Any, weight: Any, z: Any, alpha: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    none = [0] * len(stride)
    out = torch.ops.aten.convolution.default(x, weight, bias, stride, padding, dilation, False, none, groups)
    return torch.relu(out if z is None else out.add_(z, alpha=1 if alpha is None else alpha))


def _for_cuda(self: Any, device_types: Any, fn: Any = None, /) -> Any:
    """One for the CPU would not run on a GPU."""
    if device_types is not None:
        kinds = [device_types] if isinstance(device_types, str) else device_types
        device_types = ["cpu"] * ("cuda" in kinds)
    return _register(self, device_types, fn)
