"""How many problems of a folder the compiler captures and lowers, and what stays with torch.

    python benchmarks/capture_rate.py FOLDER [--every N] [--extern avoid] [--json OUT]

FOLDER holds problem files in KernelBench's format (searched recursively). No GPU and no weights are needed; nothing is run.
For each problem: symbolic or static sizes, CPU seconds, heavy operators left to torch; then totals.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from kernelllm.compiler.capture.capture import capture
from kernelllm.compiler.capture.passes import heavy_left
from kernelllm.compiler.inductor.lower import lower
from kernelllm.compiler.options import Options
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.types import Problem

_EXTERN = re.compile(r"= (extern_kernels\.\w+|torch\.ops\.(?!kernelllm\.)[\w.]+)\(")


def examine(path: Path, options: Options) -> dict[str, Any]:
    """One row of the table."""
    problem = Problem(name=path.stem, source=path.read_text(), path=str(path))
    row: dict[str, Any] = {"problem": str(path), "group": path.parent.name}
    start = time.process_time()
    try:
        captured = capture(problem, options)
        row["capture_s"] = round(time.process_time() - start, 2)
        lowered = lower(captured, options)
    except KernelLLMError as error:
        return {**row, "state": "failed", "cause": f"{type(error).__name__}: {error}"}
    finally:
        row["seconds"] = round(time.process_time() - start, 2)
    return {
        **row,
        "state": "symbolic" if captured.symbolic else "static",
        "way": captured.way,
        "pinned": captured.specialized,
        "notes": list(captured.notes),
        "heavy_extern": dict(Counter(heavy_left(captured.graph))),
        "extern": dict(Counter(_EXTERN.findall(lowered.wrapper))),
    }


def main() -> int:
    """Print one line a problem and the totals of each folder; 0 when none failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="only every N-th problem")
    parser.add_argument("--extern", default="avoid", choices=("allow", "avoid", "forbid"))
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    args = parser.parse_args()
    options = Options(extern=args.extern)
    rows = []
    for path in sorted(args.folder.rglob("*.py"))[:: args.every]:
        row = examine(path, options)
        rows.append(row)
        details = row.get("cause") or {k: row[k] for k in ("pinned", "notes", "heavy_extern", "extern") if row[k]} or ""
        sys.stdout.write(f"{row['state']:9} {row['seconds']:7.2f} s  {row['group']}/{path.name}  {details}\n")
        sys.stdout.flush()
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        totals[row["group"]][row["state"]] += 1
    for group, counts in sorted(totals.items()):
        seconds = sorted(r["seconds"] for r in rows if r["group"] == group)
        sys.stdout.write(f"{group}: {dict(counts)}, median {seconds[len(seconds) // 2]:.2f} s, sum {sum(seconds):.0f} s\n")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return int(any(r["state"] == "failed" for r in rows))


if __name__ == "__main__":
    sys.exit(main())
