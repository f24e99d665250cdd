"""How far apart the times of one baseline are that were measured for several candidates of the same problem, in a stored run.

    python benchmarks/repeats.py [RUN] [--db runs.db] [--above 0.05]

The reference is the same for all candidates of a problem, so that its times say how repeatable times are, in a pool as well: judges
beside each other, other processes on the same GPU. The ratio of two baselines says the same of speed-ups.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy

from kernelllm.app.session import open_store
from kernelllm.core.types import Attempt


def spreads(attempts: Sequence[Attempt], above_ms: float) -> dict[str, dict[str, list[float]]]:
    """Baseline (and ``eager / compile``) to problem to its figures, one for each measured candidate."""
    found: dict[str, dict[str, list[float]]] = {}
    for attempt in attempts:
        times = {n: m.median_ms for n, m in attempt.verdict.timing.baselines.items()} if attempt.verdict.timing else {}
        if times.get("eager", 0.0) > above_ms:
            for name, value in times.items():
                found.setdefault(name, {}).setdefault(attempt.problem, []).append(value)
            if "compile" in times:
                found.setdefault("eager / compile", {}).setdefault(attempt.problem, []).append(times["eager"] / times["compile"])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="last")
    parser.add_argument("--db")
    parser.add_argument("--above", type=float, default=0.05, help="milliseconds that eager must take")
    options = parser.parse_args(arguments)
    with open_store(options.db) as store:
        attempts = store.run(options.run).attempts()
    for name, problems in spreads(attempts, options.above).items():
        apart = {p: 100 * (max(v) / min(v) - 1) for p, v in problems.items() if len(v) > 1}
        if not apart:
            continue
        middle, most, nearly = numpy.percentile(list(apart.values()), (50, 90, 95))
        off = sum(x > 1.1 * min(v) for p, v in problems.items() if p in apart for x in v)
        print(f"{name}: {len(apart)} problems, largest over smallest {middle:.2f} % (median), {most:.2f} % (90th), {nearly:.2f} % (95th);")
        print(f"  {off} of {sum(len(problems[p]) for p in apart)} more than 10 % above the smallest of their problem, the widest:")
        for problem in sorted(apart, key=apart.__getitem__, reverse=True)[:5]:
            print(f"    {apart[problem]:6.1f} %  {problem}  {', '.join(f'{x:.3g}' for x in problems[problem])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
