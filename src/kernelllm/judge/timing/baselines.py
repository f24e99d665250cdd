"""Times the reference as its own competitor: run as it is, and by torch.compile."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelllm.judge.device_share import DeviceShare
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.pool.locks import DeviceLock

_LOG = logging.getLogger(__name__)


class Baselines:
    """The baselines ``eager``, ``compile`` and ``max-autotune`` on one device; those of the latest problem are kept."""

    def __init__(self, names: Sequence[str], device: str) -> None:
        self.names, self.device = tuple(names), device
        self._problem = ""
        self._calls: dict[str, Callable[..., Any]] = {}
        self._compiled = False
        self.missing: dict[str, str] = {}
        """Baseline to why the latest problem has none."""

    def calls(self, reference: Reference, inputs: list[Any], share: DeviceShare) -> dict[str, Callable[..., Any]]:
        """Baseline to its compiled call of the reference, which has run on ``inputs``.

        Torch chooses among configurations by timing them, so a compiled baseline is made ready with the device alone; it is released
        while torch compiles, but for ``max-autotune``, which measures meanwhile.
        """
        problem = reference.problem
        known = f"{problem.digest} {reference.gradients}"
        if known != self._problem:
            self.clear()
            self._problem = known
            for name in self.names:
                if name != "eager":
                    share.acquire_exclusive()
                with _released_while_compiling(share.lock) if share.lock and name == "compile" else contextlib.nullcontext():
                    self._add(name, reference, inputs)
                share.acquire_shared()
        return self._calls

    def _add(self, name: str, reference: Reference, inputs: list[Any]) -> None:
        model = reference.model
        call: Any = model
        if name != "eager":
            mode = None if name == "compile" else "max-autotune-no-cudagraphs"
            call = torch.compile(model, mode=mode)
            self._compiled = True
        call = reference.called(call, owner=model)
        try:
            with torch.no_grad():
                call(*inputs)
                call(*inputs)
        except Exception as error:  # noqa: BLE001 - torch.compile fails in many ways; the other baselines still count
            _LOG.info("No baseline %s: %s", name, error)
            self.missing[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            return
        self._calls[name] = call

    def clear(self) -> None:
        """Drop the latest problem's baselines and their GPU memory."""
        self._calls.clear()
        self.missing.clear()
        self._problem = ""
        if self._compiled:
            torch._dynamo.reset()
            self._compiled = False


@contextlib.contextmanager
def _released_while_compiling(lock: DeviceLock) -> Iterator[None]:
    """Release the device whenever torch.compile traces and compiles, and have it alone again before its result runs."""
    from torch._dynamo.callback import callback_handler

    release = callback_handler.register_start_callback(lambda _: lock.release())
    acquire = callback_handler.register_end_callback(lambda _: lock.acquire_exclusive())
    try:
        yield
    finally:
        callback_handler.remove_start_callback(release)
        callback_handler.remove_end_callback(acquire)
