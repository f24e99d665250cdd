"""Records what the trials of one candidate brought to light."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.observation import TrialRun, WatchedOperators

_FLOATS = ("float", "bfloat")


@dataclass
class TrialEvidence:
    """Grows with every trial. ``failure``: what decides the verdict, None while all is well."""

    runs: list[TrialRun] = field(default_factory=list)
    failure: CandidateFailure | None = None
    findings: list[Finding] = field(default_factory=list)
    depends_on_kernels: bool | None = None
    """False when outputs stay right with every launch suppressed; None when that could not be decided."""
    state_missing: tuple[str, ...] = ()
    """Parameters and buffers of the reference that ModelNew has not, or in another shape."""
    reference_ops: dict[str, int] = field(default_factory=dict)
    """Operators of the reference's first run."""
    reference_draws: bool = False
    reference_flops: dict[str, float] = field(default_factory=dict)
    """FLOPs of the heavy ones among them."""
    observed_runs: int = 0
    """Runs at the first size, in which the worker counted operators."""
    watched: list[WatchedOperators] = field(default_factory=list)
    """Operators of runs that stand on their own: at other sizes, among timed runs and after them."""
    backward_launches: int = 0
    """Kernels launched in backward passes."""
    _ranges: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Output number to the smallest and largest value of the reference in all trials."""
    _only_floats: bool = True

    def add(self, run: TrialRun) -> None:
        self.runs.append(run)
        floats = [(i, s) for i, s in enumerate(run.reference) if s.dtype.startswith(_FLOATS)]
        self._only_floats = bool(floats) and len(floats) == len(run.reference)
        for index, s in floats:
            low, high = self._ranges.get(index, (s.low, s.high))
            self._ranges[index] = min(low, s.low), max(high, s.high)

    def warn_once(self, check: str, text: str) -> None:
        """Note a warning that many trials may give."""
        if all(found.check != check for found in self.findings):
            self.findings.append(Finding(check=check, message=text, severity=Severity.WARN))

    def reference_constant(self, tolerance: float | None) -> bool:
        """Whether the reference's output was one number in all trials, up to the tolerance: then it says nothing of a kernel."""
        allowed = tolerance or 1e-4
        same = all(high - low <= allowed * (1 + abs(low)) for low, high in self._ranges.values())
        return bool(self.runs) and self._only_floats and same

    @property
    def launched_kernels(self) -> bool:
        """Whether any trial launched a kernel."""
        return any(run.launches for run in self.runs)

    def fewest_launches(self, sizes: str) -> int:
        """The fewest launches of any trial at these sizes."""
        return min((run.launches for run in self.runs if run.trial.sizes == sizes), default=0)
