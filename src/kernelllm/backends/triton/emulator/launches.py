"""Kernel launches in the interpreter: recorded, bounded, and suppressed when the judge asks."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from triton.runtime import autotuner
from triton.runtime import interpreter as ti

from kernelllm.backends.base import Launches, Observer
from kernelllm.backends.triton import autotuning
from kernelllm.backends.triton.arguments import bound_arguments, concrete_grid, only_tensors, source_of
from kernelllm.backends.triton.emulator import memory


class _State:
    observer: Observer | None = None
    suppressed = False


class InterpretedLaunches(Launches):
    """Watches the launches of this process, whose interpreter was installed before its fork."""

    def __init__(self, observer: Observer) -> None:
        _State.observer = observer

    def suppress(self, on: bool) -> None:
        """While on, launches are checked and do not run."""
        _State.suppressed = on


def install() -> None:
    """Wrap InterpretedFunction.run and Autotuner.run for good."""
    original = ti.InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        bound = bound_arguments(self, args, kwargs)
        if warmup:
            return FakeCompiledKernel(self, args, kwargs)
        only_tensors(bound.values())
        missing = [n for n in self.arg_names if n not in bound]
        if missing:
            raise TypeError(f"{self.fn.__name__}() is missing arguments: {', '.join(missing)}")
        size = concrete_grid(grid, bound)
        observer = _State.observer
        if observer is not None:
            observer.launch(self.fn.__name__, lambda: source_of(self.fn))
        if _State.suppressed:
            return FakeCompiledKernel(self, args, kwargs)
        was = observer.in_launch if observer else False
        memory.current(memory.Bounds(bound))
        try:
            if observer:
                observer.in_launch = True
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                original(self, *args, grid=size, warmup=False, **kwargs)
        finally:
            memory.current(None)
            if observer:
                observer.in_launch = was
        return FakeCompiledKernel(self, args, kwargs)

    ti.InterpretedFunction.run = run
    autotuner.Autotuner.run = autotuning.run


class FakeCompiledKernel:
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
