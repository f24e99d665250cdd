"""Kernel launches in the interpreter: recorded, bounded, and suppressed when the judge asks."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from triton.runtime import autotuner
from triton.runtime import interpreter as ti
from triton.runtime.jit import TensorWrapper

from kernelllm.judge.worker import memory
from kernelllm.judge.worker.recorder import Recorder


class Control:
    """What the worker sets and launches look at."""

    recorder: Recorder | None = None
    suppress = False


def install() -> None:
    """Wrap InterpretedFunction.run and Autotuner.run for good."""
    original = ti.InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        names = [n for n in self.arg_names if n not in kwargs]
        bound = {**defaults(self.fn), **dict(zip(names, args, strict=False)), **{k: v for k, v in kwargs.items() if k in self.arg_names}}
        if warmup:
            return Fake(self, args, kwargs)
        only_tensors(bound.values())
        missing = [n for n in self.arg_names if n not in bound]
        if missing:
            raise TypeError(f"{self.fn.__name__}() is missing arguments: {', '.join(missing)}")
        size = concrete_grid(grid, bound)
        recorder = Control.recorder
        if recorder is not None:
            recorder.launch(self.fn.__name__, lambda: source_of(self.fn))
        if Control.suppress:
            return Fake(self, args, kwargs)
        was = recorder.in_launch if recorder else False
        memory.current(memory.Bounds(bound))
        try:
            if recorder:
                recorder.in_launch = True
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                original(self, *args, grid=size, warmup=False, **kwargs)
        finally:
            memory.current(None)
            if recorder:
                recorder.in_launch = was
        return Fake(self, args, kwargs)

    ti.InterpretedFunction.run = run
    autotuner.Autotuner.run = autotune_run


def autotune_run(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Autotuning without a clock: the first configuration, after pruning, that compiles and launches."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    failure: Exception | None = None
    for config in configs:
        named = {**self.nargs, **kwargs, **config.all_kwargs()}
        conflicts = kwargs.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define auto-tuned symbols.")
        self.best_config = config
        try:
            if config.pre_hook is not None:
                config.pre_hook(named)
            # what tuning leaves behind: arguments named in reset_to_zero are zero when the chosen configuration runs
            self.pre_hook(named, reset_only=True) if not self.user_defined_pre_hook else self.pre_hook(named)
            result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        except _skippable() as error:
            failure = error
            continue
        self.nargs = None
        return result
    assert failure is not None
    raise failure


def _skippable() -> tuple[type[Exception], ...]:
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return (OutOfResources, CompileTimeAssertionFailure, PTXASError)


def only_tensors(values: Iterable[Any]) -> None:
    """Raise TypeError for an object that only pretends to be a tensor: its methods would compute within the launch, unseen."""
    for value in values:
        if hasattr(type(value), "data_ptr") and not isinstance(value, torch.Tensor | TensorWrapper):
            raise TypeError(f"A kernel takes tensors, not a {type(value).__qualname__} with a data_ptr.")


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Default values of a kernel's parameters."""
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


def source_of(function: Callable[..., Any]) -> str:
    """Source text of a kernel, empty when there is none."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


class Fake:
    """Stands for a compiled kernel, for code that asks for registers or launches what ``warmup`` returned."""

    n_regs, n_spills, n_max_threads = 32, 0, 1024
    metadata = types.SimpleNamespace(shared=1024, num_warps=4, num_stages=2, num_ctas=1)
    asm: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self.name = function.fn.__name__

    def _init_handles(self) -> None:
        """Nothing to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        constants = {n: v for n, v in self._kwargs.items() if n in self._function.arg_names}
        given = dict(zip(self._function.arg_names, self._args, strict=False))

        def runner(*args: Any, **options: Any) -> Any:
            named = dict(zip(self._function.arg_names, args, strict=False))
            merged = {**given, **constants, **named}
            return self._function.run(grid=grid, warmup=False, **merged)

        return runner
