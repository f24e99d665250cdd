"""Candidates a minute through the pool: the builtin suite's hand-written solutions, and wrong ones made of them.

    python benchmarks/throughput.py [--count 120] [--device cpu] [--workers N] [--seed 0]

Of every ten candidates five are right, three have a single fault in a kernel (of ``mutants.py``), one raises when it runs and one
is no candidate at all. The pool's processes are warm before the clock starts. Beside the rate stand the machine's load and the
processor time that one candidate takes, which depends on the load far less.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from mutants import mutants

from kernelllm.bench.bench_plan import BenchPlan
from kernelllm.bench.pool_jobs import Setup, State, Task, work
from kernelllm.core.types import Candidate, Problem, Verdict
from kernelllm.pool.local import LocalPool
from kernelllm.suites import open_suite

SOLUTIONS = Path(__file__).parent.parent / "tests" / "suites" / "builtin_solutions"
KINDS = ("right", "fault", "right", "raises", "right", "fault", "right", "invalid", "right", "fault")


def candidate(problem: Problem, kind: str, chance: random.Random) -> Candidate:
    """The problem's solution, or a wrong one made of it."""
    source = (SOLUTIONS / f"{problem.name}.py").read_text()
    if kind == "fault":
        source = chance.choice([m.source for m in mutants(source)])
    elif kind == "raises":
        failing = "    def forward(self, *inputs):\n        return kernel_that_is_not_there(*inputs)\n\n"
        source = source.replace("    def forward(self", f"{failing}    def was(self")
    elif kind == "invalid":
        source = "Here is the kernel that you asked for:\n" + source
    return Candidate(source=source)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    problems = tuple(open_suite("builtin").problems())
    settings = {"cache": False, "measure": options.device != "cpu"}
    plan = BenchPlan(suite="builtin", problems=problems, model="file", judge=settings)
    tasks = []
    for index in range(options.count):
        which = chance.randrange(len(problems))
        tasks.append((KINDS[index % len(KINDS)], Task(which, candidate(problems[which], KINDS[index % len(KINDS)], chance))))
    kinds = {id(task): kind for kind, task in tasks}
    pool: LocalPool[Task, Verdict | list[str]] = LocalPool(Setup(plan, "", ""), _work, devices=[options.device], per_device=options.workers)
    statuses: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {}
    with pool:
        for _ in pool.run([Task(0, candidate(problems[0], "right", chance))] * options.workers):
            pass
        start, load = time.monotonic(), os.getloadavg()[0]
        for number, done in enumerate(pool.run([task for _, task in tasks]), 1):
            kind, found = kinds[id(done.item)], done.result
            if not isinstance(found, Verdict):
                print(done.error, file=sys.stderr)
                return 1
            statuses[f"{kind}: {found.status}"] += 1
            seconds.setdefault(kind, []).append(found.seconds)
            if number % 20 == 0:
                print(f"{number}: {60 * number / (time.monotonic() - start):.0f} a minute, load {os.getloadavg()[0]:.1f}", flush=True)
        took = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for kind, times in seconds.items():
        print(f"{kind}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    print(f"verdicts: {dict(sorted(statuses.items()))}")
    print(f"processor time of a candidate: {(used.ru_utime + used.ru_stime) / options.count:.2f} s, starting the pool included")
    loads = f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(f"{60 * options.count / took:.0f} candidates a minute with {options.workers} workers; {loads}")
    return 0


def _work(state: State, task: Task) -> Verdict | list[str]:
    return work(state, task)


if __name__ == "__main__":
    sys.exit(main())
