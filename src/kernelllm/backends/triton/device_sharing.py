"""When a worker needs the GPU: not while Triton compiles, and exclusively while it autotunes.

The judge shares the device with others while its worker does a command. The worker lets go while Triton compiles, which
takes most of a candidate's first run and needs no GPU, and asks for the device alone while it autotunes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from triton.runtime import autotuner, jit

from kernelllm.backends.base import COMPILE_THREADS, DeviceAccess, Observer

_compile = jit.JITFunction._do_compile
_run, _prune = autotuner.Autotuner.run, autotuner.Autotuner.prune_configs
_current_stream, _capturing = torch.cuda.current_stream, torch.cuda.is_current_stream_capturing

_THREADS = int(os.environ.get(COMPILE_THREADS, "1"))


class _AccessState:
    observer: Observer
    held = DeviceAccess.SHARED
    lock = threading.RLock()
    beside = False
    """Whether several threads compile now, and the device rests."""


def install(observer: Observer) -> None:
    """Ask the judge for the device from now on, through ``observer``."""
    _AccessState.observer = observer
    jit.JITFunction._do_compile = _resting_compile
    autotuner.Autotuner.prune_configs = _prepared
    autotuner.Autotuner.do_bench = property(lambda self: self._do_bench or _benchmark)
    watch_tuning(True)


def watch_tuning(on: bool) -> None:
    """Off in timed runs, where nothing is tuned any more and every microsecond counts."""
    autotuner.Autotuner.run = _tuned if on else _run
    _AccessState.held = DeviceAccess.SHARED  # as at the beginning of every command, whatever was wanted in a timed one


def _benchmark(call: Callable[[], Any], quantiles: Sequence[float]) -> list[float]:
    """Stands for triton.testing.do_bench, which times launching as well, and it takes longer where launches are watched."""
    times = sorted(_AccessState.observer.tuning_times(call))
    return [times[min(int(q * len(times)), len(times) - 1)] for q in quantiles]


def _change(access: DeviceAccess) -> None:
    if access == _AccessState.held:
        return
    if access == DeviceAccess.RELEASED and not _capturing():
        _current_stream().synchronize()  # what was launched so far is still on its way
    _AccessState.observer.request_access(access)
    _AccessState.held = access


@contextlib.contextmanager
def _holding(access: DeviceAccess | None = None) -> Iterator[None]:
    """Inside it the device is held in another way (None: as it comes), afterwards as before."""
    with _AccessState.lock:
        before = _AccessState.held
        try:
            if access is not None:
                _change(access)
            yield
        finally:
            _change(before)


def _resting_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
    with contextlib.nullcontext() if _AccessState.beside else _holding(DeviceAccess.RELEASED):
        return _compile(self, *args, **kwargs)


def _tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
    with _holding():
        return _run(self, *args, **kwargs)


def _prepared(self: Any, kwargs: dict[str, Any]) -> Any:
    """The configurations to choose from, compiled; then the device is this worker's alone until one is chosen (see :func:`_tuned`)."""
    chosen = _prune(self, kwargs)
    with _holding(DeviceAccess.RELEASED):
        _compile_all(self, kwargs, chosen)
    _change(DeviceAccess.EXCLUSIVE)
    return chosen


def _compile_all(tuner: Any, kwargs: dict[str, Any], configs: Sequence[Any]) -> None:
    """In several threads: most of Triton's compiler is without the interpreter's lock."""
    args, left = tuple(tuner.nargs.values()), list(reversed(configs))

    def work() -> None:
        while left:
            with contextlib.suppress(Exception):  # the benchmark will meet it again, and knows what it means
                tuner.fn.run(*args, **{**kwargs, **left.pop().all_kwargs(), "warmup": True})

    threads = [threading.Thread(target=work) for _ in range(min(len(left), _THREADS) - 1)]
    _AccessState.beside = True
    try:
        _start(threads)
        work()
        for thread in threads:
            thread.join()
    finally:
        _AccessState.beside = False


def _start(threads: Sequence[threading.Thread]) -> None:
    """Start threads that the observer does not note: they are not the candidate's."""
    noted, _AccessState.observer.in_launch = _AccessState.observer.in_launch, True
    try:
        for thread in threads:
            thread.start()
    finally:
        _AccessState.observer.in_launch = noted
