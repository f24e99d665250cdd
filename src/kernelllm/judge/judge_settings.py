"""Checks the settings of a judge, and finds the device that they mean."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelllm.core import gpus
from kernelllm.core.errors import UsageError
from kernelllm.core.types import DEFAULT_BACKEND

STRICT = "strict"
"""Outputs are compared with float64, precision is judged, and inputs are drawn from other distributions too."""
KERNELBENCH = "kernelbench"
"""KernelBench's tolerances on the reference in working precision, on the problem's own inputs; timed as KernelBench times."""
QUICK = "quick"
"""Compared as strictly, with a few seeds at each size and nothing more: for many kernels of a writer that is trusted."""
PROFILES = (STRICT, KERNELBENCH, QUICK)
KERNELS_ONLY = "kernels-only"
"""Torch may allocate, view, move and cast, not compute."""
HYBRID = "hybrid"
"""Torch may do any part of the work, not all of it. Without a track the kernels must do a tenth of the heavy work."""
TRACKS = (KERNELS_ONLY, HYBRID)


@dataclass(frozen=True)
class JudgeSettings:
    """How to judge."""

    profile: str = STRICT
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    target: str = "sm_90"
    """What kernels are compiled for on a machine without a GPU."""
    backend: str = DEFAULT_BACKEND
    """The kernel language to be ready for. Candidates in others are judged as well: their workers start when the first one comes."""
    sizes: int | None = None
    """How many shrunk sets of sizes to try. None: two; on a GPU, where the original sizes come last, one for a candidate without branches.
    The second takes 0.3 s more there."""
    seeds: int = 3
    tolerance: float | None = None
    """None: by dtype, as KernelBench."""
    time_limit_s: float = 30.0
    """For one call of the candidate (its first includes imports and autotuning); all calls together get eight times as much.
    Compiling for the target and the reference's own time do not count. On a GPU, where kernels are compiled when they are
    first launched, a call may take four times as long."""
    memory_limit_bytes: int = 4 * 2**30
    checks: tuple[str, ...] | None = None
    """Names of checks; None: all."""
    track: str | None = None
    """``kernels-only``: torch may allocate, move and cast, not compute. ``hybrid``: it may do a part of the work,
    and coverage is reported; None: as ``hybrid``, and the kernels must do at least a tenth of the heavy FLOPs."""
    require_sandbox: str | None = None
    backward: bool = False
    """Judge gradients of inputs and parameters like outputs, and time forward and backward as one call. A problem with the tag
    ``gradients`` asks for it too."""
    measure: bool = True
    """Time a correct candidate where there is a GPU."""
    baselines: tuple[str, ...] = ("eager", "compile")
    side_by_side: bool = True
    """On a GPU, try a candidate's sizes in a worker each, so that their kernels compile at the same time. Where other judges keep the
    device busy, one worker for all of them is better: contexts take memory, and on hosts of many GPUs seconds to be made and ended."""
    timed_runs: int = 24
    """Fewest timed runs of a candidate; there are more until its median is known to 1 %, or the budget ends."""
    time_budget_s: float = 2.0
    """Most seconds to spend on measuring."""
    cache: bool = True
    """Keep verdicts in memory and give the same one for the same content again."""
    keep_verdicts: bool = False
    """Keep them in the user's cache folder as well, for other judges and another day."""

    @property
    def assembles(self) -> bool:
        """Whether a compile for the target goes on to machine code. Before it is all that a kernel may be refused for."""
        return self.profile != QUICK


def checked(settings: JudgeSettings) -> JudgeSettings:
    """The settings, if they make sense. Raises UsageError or UnknownName."""
    if settings.profile not in PROFILES:
        raise UsageError(f"Unknown profile {settings.profile!r}.", fix=f"Known: {', '.join(PROFILES)}.")
    if settings.track is not None and settings.track not in TRACKS:
        raise UsageError(f"Unknown track {settings.track!r}.", fix=f"Known: {', '.join(TRACKS)}.")
    if settings.tolerance is not None and not 0 < settings.tolerance < 1:
        raise UsageError(f"The tolerance {settings.tolerance} is not between 0 and 1.")
    if (settings.sizes is not None and settings.sizes < 1) or settings.seeds < 1 or settings.time_limit_s <= 0:
        raise UsageError("Sizes, seeds and the time limit must be positive.")
    gpus.by_arch(settings.target)
    return replace(settings)


def resolve_device(wanted: str) -> str:
    """``cpu`` or ``cuda:N``. Raises UsageError for a device that is not there."""
    if wanted == "cpu":
        return "cpu"
    import torch

    if wanted == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    if wanted != "cuda" and not wanted.startswith("cuda:"):
        raise UsageError(f"Unknown device {wanted!r}.", fix="Known: auto, cpu, cuda, cuda:N.")
    if not torch.cuda.is_available():
        raise UsageError("There is no usable CUDA device here.", fix="Use --device cpu; kernelllm doctor says what is missing.")
    return "cuda:0" if wanted == "cuda" else wanted


def capability(device: str) -> str:
    """The compile target of a CUDA device, e.g. ``sm_90``."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def device_name(device: str) -> str:
    """What a verdict's environment calls the device."""
    if device == "cpu":
        return "cpu"
    import torch

    return torch.cuda.get_device_name(device)
