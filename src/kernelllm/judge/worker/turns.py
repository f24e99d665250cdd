"""When the worker works on the GPU: never while another judge measures there.

The judge shares the device with others while its worker does a command. The worker lets go while Triton compiles, which
takes most of a candidate's first run and needs no GPU, and asks for the device alone while it chooses among configurations.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import triton.testing
from triton.runtime import autotuner, jit

from kernelllm.judge.protocol import Turns

_compile = jit.JITFunction._do_compile
_run, _prune = autotuner.Autotuner.run, autotuner.Autotuner.prune_configs
_current_stream, _capturing = torch.cuda.current_stream, torch.cuda.is_current_stream_capturing

_benchmark = partial(triton.testing.do_bench, warmup=5, rep=25)
"""Milliseconds for each configuration, a fifth of Triton's: the device is quiet, and others wait."""


class _State:
    ask: Callable[[str], None] = staticmethod(lambda turn: None)
    held = Turns.SHARE
    lock = threading.RLock()


def install(ask: Callable[[str], None]) -> None:
    """``ask`` the judge from now on."""
    _State.ask = staticmethod(ask)
    jit.JITFunction._do_compile = _resting_compile
    autotuner.Autotuner.prune_configs = _prepared
    autotuner.Autotuner.do_bench = property(lambda self: self._do_bench or _benchmark)
    watch_tuning(True)


def watch_tuning(on: bool) -> None:
    """Off in timed runs, where nothing is tuned any more and every microsecond counts."""
    autotuner.Autotuner.run = _tuned if on else _run


def _change(turn: str) -> None:
    if turn == _State.held:
        return
    if turn == Turns.REST and not _capturing():
        _current_stream().synchronize()  # what was launched so far is still on its way
    _State.ask(turn)
    _State.held = turn


@contextlib.contextmanager
def _turn(turn: str | None = None) -> Iterator[None]:
    """Inside it the device is held in another way, afterwards as before."""
    with _State.lock:
        before = _State.held
        try:
            if turn is not None:
                _change(turn)
            yield
        finally:
            _change(before)


def _resting_compile(self: Any, *args: Any, **kwargs: Any) -> Any:
    with _turn(Turns.REST):
        return _compile(self, *args, **kwargs)


def _tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
    with _turn():
        return _run(self, *args, **kwargs)


def _prepared(self: Any, kwargs: dict[str, Any]) -> Any:
    """The configurations to choose from, compiled; then the device is this worker's alone until one is chosen (see :func:`_tuned`)."""
    chosen = _prune(self, kwargs)
    with _turn(Turns.REST):
        for config in chosen:
            with contextlib.suppress(Exception):  # the benchmark will meet it again, and knows what it means
                self.fn.run(*self.nargs.values(), **{**kwargs, **config.all_kwargs(), "warmup": True})
    _change(Turns.OWN)
    return chosen
