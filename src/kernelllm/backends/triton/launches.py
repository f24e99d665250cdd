"""Kernel launches on a GPU: noted, suppressed when the judge asks, only counted while runs are timed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from triton.runtime import jit

from kernelllm.backends.base import Launches, Observer
from kernelllm.backends.triton import device_sharing, warm
from kernelllm.backends.triton.arguments import only_tensors, source_of

# taken before any candidate code runs, so that replacing it in Triton changes nothing here
_run = jit.JITFunction.run


class _State:
    observer: Observer | None = None
    suppressed = False
    launches = 0
    """In timed runs."""


class GpuLaunches(Launches):
    """Watches the launches of this process on its GPU for good."""

    def __init__(self, observer: Observer) -> None:
        warm.up()
        _State.observer = observer
        jit.JITFunction.run = _watched_run

    def suppress(self, on: bool) -> None:
        """While on, launches compile and do not run."""
        _State.suppressed = on

    @contextlib.contextmanager
    def counted(self) -> Iterator[Callable[[], int]]:
        """Around timed runs."""
        jit.JITFunction.run = _counted_run
        device_sharing.watch_tuning(False)
        try:
            yield lambda: _State.launches
        finally:
            jit.JITFunction.run = _watched_run
            device_sharing.watch_tuning(True)


def _watched_run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    only_tensors((*args, *kwargs.values()))
    quiet = warmup or _State.suppressed
    kernel = _run(self, *args, grid=grid, warmup=quiet, **kwargs)
    observer = _State.observer
    if observer is not None and not warmup:
        seen = observer.launch(self.fn.__name__, lambda: source_of(self.fn))
        if kernel is not None and seen.registers is None:
            seen.registers, seen.spills = getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)
            seen.shared_bytes, seen.num_warps = getattr(kernel.metadata, "shared", None), getattr(kernel.metadata, "num_warps", None)
    return kernel


def _counted_run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """All that is done in timed runs, where it is part of the time."""
    _State.launches += not warmup
    return _run(self, *args, grid=grid, warmup=warmup, **kwargs)
