"""Seeds and restores the random generators of the whole process."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

from kernelllm.core.background import TORCH
from kernelllm.problems.unfused_flex import unfused_flex

_depth = 0
_here = threading.local()


def seed_all(seed: int) -> None:
    """Seed every generator that a problem or a candidate may draw from: torch's of the CPU and of all GPUs, Python's and NumPy's.

    Not by ``torch.manual_seed``: where a kind of device has not been used, it keeps every call, with its stack, for when it will be.
    """
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def random_state(device: str) -> tuple[Any, ...]:
    """The state of all generators of this process, and of this device: equal before and after where no random numbers were drawn."""
    import numpy
    import torch

    there = torch.cuda.get_rng_state(device).numpy().tobytes() if device != "cpu" else None
    numpys: Any = numpy.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), there, random.getstate(), numpys[1].tobytes(), numpys[2]


@contextlib.contextmanager
def own_generators() -> Iterator[None]:
    """Every generator of :func:`seed_all` for this thread alone, and afterwards as it was before.

    They belong to the whole process: judges in other threads wait here, and a trainer that judges keeps its own random numbers.
    Torch's default dtype, its tracing and ``sys.path`` are shared in the same way, so problem code runs inside this. May be nested.
    ``flex_attention`` is what it computes, inside.
    """
    global _depth
    if getattr(_here, "lent", False):
        with unfused_flex():
            yield
        return
    with TORCH:
        _depth += 1
        try:
            with _kept() if _depth == 1 else contextlib.nullcontext(), unfused_flex():
                yield
        finally:
            _depth -= 1


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """For a thread that works for the holder of :func:`own_generators` while that one waits: it need not ask for them."""
    _here.lent = True
    try:
        yield
    finally:
        _here.lent = False


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    import numpy
    import torch

    pythons, numpys = random.getstate(), numpy.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        random.setstate(pythons)
        numpy.random.set_state(numpys)
