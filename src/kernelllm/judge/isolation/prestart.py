"""Starts worker servers before this process imports torch, so that both do so at the same time.

A server takes as long to import torch as its judge does. A command that is going to judge begins them first; the judge takes
them over. What nobody took ends with this process.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Sequence
from pathlib import Path

from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.isolation.forkserver import ForkServer

_DRIVER = Path("/proc/driver/nvidia/version")
_waiting: dict[tuple[str, str, str], ForkServer] = {}


def modes(device: str, backend: str = DEFAULT_BACKEND) -> tuple[Mode, ...]:
    """Modes of the servers that a judge on this device has for a kernel language: ``cpu``, or any of a GPU's names; ``auto``: whichever
    seems to be there. Raises UnknownName."""
    here = (Mode.INTERPRET, Mode.COMPILE) if device == "cpu" or (device == "auto" and not _DRIVER.exists()) else (Mode.CUDA,)
    able = open_backend(backend).modes
    return tuple(mode for mode in here if mode in able)


def begin(device: str, target: str, backend: str = DEFAULT_BACKEND, *, light: bool = False) -> None:
    """Start the servers of a judge with these settings, for candidates in one language; ``light`` ones for a single candidate.

    What goes wrong here the judge will meet again, and tell."""
    wanted = [mode for mode in modes(device, backend) if (mode, _of(mode, target), backend) not in _waiting]
    with contextlib.suppress(OSError, KernelLLMError):
        for one in ForkServer.together(wanted, target, backend=backend, light=light):
            _waiting[one.mode, _of(one.mode, target), backend] = one


def servers(modes: Sequence[Mode], target: str, spares: int = 0, backend: str = DEFAULT_BACKEND) -> list[ForkServer]:
    """The servers of these modes: those that were begun, otherwise new ones. Raises what starting one raises."""
    found = {mode: _waiting.pop((mode, _of(mode, target), backend), None) for mode in modes}
    new = ForkServer.together([mode for mode, one in found.items() if one is None], target, spares, backend)
    for one in new + [begun for begun in found.values() if begun is not None]:
        one.spares = spares
        found[one.mode] = one
    return [one for one in found.values() if one is not None]


def _of(mode: str, target: str) -> str:
    return "" if mode == Mode.CUDA else target  # a GPU's is read from the device, with torch


@atexit.register
def _end() -> None:
    while _waiting:
        _waiting.popitem()[1].close()
