"""Pairs seen against pass@k: a table and a plot of runs that differ in the size of their data alone.

    kernelllm train sft mini --pairs SET -o size-1000 --set data.limit=1000
    kernelllm bench kernelbench/level1 -m mini/size-1000/int8 -n 20 --temperature 1.0 --top-p 0.97 --db size-1000.db
    python benchmarks/learning_curve.py 1000=size-1000.db 3000=size-3000.db ... -o learning_curve.svg

Each store holds one run. What is not judged yet does not count; a problem counts for pass@k that has k judged answers.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path

from kernelllm.bench.metrics import pass_at_k
from kernelllm.core.store import Store

KS = (1, 20)
WIDTH, HEIGHT, LEFT, TOP = 560, 320, 60, 30
COLOURS = ("#1f77b4", "#d62728")


def rates(path: str) -> dict[int, float]:
    """pass@k in percent for each of ``KS``."""
    right: dict[str, list[bool]] = defaultdict(list)
    with Store(path) as store:
        for attempt in store.run("last").attempts():
            right[attempt.problem].append(attempt.verdict.correct)
    found = {}
    for k in KS:
        shares = [pass_at_k(len(r), sum(r), k) for r in right.values() if len(r) >= k]
        found[k] = 100 * sum(shares) / len(shares) if shares else float("nan")
    return found


def plot(points: dict[int, dict[int, float]]) -> str:
    """An SVG: sizes on a logarithmic axis, percent upwards."""
    low, high = math.log(min(points)), math.log(max(points))

    def place(size: int, percent: float) -> tuple[float, float]:
        across = (math.log(size) - low) / max(high - low, 1e-9)
        return LEFT + across * (WIDTH - LEFT - 90), TOP + (100 - percent) / 100 * (HEIGHT - TOP - 50)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for percent in range(0, 101, 20):
        x, y = place(min(points), percent)
        lines.append(f'<path d="M{x:.0f} {y:.0f}H{WIDTH - 90}" stroke="#ddd"/>')
        lines.append(f'<text x="{x - 10:.0f}" y="{y + 4:.0f}" text-anchor="end">{percent} %</text>')
    for size in points:
        x, y = place(size, 0)
        lines.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{size:,}</text>')
    for k, colour in zip(KS, COLOURS, strict=True):
        at = [place(size, found[k]) for size, found in points.items() if not math.isnan(found[k])]
        if not at:
            continue
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in at)}"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at]
        x, y = at[-1]
        lines.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}" fill="{colour}">pass@{k}</text>')
    lines.append(f'<text x="{(LEFT + WIDTH - 90) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">pairs in training</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Read the stores, print the table, write the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", metavar="SIZE=STORE")
    parser.add_argument("-o", "--output", type=Path, help="The SVG file.")
    given = parser.parse_args()
    points = {int(size): rates(path) for size, path in sorted((one.split("=", 1) for one in given.stores), key=lambda p: int(p[0]))}
    rows = [f"| {size:,} | " + " | ".join(f"{found[k]:.1f}" for k in KS) + " |" for size, found in points.items()]
    sys.stdout.write("\n".join(["| pairs | " + " | ".join(f"pass@{k}" for k in KS) + " |", "|---" * (len(KS) + 1) + "|", *rows, ""]))
    if given.output:
        given.output.write_text(plot(points), encoding="utf-8")


if __name__ == "__main__":
    main()
