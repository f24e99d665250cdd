"""Worker servers that start before this process imports torch, so that both do so at the same time.

A server takes as long to import torch as its judge does. A command that is going to judge begins them first; the judge takes
them over. What nobody took ends with this process.
"""

from __future__ import annotations

import atexit
import contextlib
from pathlib import Path

from kernelllm.core.errors import KernelLLMError
from kernelllm.judge.isolation.forkserver import ForkServer

_DRIVER = Path("/proc/driver/nvidia/version")
_waiting: dict[tuple[str, str], ForkServer] = {}


def modes(device: str) -> tuple[str, ...]:
    """Modes of the servers that a judge on this device has: ``cpu``, or any of a GPU's names; ``auto``: whichever seems to be there."""
    return ("interpret", "compile") if device == "cpu" or (device == "auto" and not _DRIVER.exists()) else ("cuda",)


def begin(device: str, target: str) -> None:
    """Start the servers of a judge with these settings. What goes wrong here the judge will meet again, and tell."""
    for mode in modes(device):
        key = mode, _of(mode, target)
        if key not in _waiting:
            with contextlib.suppress(OSError, KernelLLMError):
                _waiting[key] = ForkServer(mode, target)


def server(mode: str, target: str, spares: int = 0) -> ForkServer:
    """The server of this mode that was begun, otherwise a new one. Raises what starting it raises."""
    found = _waiting.pop((mode, _of(mode, target)), None)
    if found is None:
        return ForkServer(mode, target, spares)
    found.spares = spares
    return found


def _of(mode: str, target: str) -> str:
    return "" if mode == "cuda" else target  # a GPU's is read from the device, with torch


@atexit.register
def _end() -> None:
    while _waiting:
        _waiting.popitem()[1].close()
