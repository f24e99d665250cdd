"""Kernel launches on a GPU: recorded in trials, suppressed when the judge asks, and only counted in timed runs.

They are seen where a compiled kernel's launcher is called, which every launch passes: that of a jitted function, and that of a compiled
object which a candidate got from ``warmup`` or from an earlier launch. Those of jitted functions are counted once more where they begin.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from triton.compiler.compiler import CompiledKernel
from triton.runtime import jit

from kernelllm.backends.base import KernelSeen, Launches, Observer
from kernelllm.backends.triton import device_sharing
from kernelllm.backends.triton.kernel_arguments import only_plain, seen_launch

# taken before any candidate code runs, so that replacing them in Triton changes nothing here
_run, _init_handles = jit.JITFunction.run, CompiledKernel._init_handles


class _LaunchState:
    observer: Observer | None = None
    suppressed = False
    timed = False
    launches = 0
    """In timed runs."""
    begun = passed = 0
    """Launches of jitted functions: where they began, and where they passed their kernel's launcher."""
    inside = 0
    """How many launches of jitted functions are under way."""


class GpuLaunches(Launches):
    """Watches the launches of this process on its GPU for good."""

    def __init__(self, observer: Observer) -> None:
        up()
        _LaunchState.observer = observer
        jit.JITFunction.run = _watched_run
        CompiledKernel._init_handles = _watched_handles

    def suppress(self, on: bool) -> None:
        """While on, launches compile and do not run."""
        _LaunchState.suppressed = on

    def disagreement(self) -> bool:
        return _LaunchState.begun > _LaunchState.passed

    @contextlib.contextmanager
    def counted(self) -> Iterator[Callable[[], int]]:
        """A context manager for timed runs: launches are counted in it and nothing else."""
        jit.JITFunction.run, _LaunchState.timed = _run, True
        device_sharing.watch_tuning(False)
        try:
            yield lambda: _LaunchState.launches
        finally:
            jit.JITFunction.run, _LaunchState.timed = _watched_run, False
            device_sharing.watch_tuning(True)


def _watched_run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    only_plain((*args, *kwargs.values()), self.fn.__code__.co_filename)
    _LaunchState.inside += 1
    try:
        kernel = _run(self, *args, grid=grid, warmup=warmup, **kwargs)
        _LaunchState.begun += kernel is not None and not warmup
        return kernel
    finally:
        _LaunchState.inside -= 1


def _watched_handles(self: Any) -> None:
    """Stands for CompiledKernel._init_handles, which makes the launcher."""
    if self.module is not None:
        return
    _init_handles(self)
    launcher, function = self._run, getattr(self.src, "fn", None)

    def launch(*args: Any) -> None:
        if _LaunchState.timed:  # all that is done in timed runs, where it is part of the time
            _LaunchState.launches += 1
            launcher(*args)
            return
        if _LaunchState.inside:
            _LaunchState.passed += 1
        else:
            only_plain(args, function.fn.__code__.co_filename if function is not None else "")
        if _LaunchState.observer is not None:
            _resources(seen_launch(_LaunchState.observer, function, self.name), self)
        if not _LaunchState.suppressed:
            launcher(*args)

    self._run = launch


def _resources(seen: KernelSeen, kernel: Any) -> None:
    if seen.registers is None:
        seen.registers, seen.spills = getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)
        seen.shared_bytes, seen.num_warps = getattr(kernel.metadata, "shared", None), getattr(kernel.metadata, "num_warps", None)


@triton.jit  # type: ignore[untyped-decorator]
def _add_one(x_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1.0, mask=mask)


def up() -> None:
    """Launch it; what goes wrong here will be told of the candidate's own first launch."""
    with contextlib.suppress(Exception):
        numbers = torch.zeros(64, device="cuda")
        _add_one[(1,)](numbers, numbers.numel(), BLOCK=64)
        numbers.cpu()
