"""The words for a verdict's evidence, the same in the terminal, HTML reports, written files and prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from kernelllm.core.types import Severity, Status, Trial, Verdict

ORIGINAL = "original"
"""Label of the problem's own sizes."""


def right(
    trials: int, sizes: tuple[str, ...], coverage: float | None, warnings: tuple[str, ...], sampled: str = "",
    fixed: Mapping[str, object] = MappingProxyType({}),
) -> str:  # fmt: skip
    """What a reader must know of a correct candidate: where it was tried (labels of sizes), who does the work, names of warnings.

    ``sampled``: the size at which some programs of its grid were tried; ``fixed``: sizes that were not changed, as the candidate asks.
    """
    where = f"{len(sizes)} size{'s' if len(sizes) != 1 else ''}"
    where += ", the original one among them" if ORIGINAL in sizes and len(sizes) > 1 else ""
    where += " of the problem, the original one" if ORIGINAL in sizes and len(sizes) == 1 else ""
    where += f", and in a part of the launch grid at {'the original' if sampled == ORIGINAL else 'a larger'} size" if sampled else ""
    where += "" if ORIGINAL in (*sizes, sampled) else "; the original size was not tried"
    if fixed:
        shown = [f"{name} = {value}" for name, value in fixed.items()]
        where += f", only for these sizes: {', '.join(shown[:4])}" + (", ..." if len(shown) > 4 else "")
    parts = [f"Right in {trials} trials at {where}"]
    if coverage is not None and coverage < 1:
        parts.append(f"{percent(coverage)} of the work in its own kernels, the rest in torch")
    if warnings:
        parts.append(f"warning{'s' if len(warnings) > 1 else ''}: {', '.join(dict.fromkeys(warnings))}")
    return "; ".join(parts) + "."


def first_line(verdict: Verdict) -> str:
    """Status and message in one line."""
    return f"{verdict.status}: {verdict.message}" if verdict.message else str(verdict.status)


def comparisons(verdict: Verdict) -> str:
    """For a candidate that failed: how many outputs were right before, and that this did not save it."""
    total, passed = len(verdict.trials), sum(trial.ok for trial in verdict.trials)
    seeds = len({trial.seed for trial in verdict.trials})
    sizes = len({trial.sizes for trial in verdict.trials})
    where = f"{sizes} size{'s' if sizes != 1 else ''}, {seeds} seed{'s' if seeds != 1 else ''}"
    if passed < total:
        return f"{passed} of {total} outputs right ({where}); it ended at the first wrong one"
    if verdict.status is Status.CHEATING:
        return f"{total} outputs right ({where}), but not by honest work: see the status"
    return f"{total} outputs right ({where}), then it failed: see the status"


def error(verdict: Verdict) -> str:
    """The worst element's error beside what is allowed there; empty where there are no figures of what decided."""
    worst = worst_trial(verdict)
    if worst is not None and worst.ok and not verdict.correct and verdict.status is not Status.CHEATING:
        return ""  # what failed has none: those of the outputs before would read like its own
    if worst is None or worst.error is None or worst.allowed is None:
        return f"at most {verdict.max_error:.1e} away from the reference" if verdict.max_error is not None else ""
    if worst.error == 0:
        text = "none: the outputs are equal"
    else:
        times = worst.error / worst.allowed if worst.allowed else math.inf
        share = f"{percent(times)} of it" if times <= 1 else f"it is {_times(times)} times that"
        text = f"{worst.error:.1e} at the worst element, where {worst.allowed:.1e} is allowed ({share})"
        text += "" if worst.ok or times > 1 else ": within the tolerance, it fails for another reason"
    excused = sum(trial.ok and trial.within_eager_error for trial in verdict.trials)
    if excused:
        beyond = f"{excused} output{'s are' if excused > 1 else ' is'} beyond the tolerance"
        text += f"; {beyond}, and allowed: PyTorch itself is as far from float64 (its TF32 convolutions counted)"
    return text


def _times(value: float) -> str:
    return "over a million" if value >= 1e6 else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def worst_trial(verdict: Verdict) -> Trial | None:
    """The trial that takes the largest share of what is allowed, a wrong one before all others; None where none has figures."""
    known = [trial for trial in verdict.trials if trial.margin is not None]
    return max(known, key=lambda trial: (not trial.ok, trial.margin or 0.0), default=None)


def warnings(verdict: Verdict) -> tuple[str, ...]:
    """Names of the checks that warn."""
    return tuple(dict.fromkeys(f.check for f in verdict.findings if f.severity is Severity.WARN))


def percent(share: float) -> str:
    """``37%``; ``under 1%`` and ``over 99%`` where rounding would say none or all."""
    if 0 < share < 0.01:
        return "under 1%"
    return "over 99%" if 0.99 < share < 1 else f"{share:.0%}"
