"""How far two measurements of the same baseline are apart while a pool keeps the GPU busy.

    python benchmarks/pool_times.py --problems kernelbench/level3 builtin/real [--judges 4] [--baselines eager compile] [--budget 200]

Each problem is measured by two of the pool's processes, at different times, as judges measure it. The distance of the two medians is told
for each problem and baseline, then its median and 95th percentile over all.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.device_share import share_device
from kernelllm.judge.timing import measure, rounds
from kernelllm.judge.timing.baselines import Baselines
from kernelllm.judge.timing.contestants import TimedBaseline
from kernelllm.judge.trials.reference_runs.reference import prepare
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.pool import cores
from kernelllm.pool.local import LocalPool, Slot
from kernelllm.suites import open_suite

FEWEST, MOST = 8, 400
"""Operators of a reference that is measured: it runs about as many kernels."""


@dataclass(frozen=True)
class Times:
    """Medians in milliseconds, by baseline. ``skipped``: why there are none."""

    ms: dict[str, float]
    skipped: str = ""


def opened(names: tuple[str, ...], seconds: float, slot: Slot) -> tuple[Baselines, float]:
    return Baselines(names, slot.device), seconds


def timed(state: tuple[Baselines, float], problem: Problem) -> Times:
    """The pool's function."""
    baselines, seconds = state
    try:
        reference = prepare(problem, SizeSet(label="original"), {}, baselines.device, INIT_SEED, False)
        sets = [reference.inputs(seed) for seed in range(2)]
        if error := reference.run(sets[0], 0, refinable=False).error:
            return Times({}, error)
    except ProblemError as error:
        return Times({}, str(error))
    kernels = sum(count for name, count in reference.ops.items() if name.startswith("aten."))  # the rest are sums of elements
    if not FEWEST <= kernels <= MOST:
        return Times({}, f"{kernels} operators")
    with share_device(baselines.device, 12 * 2**30) as share:
        share.acquire_shared()
        calls = baselines.calls(reference, sets[0], share)
        share.acquire_exclusive()
        with cores.measuring() as kept:
            method = measure.timing_method(reference, kept)
            contestants = [TimedBaseline(name, call, sets, method) for name, call in calls.items()]
            found = rounds.run_rounds(contestants, budget_s=seconds)
    baselines.clear()
    return Times({name: rounds.median_ms(found, name) for name in found.by_name})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", required=True, metavar="SUITE")
    parser.add_argument("--most", type=int, default=40, help="problems, drawn at random")
    parser.add_argument("--judges", type=int, default=4)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--baselines", nargs="+", default=["eager", "compile"])
    parser.add_argument("--seconds", type=float, default=2.0, help="for one measurement, as judges have")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds after which nothing is begun")
    options = parser.parse_args()
    every = [problem for name in options.problems for problem in open_suite(name).problems()]
    chosen = random.Random(0).sample(every, min(options.most, len(every)))
    end, seen = time.monotonic() + options.budget, dict[str, list[dict[str, float]]]()

    def items() -> Any:
        for number in range(2 * len(chosen)):
            problem = chosen[number % len(chosen)]
            if time.monotonic() < end and (number < len(chosen) or seen.get(problem.name)):
                yield problem

    setup = partial(opened, tuple(options.baselines), options.seconds)
    with LocalPool[Problem, Times](setup, timed, devices=[options.device], per_device=options.judges) as pool:
        for done in pool.run(items()):
            if done.result is None or done.result.skipped:
                why = done.error if done.result is None else done.result.skipped
                print(f"{done.item.name:60} left out: {why.strip()[-100:]}", file=sys.stderr)
            else:
                seen.setdefault(done.item.name, []).append(done.result.ms)
    apart: dict[str, list[float]] = {name: [] for name in options.baselines}
    for name, (one, two) in ((name, both) for name, both in seen.items() if len(both) == 2):
        for baseline in one.keys() & two.keys():
            apart[baseline].append(max(one[baseline], two[baseline]) / min(one[baseline], two[baseline]) - 1)
            print(f"{name:60} {baseline:8} {one[baseline]:9.4f} {two[baseline]:9.4f} ms  {100 * apart[baseline][-1]:6.2f} %")
    for baseline, found in (*apart.items(), ("all", [one for several in apart.values() for one in several])):
        if found:
            print(f"{baseline}: {100 * statistics.median(found):.2f} % (median), {100 * float(np.percentile(found, 95)):.2f} % "
                  f"(95th percentile), {100 * max(found):.2f} % (largest) of {len(found)}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
