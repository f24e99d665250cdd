"""Was the same candidate timed that was judged? Some runs are watched among the timed ones, and one more after them.

To the candidate a watched run looks like any other; it takes longer, so its time is not taken. A candidate that changes its
behaviour after some calls shows it there. One that recognises watched runs launches more kernels in them than in timed runs.
One that keeps results launches fewer kernels on inputs that it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelllm.core.types import Finding
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.trials import input_distribution
from kernelllm.judge.trials.reference import Reference


@dataclass(frozen=True)
class WatchedRun:
    """A watched run on one of the timed input sets."""

    which: int
    launches: int
    ops: dict[str, int]
    flops: dict[str, float]


@dataclass
class WatchedRuns:
    """What the watched runs did, and what their launches say. Outputs are compared for timed runs."""

    watched: list[WatchedOperators]
    findings: list[Finding] = field(default_factory=list)


def watch_once_more(
    process: CandidateProcess, reference: Reference, sets: Sequence[list[Any]], seed: int, *,
    among: Sequence[WatchedRun] = (), timed: dict[int, int], judged: int,
) -> WatchedRuns:  # fmt: skip
    """Run and watch the candidate once more, on the first of the input sets that it was timed on.

    ``among``: what was seen among the timed runs; ``timed``: input set to the fewest kernels that a timed run on it launched;
    ``judged``: fewest of a trial at this size. Raises CandidateFailure when the candidate fails.
    """
    result = process.run(sets[0], seed, apart=True, bare=True)
    last = WatchedRun(0, result.launches, result.ops, result.flops)
    found = WatchedRuns([reference.watched_operators("among its timed runs", one.ops, one.flops) for one in among])
    found.watched.append(reference.watched_operators("after it was timed", last.ops, last.flops))
    for one in (*among, last):
        if timed.get(one.which, one.launches) < one.launches:
            text = f"a call launched {timed[one.which]} kernels while it was timed and {one.launches} while it was watched."
            found.findings.append(Finding(check="timed_launches", message=f"On the same inputs, {text}"))
            break
    if last.launches < judged and (kept := _keeps_results(process, sets[0], seed)):
        found.findings.append(kept)
    return found


def _keeps_results(process: CandidateProcess, inputs: list[Any], seed: int) -> Finding | None:
    """Two calls on the same fresh inputs: both must launch the same kernels."""
    fresh = input_distribution.vary(inputs, input_distribution.TOUCHED, seed)
    first, second = (process.run(fresh, seed, apart=True, bare=True).launches for _ in range(2))
    if second >= first:
        return None
    text = f"Of two calls on the same inputs the first launched {first} kernels and the second {second}: results are kept."
    return Finding(check="replay", message=f"{text} Launch the kernels in every call.")
