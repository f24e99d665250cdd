"""The data types that all packages share: Problem, Candidate, Verdict, Attempt and their parts.

All are frozen ``msgspec`` structs: comparable, hashable by content where it matters, and JSON on
``to_json``. Times are milliseconds where the name ends in ``_ms`` and seconds where it ends in ``_s``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Status(StrEnum):
    """The closed list of what a verdict can say."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CHEATING = "cheating"
    INVALID = "invalid"
    PROBLEM_ERROR = "problem_error"


class Severity(StrEnum):
    """``fail`` decides the verdict, ``warn`` is reported beside it, ``info`` is only for the record."""

    FAIL = "fail"
    WARN = "warn"
    INFO = "info"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check saw. ``line`` counts from 1 in the candidate's source, 0 when it has no line."""

    check: str
    message: str
    severity: Severity = Severity.FAIL
    line: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A reference in KernelBench's format: ``source`` defines Model, get_inputs and get_init_inputs."""

    name: str
    source: str
    origin: str = ""
    """Where it came from, e.g. ``file`` or ``kernelbench:level1/19``."""
    path: str | None = None
    """The file it was read from; its folder is importable while the source runs."""
    tags: tuple[str, ...] = ()
    """Free labels such as ``level1`` or an operator family."""

    @property
    def digest(self) -> str:
        """SHA-256 of the source, hexadecimal."""
        return digest(self.source)


GRADIENTS = "gradients"
"""Tag of a problem whose backward is judged with its forward."""
OF_TORCH_COMPILE = "torch.compile"
"""The origin of a problem that is a graph whose weights are inputs like all others."""
DEFAULT_BACKEND = "triton"
"""The kernel language where none is named."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Source text that defines ModelNew, and where it came from."""

    source: str
    backend: str = DEFAULT_BACKEND
    """The kernel language that it is written in."""
    model: str = "file"
    """Which model wrote it (``provider/name``), or ``file`` when a person handed it in."""
    sample: int = 0
    parents: tuple[str, ...] = ()
    """Digests of the candidates it was derived from."""
    params: dict[str, Any] = {}
    """Sampling parameters or compiler options that made it."""
    note: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the source, hexadecimal."""
        return digest(self.source)


class SizeSet(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the problem's sizes that a candidate was tried at."""

    label: str
    """``original`` or ``shrunk-1``, ``shrunk-2``, ..."""
    changed: dict[str, tuple[Any, Any]] = {}
    """Constant name to (original value, value used); empty for ``original``."""
    inputs: tuple[str, ...] = ()
    """Each input as ``float32[8, 128]``; non-tensors by their repr."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison of candidate and reference."""

    sizes: str
    """Label of the SizeSet."""
    seed: int
    kind: str = "problem"
    """Which input distribution: ``problem`` (the problem's own), ``normal``, ``large``, ``zeros``, ..."""
    ok: bool = True
    max_error: float | None = None
    """Largest |candidate - reference| of any element; None when shapes or types already disagree."""
    margin: float | None = None
    """``error`` / ``allowed``: at most 1 when it passes."""
    error: float | None = None
    """|candidate - reference| at the worst element: the one that takes the largest share of what is allowed there."""
    allowed: float | None = None
    """What was allowed at that element: atol + rtol * |reference|, or PyTorch's own error where that is larger."""
    within_eager_error: bool = False
    """Right beyond the tolerance: float64 shows that PyTorch's own output is about as far off."""
    message: str = ""


