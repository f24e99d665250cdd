"""CPU cores that are kept free for timing: compiles of other judges must not delay the launches of a kernel that is timed.

Every pool of this machine finds the same cores, without asking the others: a rule says which, from the cores allowed and the GPU's number.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_LOG = logging.getLogger(__name__)
_ENVIRONMENT = "KERNELLLM_MEASURING_CORES"
"""Set in a pool's process: numbers of cores, with commas."""
_GPUS = Path("/proc/driver/nvidia/gpus")
RESERVED, LEAST = 2, 8
"""Cores that are reserved for a GPU, and cores that there must be for each GPU before any is reserved."""


def reserved(allowed: Sequence[int], gpu: int, gpus: int) -> tuple[int, ...]:
    """The cores kept free for measuring on one of so many GPUs; none where there are too few."""
    share = len(allowed) // max(gpus, 1)
    if share < LEAST or not 0 <= gpu < gpus:
        return ()
    return tuple(sorted(allowed)[gpu * share : (gpu + 1) * share][-RESERVED:])


def avoid_timing_cores(gpu: int) -> None:
    """Keep this process, and all that it starts, off the cores that measuring is done on. ``gpu``: the one that it works on."""
    try:
        allowed, gpus = sorted(os.sched_getaffinity(0)), max(_count(), gpu + 1)
        kept = {core for number in range(gpus) for core in reserved(allowed, number, gpus)}
        if kept:
            os.sched_setaffinity(0, set(allowed) - kept)
            os.environ[_ENVIRONMENT] = ",".join(map(str, reserved(allowed, gpu, gpus)))
    except (OSError, AttributeError) as error:  # not Linux, or not permitted
        _LOG.debug("No cores are kept for measuring: %s", error)


@contextlib.contextmanager
def measuring() -> Iterator[tuple[int, ...]]:
    """Inside it this thread runs on the cores kept for measuring; yields them, none where there are none."""
    cores = tuple(int(text) for text in os.environ.get(_ENVIRONMENT, "").split(",") if text)
    with on_cores(cores):
        yield cores


@contextlib.contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Inside it this thread runs on these cores, where that is permitted."""
    before = None
    if cores:
        try:
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, cores)
        except (OSError, AttributeError) as error:
            _LOG.debug("This thread stays on its cores: %s", error)
            before = None
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, before)


def _count() -> int:
    return len(list(_GPUS.iterdir())) if _GPUS.is_dir() else 0
