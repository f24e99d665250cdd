"""Judge the hand-written solutions of the builtin suite, on a CPU or on a GPU with timing.

    python benchmarks/judge_builtin.py [--device auto] [--family NAME] [--no-measure]
"""

import argparse
import sys
import time
from pathlib import Path

from kernelllm.core.types import Candidate
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.suites import open_suite

SOLUTIONS = Path(__file__).parent.parent / "tests" / "suites" / "builtin_solutions"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--family", default="")
    parser.add_argument("--no-measure", action="store_true")
    args = parser.parse_args()
    wrong = 0
    problems = list(open_suite("builtin" + (f"/{args.family}" if args.family else "")).problems())
    with Judge(JudgeSettings(device=args.device, measure=not args.no_measure, cache=False)) as judge:
        for problem in problems:
            start = time.perf_counter()
            verdict = judge.judge(problem, Candidate(source=(SOLUTIONS / f"{problem.name}.py").read_text()))
            wrong += not verdict.correct
            speeds = " ".join(f"{name} {ratio.value:.2f}x" for name, ratio in (verdict.timing.speedups if verdict.timing else {}).items())
            note = "" if verdict.correct else verdict.message[:160]
            findings = [f.check for f in verdict.findings]
            print(f"{problem.name:40s} {verdict.status:14s} {time.perf_counter() - start:5.1f} s {speeds} {findings or ''} {note}")
            sys.stdout.flush()
    print(f"{len(problems) - wrong} of {len(problems)} correct")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
