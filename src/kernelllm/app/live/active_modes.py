"""Modes of torch that are active around a call (``vmap``, ``jvp``, tracing, autocast), and the types of the module's parameters."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards
from torch.autograd import forward_ad
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils._device import DeviceContext

_type = operator.attrgetter("dtype")
_CAPTURING = "transformers.utils.output_capturing"

_OF_LAYERS = (WeightNorm, SpectralNorm)
"""Hooks of ``torch.nn.utils.weight_norm`` and ``spectral_norm``, which make a layer's weight of its parameters."""


def active_mode() -> str:
    """Who sees or changes torch's operators just now, of which kernels call none; empty where nobody does."""
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "a transformation of torch.func, or forward-mode gradients"
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return "a trace, or a mode that sees each operator"
    count = torch._C._len_torch_function_stack()
    if count and any(not isinstance(torch._C._get_function_stack_at(at), DeviceContext) for at in range(count)):
        return "a mode that sees each function of torch"
    if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
        return "autocast"
    return ""


def do_nothing(hooks: Iterable[Mapping[int, Any]]) -> bool:
    """Whether hooks are none but those of torch that belong to a layer and are captured with it, and those that transformers
    leaves on layers once somebody asked for hidden states, and nobody asks now."""
    found = [hook for some in hooks for hook in some.values() if type(hook) not in _OF_LAYERS]
    module = sys.modules.get(_CAPTURING)
    asked: Any = getattr(module, "_active_collector", None)
    idle = asked is not None and asked.get() is None
    return not found or (idle and all(getattr(hook, "__module__", "") == _CAPTURING for hook in found))


class StateTypes:
    """Kinds and dtypes of the parameters and buffers that modules have."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        places = [(vars(m)[kind], n) for m in modules for kind in ("_parameters", "_buffers") for n in vars(m)[kind]]
        self._places: list[list[Any]] = [[], []]
        for owner, name in places:
            if owner[name] is not None:
                self._places[0].append(owner)
                self._places[1].append(name)
        self._default = torch.get_default_dtype()  # of what a forward makes itself
        tensors = self._now()
        self._vectors = [t.dim() == 1 for t in tensors]
        self._kinds = {torch.Tensor, torch.nn.Parameter, *map(type, tensors)}
        self._dtypes = list(map(_type, tensors))
        self._uniform: dict[torch.dtype, list[torch.dtype]] = {}
        floats = {d for d in self._dtypes if d.is_floating_point}
        if len(floats) == 1:  # which all together may become another one
            others = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
            self._uniform = {other: [other if d.is_floating_point else d for d in self._dtypes] for other in others}
        self._found: dict[bool, TensorGuards] = {}
        """What was found to fit, outside of inference mode and inside: torch compares more than is asked here, in a fifth of the time."""

    def _now(self) -> list[Any]:
        return list(map(operator.getitem, *self._places))

    def other(self) -> str:
        """Why the kernels do not fit them now; empty where they may."""
        if torch.get_default_dtype() is not self._default:
            return "another default dtype of torch"
        try:
            tensors = self._now()
        except KeyError:
            return "a parameter or buffer is missing"
        mode = torch.is_inference_mode_enabled()
        found = self._found.get(mode)
        if found is not None and found.check(*tensors):
            return ""
        why = self._differs(tensors)
        if not why:
            self._found[mode] = TensorGuards(*tensors, dynamic_dims_sizes=[], dynamic_dims_strides=[])
        return why

    def _differs(self, tensors: list[Any]) -> str:
        try:
            if not self._kinds.issuperset(map(type, tensors)):
                return "a parameter or buffer is no plain tensor"
            dtypes = list(map(_type, tensors))
        except AttributeError:
            return "a parameter or buffer is missing"
        if dtypes != self._dtypes and dtypes not in self._uniform.values():
            return "parameters or buffers of several types"
        if not all(map(torch.Tensor.is_contiguous, itertools.compress(tensors, self._vectors))):
            return "a vector among the parameters whose elements do not lie side by side"
        return ""