class KernelUse(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that ran, and what the compile for the target says of it (None: not compiled)."""

    name: str
    launches: int = 0
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None
    num_warps: int | None = None
    target: str = ""
    error: str = ""
    """The compiler's message when the compile failed."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A time: median and its 95 % confidence interval, in milliseconds, over ``runs`` runs."""

    median_ms: float
    low_ms: float
    high_ms: float
    runs: int
    mean_ms: float | None = None
    graph_ms: float | None = None
    """Median by CUDA-graph replay, launch gaps excluded; None where it was not or cannot be captured."""
    quantiles_ms: tuple[float, ...] = ()
    """0th, 5th, 25th, 50th, 75th, 95th and 100th percentile of the runs."""
    with_launching: bool = False
    """Whether the host's launching is a part of it: in the profile ``kernelbench``, and where it cannot be kept out."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A speed-up (baseline time / candidate time) with its 95 % interval; ``tie`` when noise explains it."""

    value: float
    low: float
    high: float
    tie: bool = False


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of light: the least time the device needs for the reference's bytes and operations."""

    ms: float
    bytes: int
    flops: dict[str, float] = {}
    """Operations by unit, e.g. ``{"fp32": 1e9, "tf32": 2e9}``."""
    bound: str = "memory"
    """``memory`` or ``compute``."""
    device: str = ""
    source: str = "datasheet"
    """``datasheet`` or ``measured``."""

    @property
    def below_any_launch(self) -> bool:
        """Whether it is less than launching one kernel takes, so that it says nothing of a candidate."""
        return self.ms < 1e-3


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Candidate and baselines, measured interleaved in one session on one device."""

    device: str
    candidate: Measured
    baselines: dict[str, Measured] = {}
    speedups: dict[str, Ratio] = {}
    floor_percent: float | None = None
    """100 * floor / candidate."""
    sol_score: float | None = None
    """SOL-ExecBench's S = 1 / (1 + (Tk - Tsol) / (Tb - Tsol)) with Tb the eager baseline."""
    recorded: str = ""
    """When it was measured (UTC, ISO 8601) where the verdict comes from a cache; empty when measured for this verdict."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge says of one candidate, with its evidence."""

    status: Status
    message: str
    findings: tuple[Finding, ...] = ()
    max_error: float | None = None
    tolerance: float | None = None
    trials: tuple[Trial, ...] = ()
    shapes: tuple[SizeSet, ...] = ()
    kernels: tuple[KernelUse, ...] = ()
    coverage: float | None = None
    """Share (0 to 1, by FLOPs) of the reference's heavy operators that ran in the candidate's own kernels."""
    timing: Timing | None = None
    floor: Floor | None = None
    environment: dict[str, str] = {}
    """Device, versions, sandbox strength, profile, track."""
    seconds: float = 0.0
    """Wall time that judging took."""
    recorded: str = ""
    """When it was judged (UTC, ISO 8601) where it comes from a cache of verdicts, times and all; empty when judged now."""

    @property
    def correct(self) -> bool:
        """True for status ``correct`` alone."""
        return self.status is Status.CORRECT

    @property
    def on_gpu(self) -> bool:
        """Whether it was given on a GPU: not on a CPU, and not before any device was needed."""
        return not self.environment.get("device", "cpu").lower().startswith("cpu")

    def speedup(self, baseline: str = "eager") -> float | None:
        """Measured speed-up over ``baseline``, None when it was not measured."""
        if self.timing is None or baseline not in self.timing.speedups:
            return None
        return self.timing.speedups[baseline].value


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt cost. Tokens and dollars are None where unknown, never guessed."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    usd: float | None = None
    generate_s: float = 0.0
    judge_s: float = 0.0
    gpu_s: float = 0.0
    """Seconds of judging in which a GPU was used."""

    def judged(self, verdict: Verdict, seconds: float | None = None) -> Cost:
        """The cost with that of the verdict; ``seconds``: where judging took others than the verdict says."""
        seconds = verdict.seconds if seconds is None else seconds
        return msgspec.structs.replace(self, judge_s=seconds, gpu_s=seconds if verdict.on_gpu else 0.0)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """Candidate, verdict and cost: what a run stores."""

    problem: str
    """Name of the problem."""
    candidate: Candidate
    verdict: Verdict
    cost: Cost = Cost()
    round: int = 0
    prompt: str = ""
    answer: str = ""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate before it is judged, with what was asked, what came back, and what that cost."""

    candidate: Candidate
    prompt: str = ""
    answer: str = ""
    cost: Cost = Cost()
    reason: str = ""
    """Why there is no usable source: such a draft is an attempt with status ``invalid``, not judged."""


def digest(text: str) -> str:
    """SHA-256 of a text as UTF-8, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def to_json(value: Any, *, indent: int = 2) -> str:
    """Any of the structs above as JSON text (NaN and infinities become null)."""
    raw = msgspec.json.encode(value)
    return msgspec.json.format(raw, indent=indent).decode() if indent else raw.decode()


def from_json(text: str | bytes, kind: type[T]) -> T:
    """The inverse of :func:`to_json`; raises ``msgspec.ValidationError`` where the text does not fit."""
    return msgspec.json.decode(text, type=kind)


def best(attempts: Iterable[Attempt]) -> Attempt | None:
    """The best correct attempt, None when none is correct.

    A measured one is better than one that was not measured, and a faster one than a slower one. Among equals the one whose own
    kernels do more of the work is better, then the earlier one.
    """
    return min((a for a in attempts if a.verdict.correct), key=_rank, default=None)


def _rank(attempt: Attempt) -> tuple[bool, float, float]:
    timing, coverage = attempt.verdict.timing, attempt.verdict.coverage
    return (timing is None, timing.candidate.median_ms if timing else 0.0, -(coverage or 0.0))


def conversations(attempts: Iterable[Attempt]) -> list[list[Attempt]]:
    """Attempts by problem and sample: each sample's versions in the order of their rounds."""
    found: dict[tuple[str, int], list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda a: (a.problem, a.candidate.sample, a.round)):
        found.setdefault((attempt.problem, attempt.candidate.sample), []).append(attempt)
    return list(found.values())


def consecutive_ranges(samples: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending sample numbers as (first, count): [3, 4, 7] gives [(3, 2), (7, 1)]."""
    found: list[tuple[int, int]] = []
    for sample in samples:
        if found and sum(found[-1]) == sample:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((sample, 1))
    return found
