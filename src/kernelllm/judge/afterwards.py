"""Was it what was judged that was timed? The candidate is watched again in the same process, after its timed runs.

Timed runs are not watched, since watching takes time: there, kernel launches alone are counted. Who changes for good after some
number of calls shows it now; who can tell timed runs from others launches fewer kernels in them; and who keeps results launches
fewer kernels on inputs that it has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelllm.core.types import Finding
from kernelllm.judge import kinds
from kernelllm.judge.candidate import CandidateProcess, Result
from kernelllm.judge.observation import Watched
from kernelllm.judge.reference import Reference


@dataclass
class Afterwards:
    """The run after the timed ones: its operators, and what its launches tell. Outputs are looked at in timed runs."""

    watched: Watched
    findings: list[Finding] = field(default_factory=list)


def look(
    process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, *, timed: int | None, judged: int
) -> Afterwards:  # fmt: skip
    """Run and watch the candidate on inputs of its timed runs.

    ``timed``: fewest kernels that one of the timed runs on these inputs launched, None where that is not known; ``judged``: fewest
    of a trial at this size. Raises CandidateFailure when the candidate fails.
    """
    result = process.run(inputs, seed, apart=True, bare=True)
    found = Afterwards(_watched(reference, result))
    if timed is not None and timed < result.launches:
        text = f"On the same inputs, a call launched {timed} kernels while it was timed and {result.launches} while it was watched."
        found.findings.append(Finding(check="timed_launches", message=text))
    if result.launches < judged and (kept := _keeps_results(process, inputs, seed)):
        found.findings.append(kept)
    return found


def _watched(reference: Reference, result: Result) -> Watched:
    theirs: Mapping[str, float] = {k: float(v) for k, v in reference.flops.items()}
    return Watched("after it was timed", result.ops, result.flops, dict(reference.ops), dict(theirs))


def _keeps_results(process: CandidateProcess, inputs: list[Any], seed: int) -> Finding | None:
    """Two calls on inputs that were never there before: their data are the same, so their launches must be."""
    fresh = kinds.vary(inputs, kinds.TOUCHED, seed)
    first, second = (process.run(fresh, seed, apart=True, bare=True).launches for _ in range(2))
    if second >= first:
        return None
    text = f"Of two calls on the same inputs the first launched {first} kernels and the second {second}: results are kept."
    return Finding(check="replay", message=f"{text} Launch the kernels in every call.")
