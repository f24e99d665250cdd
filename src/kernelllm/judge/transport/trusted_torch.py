"""Takes PyTorch's own functions on tensors before any candidate code is loaded.

A candidate's outputs are read with these alone. An attribute, method or mode of the candidate's own is never called, so nothing
can be computed when an output is handed over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _python_dispatch

detach, copy_, clone = torch.Tensor.detach, torch.Tensor.copy_, torch.Tensor.clone
resolve_conj, resolve_neg = torch.Tensor.resolve_conj, torch.Tensor.resolve_neg
as_strided, getitem, stride = torch.Tensor.as_strided, torch.Tensor.__getitem__, torch.Tensor.stride
shape, dtype = torch.Tensor.shape.__get__, torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
_layout, _is_meta = torch.Tensor.layout.__get__, torch.Tensor.is_meta.__get__  # type: ignore[attr-defined]
_is_nested, _is_quantized = torch.Tensor.is_nested.__get__, torch.Tensor.is_quantized.__get__  # type: ignore[attr-defined]
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_instance_dict = torch.Tensor.__dict__["__dict__"].__get__
_without_functions, _without_modes = torch._C.DisableTorchFunction, _python_dispatch._disable_current_modes
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_OF_TENSORS = frozenset(dir(torch.Tensor))
_STRIDED = torch.strided


class NotPlain(ValueError):
    """An output that looks like a tensor and has ways of its own."""


def named_state(module: Any) -> dict[str, tuple[torch.Tensor, bool]]:
    """Parameters, then buffers (true) by name, as they lie in the modules: whatever methods of the candidate's own say of them.
    None where it is no module."""
    found: dict[str, tuple[torch.Tensor, bool]] = {}
    for table, is_buffer in (("_parameters", False), ("_buffers", True)):
        for prefix, part in submodules(module) if isinstance(module, torch.nn.Module) else ():
            found |= {prefix + name: (t, is_buffer) for name, t in vars(part).get(table, {}).items() if isinstance(t, torch.Tensor)}
    return found


def submodules(module: torch.nn.Module, prefix: str = "", above: tuple[torch.nn.Module, ...] = ()) -> Iterator[tuple[str, torch.nn.Module]]:
    """A module and those below it, by name, as they lie in each other."""
    yield prefix, module
    for name, part in vars(module).get("_modules", {}).items():
        if isinstance(part, torch.nn.Module) and not any(part is other for other in (*above, module)):
            yield from submodules(part, f"{prefix}{name}.", (*above, module))


@contextlib.contextmanager
def no_hooks() -> Iterator[None]:
    """Switches off the modes and ``__torch_function__`` that candidate code may have switched on."""
    with _without_functions(), _without_modes():
        yield


def is_tensor(kind: type[Any]) -> bool:
    """Whether objects of exactly this type are taken as tensors."""
    return kind is _TENSORS[0] or kind is _TENSORS[1]


def check(tensor: torch.Tensor) -> None:
    """Raise NotPlain for an object of type ``Tensor`` or ``Parameter`` that is more than its numbers in memory.

    Attributes that a tensor has not (such as those of ``torch.nn.Buffer``) do no harm: only ones that hide a tensor's own are refused.
    """
    own = _instance_dict(tensor)
    if dict.__len__(own):
        hidden = [key for key in dict.__iter__(own) if type(key) is not str or key in _OF_TENSORS]
        if hidden:
            raise NotPlain(f"An output has its own {hidden[0]!s:.80}: return a plain torch.Tensor.")
    with _without_functions():
        if _is_wrapped(tensor) or _is_meta(tensor):
            raise NotPlain("An output has no memory of its own: return a plain torch.Tensor.")
        if _layout(tensor) is not _STRIDED or _is_nested(tensor) or _is_quantized(tensor):
            raise NotPlain("An output is sparse, nested or quantized: return a dense torch.Tensor.")
