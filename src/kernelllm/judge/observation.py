"""Records what judge and worker saw of one candidate: the material that checks decide on.

Fields marked *worker* were reported by the untrusted worker: a check may use them to accuse, never to
acquit. All others were seen or computed in the judge's own process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelllm.core.types import Candidate, KernelUse, Problem, SizeSet, Trial
from kernelllm.judge.transport.protocol import AuditEvent

OF_ALL = "torch's setting of "
"""Begins what a worker tells of a setting of the whole process that a candidate changed."""
RANDOM_NUMBERS = "the state of the random generators"
"""One of them: a reference that draws random numbers changes it as well."""
AUTOGRAD = "autograd (on or off)"
"""Another one, which shows where gradients are enabled alone."""


@dataclass(frozen=True)
class OutputStats:
    """Figures of one output tensor of one run (floats in float64; NaN and infinities left out)."""

    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float
    low: float
    high: float
    zeros: float
    """Share of elements that are exactly zero."""
    digest: str
    """SHA-256 of the bytes: equal digests mean equal outputs."""


@dataclass(frozen=True)
class TrialRun:
    """One run of the candidate on one set of inputs, beside the reference's."""

    trial: Trial
    state: str = "reference"
    """Which parameters: ``reference`` (the reference's), ``own`` (the candidate's, whose names differ), or another state
    (see :mod:`kernelllm.judge.trials.state.parameter_states`)."""
    mutated_inputs: tuple[int, ...] = ()
    """Positions of the flattened input tensors that differ after the candidate's run and not after the reference's."""
    mutated_state: tuple[str, ...] = ()
    """Parameters and buffers whose values after the run differ from the reference's after its run."""
    candidate: tuple[OutputStats, ...] = ()
    reference: tuple[OutputStats, ...] = ()
    wall_ms: float = 0.0
    """From sending the command to its reply, by the judge's clock."""
    busy_ms: float = 0.0
    """*worker*: how long the call took by the worker's clock."""
    launches: int = 0
    """*worker*: kernel launches in this run."""
    kernel_flops: float = 0.0
    """*worker*: arithmetic in kernels in this run; 0 where nothing counts it (on a GPU)."""
    did: str = ""
    exact_products: bool = False
    """Whether no product was rounded to TF32, as the file may have been told: it may launch other kernels then."""
    """*worker*: equal in runs with the same launches (where there is no GPU) and operators."""

    @property
    def other_parameters(self) -> bool:
        """Whether both sides had other parameters than the problem's own."""
        return self.state not in ("reference", "own")


@dataclass(frozen=True)
class WatchedOperators:
    """Operators of one run that stands on its own, beside the reference's in the same run."""

    where: str
    """``(sizes: shrunk-2)``, ``among its timed runs`` or ``after it was timed``."""
    ops: dict[str, int]
    """*worker*"""
    flops: dict[str, float]
    """*worker*"""
    reference_ops: dict[str, int]
    reference_flops: dict[str, float]
    launches: int | None = None
    """*worker*: kernels launched; None where that is seen elsewhere."""


@dataclass
class Observation:
    """Everything that is known of one candidate when its trials are over."""

    problem: Problem
    candidate: Candidate
    device: str
    """``cpu`` or ``cuda``."""
    profile: str
    track: str | None
    sizes: tuple[SizeSet, ...] = ()
    runs: tuple[TrialRun, ...] = ()
    kernels: tuple[KernelUse, ...] = ()
    """*worker*: kernels launched, all runs together."""
    kernel_bodies: dict[str, str] = field(default_factory=dict)
    """*worker*: kernel name to its source text as loaded."""
    depends_on_kernels: bool | None = None
    """False when outputs stay right with every launch suppressed; None when that could not be decided."""
    aten_ops: dict[str, int] = field(default_factory=dict)
    """*worker*: ATen operators that the candidate ran in all observed runs together, with counts (``aten.mm.default``)."""
    observed_runs: int = 1
    """How many runs those are: all at the first size."""
    elsewhere: tuple[WatchedOperators, ...] = ()
    """The runs at other sizes than the first, and those watched among the timed ones and after them, each on its own."""
    reference_ops: dict[str, int] = field(default_factory=dict)
    """The reference's, for one run."""
    reference_draws: bool = False
    """Whether the reference draws random numbers when it runs."""
    heavy_flops: dict[str, float] = field(default_factory=dict)
    """*worker*: FLOPs of heavy operators (mm, bmm, conv, attention, rnn) that the candidate left to ATen, by operator, for one run."""
    reference_flops: dict[str, float] = field(default_factory=dict)
    kernel_flops: float = 0.0
    """*worker*: arithmetic in kernels in all runs at all sizes together; 0 where nothing counts it (on a GPU)."""
    coverage: float | None = None
    state_missing: tuple[str, ...] = ()
    """Names of the reference's state that ModelNew has not (or in another shape)."""
    events: tuple[AuditEvent, ...] = ()
    threads: int = 0
    """*worker*: threads started by candidate code."""
    processes: int = 0
    """Most descendants of the worker that its supervisor saw at once."""
    streams: int = 0
    """*worker*: CUDA streams created by candidate code (0 on the CPU)."""
    tampered: tuple[str, ...] = ()
    """*worker*: names of library functions that were replaced while candidate code ran (``torch.allclose``, ``time.perf_counter``), and
    :data:`OF_ALL` with the name of a setting."""
