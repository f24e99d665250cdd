"""The learning curve: pass@k against the number of pairs, as a table and a plot."""

from __future__ import annotations

import math

from kernelllm.bench.metrics import outcomes, pass_at_k
from kernelllm.core.store import Store

KS = (1, 20)
WIDTH, HEIGHT, LEFT, TOP = 560, 320, 60, 30
COLOURS = ("#1f77b4", "#d62728")


def rates(path: str) -> dict[int, float]:
    """pass@k in percent for each of ``KS``, of the last run in a store. A problem counts that has k judged answers."""
    with Store(path) as store:
        items = outcomes(store.run("last").attempts())
    found = {}
    for k in KS:
        shares = [pass_at_k(o.n, o.c, k) for o in items if o.n >= k]
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


def table(points: dict[int, dict[int, float]]) -> str:
    """Markdown, a row a size."""
    rows = [f"| {size:,} | " + " | ".join(f"{found[k]:.1f}" for k in KS) + " |" for size, found in points.items()]
    return "\n".join(["| pairs | " + " | ".join(f"pass@{k}" for k in KS) + " |", "|---" * (len(KS) + 1) + "|", *rows])
