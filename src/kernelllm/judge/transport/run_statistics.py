"""Defines what a worker counts in one run of the model."""

from __future__ import annotations

import msgspec


class RunStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What the worker counted in one run."""

    launches: int = 0
    busy_ms: float = 0.0
    ops: dict[str, int] = {}
    flops: dict[str, float] = {}
    """FLOPs of this run, where it is watched."""
    forward_ops: dict[str, int] = {}
    forward_flops: dict[str, float] = {}
    forward_launches: int = 0
    """Launches of the forward alone, where there is a backward."""
    kernel_flops: float = 0.0
    """Arithmetic of kernels in this run, as far as it is known (see :class:`kernelllm.backends.base.KernelSeen`)."""
    backwards: bool = False
    """Whether the programs of any launch ran from the last to the first."""
    did: str = ""
    """Equal in runs with the same launches (where there is no GPU) and operators."""
    written: tuple[int, ...] = ()
    """Inputs into which an operator of torch wrote, or a kernel (where there is no GPU), also where it put back what was there."""
    scattered: tuple[int, ...] = ()
    """Results that are not contiguous, by position."""
    left: tuple[str, ...] = ()
    """What it left behind: see :class:`kernelllm.judge.call_traces.CallTraces`."""
