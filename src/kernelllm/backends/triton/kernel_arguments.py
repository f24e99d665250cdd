"""The arguments, the grid and the source of a launch, in plain form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from triton.runtime.jit import TensorWrapper

from kernelllm.backends.base import KernelSeen, Observer

_MOST_CONFIGURATIONS = 256


_PLAIN = frozenset({int, float, bool, str, type(None), torch.Tensor, torch.nn.Parameter})
_HARMLESS = frozenset({"__init__", "__new__", "__repr__", "__str__", "__post_init__"})
"""Methods that no launch calls."""


def only_plain(values: Iterable[Any], file: str) -> None:
    """Raise TypeError for an object that only pretends to be a tensor, and for one with methods from ``file``, the candidate's: they would
    compute within the launch, unseen."""
    values = list(values)
    refuse_wrapped(values)
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            continue
        if hasattr(kind, "data_ptr") and not isinstance(value, torch.Tensor | TensorWrapper):
            raise TypeError(f"A kernel takes tensors, not a {kind.__qualname__} with a data_ptr.")
        if method := _own_method(kind, file):
            raise TypeError(f"A kernel takes plain numbers, texts and tensors, not a {kind.__qualname__} with a {method} of its own.")
        if isinstance(value, tuple | list):
            only_plain(value, file)


def refuse_wrapped(values: Iterable[Any]) -> None:
    """Raise TypeError for a tensor that a function of ``torch.func`` is being applied to."""
    if any(isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value) for value in values):
        raise TypeError(
            "A kernel is called within torch.func (jvp, grad, vmap), where tensors have no memory. Put it into the forward() of a "
            "torch.autograd.Function with setup_context(), whose jvp(), backward() or vmap() call others such; or leave torch.func out."
        )


def _own_method(kind: type, file: str) -> str:
    """A method, property or callable of a class that comes from a file; empty where there is none."""
    for owner in kind.__mro__:
        for name, member in vars(owner).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
            code = getattr(function, "__code__", None)
            if name not in _HARMLESS and (isinstance(member, functools.partial) or (code is not None and code.co_filename == file)):
                return name
    return ""


def bound_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A launch's arguments by parameter, with defaults."""
    names = [n for n in function.arg_names if n not in kwargs]
    given = {k: v for k, v in kwargs.items() if k in function.arg_names}
    return {**_defaults(function.fn), **dict(zip(names, args, strict=False)), **given}


@functools.cache
def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: getattr(p.default, "value", p.default) for p in parameters if p.default is not inspect.Parameter.empty}


def concrete_grid(grid: Any, bound: dict[str, Any]) -> tuple[int, ...]:
    """The grid as one to three integers. Raises TypeError or ValueError as a real launch would."""
    if callable(grid):
        grid = grid(bound)
    if grid is None:
        raise TypeError("A kernel needs a grid: kernel[grid](...).")
    size = tuple(grid) if isinstance(grid, tuple | list | torch.Size) else (grid,)
    if not 1 <= len(size) <= 3:
        raise ValueError(f"A grid has one to three dimensions, not {len(size)}.")
    for extent in size:
        if isinstance(extent, bool | float) or not hasattr(extent, "__index__"):
            raise TypeError(f"Grid dimensions must be integers, not {type(extent).__name__}.")
    size = tuple(int(e) for e in size)
    if any(e < 0 for e in size) or size[0] >= 2**31 or any(e > 65535 for e in size[1:]):
        raise RuntimeError(f"Triton Error [CUDA]: invalid argument: a grid of {size} (the limits are 2147483647, 65535 and 65535).")
    return size


def described(function: Any, grid: tuple[int, ...], bound: dict[str, Any]) -> str:
    """A launch in words, the same wherever it is made. Of an autotuned kernel without what the configuration decides."""
    if tuned.depth:
        return str(function.fn.__name__)
    while len(grid) > 1 and grid[-1] == 1:  # a compiled object is launched with three extents always
        grid = grid[:-1]
    constants = {p.name for p in function.params if p.is_constexpr}
    shown = [f"{name}={value!r}" if name in constants else f"{name}: {_kind(value)}" for name, value in bound.items()]
    return f"{function.fn.__name__}[{', '.join(map(str, grid))}]({', '.join(shown)})"[:500]


class _Tuned:
    """A context manager for the launches of an autotuned kernel. ``depth``: how many are under way."""

    depth = 0
    offered: Sequence[str] = ()
    """Configurations that pruning left for the launch under way."""
    running = ""
    """The one of them that it has."""
    several = False
    """Whether the kernel has more than one."""
    measuring = False
    """Whether it stands for those that a GPU makes to find the fastest configuration: of these nothing is noted."""

    def note(self, seen: KernelSeen) -> None:
        """Write down the configurations of the launch under way, if it has any."""
        if self.depth:
            for name in self.offered[:_MOST_CONFIGURATIONS]:
                seen.configurations.setdefault(name, False)
            seen.configurations[self.running] = True

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1


tuned = _Tuned()


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor | TensorWrapper):
        return str(value.dtype)
    if isinstance(value, int) and not isinstance(value, bool):
        return "int" if -(2**31) <= value < 2**31 else "int64"
    return type(value).__name__


@cache
def source_lines(function: Callable[..., Any]) -> tuple[list[str], int]:
    """The lines of a kernel and the number of the first. Raises OSError or TypeError where there are none. Finding them reads tokens."""
    return inspect.getsourcelines(function)


def seen_launch(observer: Observer, function: Any, otherwise: str = "", count: int = 1) -> KernelSeen:
    """Tell of a launch of a jitted function. Of one that lies in a package the name has its module: it is no file's own. ``otherwise``:
    the name where there is no function."""
    if function is None:
        return observer.launch(otherwise, None, count)
    module = str(getattr(function.fn, "__module__", ""))
    name = f"{module}.{function.fn.__name__}" if "." in module else function.fn.__name__
    return observer.launch(name, lambda: source_of(function.fn), count)


def source_of(function: Callable[..., Any]) -> str:
    """Source text of a kernel, empty when there is none."""
    try:
        return "".join(source_lines(function)[0])
    except (OSError, TypeError):
        return ""
