"""How well problems shrink: for each file in a folder (searched recursively), the size sets found, the CPU time, and the reference's cost.

    python benchmarks/shrink_rate.py FOLDER [--match TEXT] [--every N] [--verbose]
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from kernelllm.core.errors import KernelLLMError
from kernelllm.problems.dry_runs import DryRuns
from kernelllm.problems.shrink import describe, shrunk
from kernelllm.suites.file import open_problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    files = sorted(f for f in args.folder.rglob("*.py") if args.match in str(f) and f.name != "__init__.py")[:: args.every]
    seconds, flops, elements, enough, odd = [], [], [], 0, 0
    for file in files:
        start = time.process_time()
        name = str(file.relative_to(args.folder))
        try:
            problem = open_problem(str(file))
            sets = shrunk(problem)
        except KernelLLMError as error:
            print(f"{name:70s} FAILED {error}")
            continue
        seconds.append(time.process_time() - start)
        traces = [DryRuns(problem).trace(overrides) for overrides in sets]
        flops.append(max(t.flops for t in traces))
        elements.append(max(t.largest for t in traces))
        enough += len(sets) >= 2
        odd += any(isinstance(v, int) and v % 2 for overrides in sets[1:] for v in overrides.values())
        mark = "" if len(sets) >= 2 else "ONE SET"
        print(f"{name:70s} {seconds[-1]:6.2f} s {flops[-1] / 1e6:10.2f} MFLOP {elements[-1]:8d} elements {mark}")
        if args.verbose:
            for overrides in sets:
                print("      ", {k: f"{a}->{b}" for k, (a, b) in describe(problem, overrides).changed.items()})
        sys.stdout.flush()
    print(f"{enough} of {len(files)} with two sets, {odd} with an odd size")
    print(f"CPU seconds: median {statistics.median(seconds):.2f}, max {max(seconds):.2f}")
    print(f"MFLOP: median {statistics.median(flops) / 1e6:.2f}, max {max(flops) / 1e6:.1f}; elements: median {statistics.median(elements)}")
    print(f"over 50 MFLOP: {sum(f > 5e7 for f in flops)}; over 100k elements: {sum(e > 1e5 for e in elements)}")


if __name__ == "__main__":
    main()
