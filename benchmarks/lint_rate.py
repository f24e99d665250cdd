"""Lint every problem file in a folder and list what is found.

    python benchmarks/lint_rate.py FOLDER [--match TEXT] [--every N]
"""

import argparse
import sys
import time
from pathlib import Path

from kernelllm.core.errors import KernelLLMError
from kernelllm.problems.lint import lint
from kernelllm.suites.file import open_problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    files = sorted(f for f in args.folder.rglob("*.py") if args.match in str(f) and f.name != "__init__.py")[:: args.every]
    counts: dict[str, int] = {}
    for file in files:
        start = time.perf_counter()
        try:
            report = lint(open_problem(str(file)))
        except KernelLLMError as error:
            print(f"{file.stem:60s} FAILED {error}")
            continue
        for finding in report.findings:
            counts[finding.check] = counts.get(finding.check, 0) + 1
        what = " ".join(f"{f.check}{'' if f.severity == 'fail' else '?'}" for f in report.findings)
        numbers = " ".join(f"{k}={v:.2g}" for k, v in report.numbers.items())
        print(f"{file.stem:60s} {time.perf_counter() - start:5.1f} s {what or '-':40s} {numbers}")
        sys.stdout.flush()
    print(counts)


if __name__ == "__main__":
    main()
