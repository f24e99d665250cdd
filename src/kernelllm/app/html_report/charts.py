"""The report's plots as matplotlib figures, and those as PNG, SVG or theme-aware inline SVG.

Figures are drawn in placeholder colours; inline SVG has these replaced by CSS variables, so that one plot
serves dark and light pages.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelllm.bench import metrics
from kernelllm.bench.metrics import Outcome
from kernelllm.core.errors import MissingExtra, UsageError
from kernelllm.core.gpus import Gpu
from kernelllm.core.types import Attempt, best

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("#3b6fd4", "#d9772b", "#2d9c6d", "#a45bc7", "#c9403f", "#7a7f2a")
"""Colours of the runs, in order; told apart by people with colour-blindness and on both backgrounds."""
_INK, _GRID = "#123456", "#abcdef"
_CSS = {_INK: "var(--ink)", _GRID: "var(--grid)"}

Series = Sequence[tuple[str, Sequence[Outcome]]]
"""Name and outcomes of each run."""


def _figure() -> tuple[Figure, Any]:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("matplotlib", "report") from error
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "kernelllm",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "text.color": _INK,
        "grid.color": _GRID,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(6.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(visible=True, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, axes


def fast_p(series: Series, baseline: str) -> Figure:
    """fast_p against p from 0 to 4: how many problems are solved at least that fast."""
    figure, axes = _figure()
    ps = np.linspace(0, 4, 81)
    for (name, items), color in zip(series, cycle(SERIES), strict=False):
        axes.plot(ps, [100 * metrics.fast_p(items, float(p), baseline) for p in ps], color=color, label=name, drawstyle="steps-post")
    axes.axvline(1, color=_INK, linewidth=0.8, linestyle=":")
    axes.set(xlabel=f"p: speed-up over {baseline}", ylabel="fast_p, % of problems", xlim=(0, 4), ylim=(0, 100))
    _legend(axes, series)
    return figure


def pass_at_k(series: Series) -> Figure:
    """pass@k against k, logarithmic, with the 95 % interval over problems."""
    figure, axes = _figure()
    most = 1
    for (name, items), color in zip(series, cycle(SERIES), strict=False):
        n = min((o.n for o in items if o.n), default=1)
        most = max(most, n)
        ks = sorted({int(k) for k in np.unique(np.geomspace(1, max(n, 1), 12).round())})
        estimates = [e for k in ks if (e := metrics.mean_pass_at_k(items, k)) is not None]
        axes.plot(ks, [100 * e.value for e in estimates], color=color, label=name, marker="o", markersize=3, clip_on=False)
        axes.fill_between(ks, [100 * e.low for e in estimates], [100 * e.high for e in estimates], color=color, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    ticks = [*(k for k in (1, 2, 5, 10, 20, 50, 100) if 1.2 * k < most), most]
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set(xlabel="k: samples", ylabel="pass@k, %", ylim=(0, 100))
    _legend(axes, series)
    return figure


def rounds(series: Series) -> Figure:
    """pass@1 after each round, with the 95 % interval over problems."""
    figure, axes = _figure()
    most = max(metrics.rounds_of(items) for _, items in series)
    for (name, items), color in zip(series, cycle(SERIES), strict=False):
        counts = range(1, metrics.rounds_of(items) + 1)
        found = [(r, e) for r in counts if (e := metrics.mean_pass_at_k([o.after(r) for o in items], 1)) is not None]
        x = [r for r, _ in found]
        axes.plot(x, [100 * e.value for _, e in found], color=color, label=name, marker="o", markersize=3, clip_on=False)
        axes.fill_between(x, [100 * e.low for _, e in found], [100 * e.high for _, e in found], color=color, alpha=0.15, linewidth=0)
    axes.set_xticks(range(1, most + 1))
    axes.set(xlabel="rounds", ylabel="pass@1, %", ylim=(0, 100))
    _legend(axes, series)
    return figure


def speedups(series: Series, baseline: str) -> Figure:
    """Histogram of the best speed-up of each solved problem, logarithmic bins."""
    figure, axes = _figure()
    edges = np.geomspace(0.05, 50, 41)
    for (name, items), color in zip(series, cycle(SERIES), strict=False):
        values = [s for o in items if (s := o.best(baseline)) is not None]
        axes.hist(np.clip(values, 0.051, 49), bins=edges, histtype="stepfilled", alpha=0.45, color=color, label=name)
    axes.axvline(1, color=_INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xticks([0.1, 0.5, 1, 2, 5, 10, 50], ["0.1", "0.5", "1", "2", "5", "10", "50"])
    axes.minorticks_off()
    axes.set(xlabel=f"speed-up over {baseline}", ylabel="problems")
    axes.yaxis.get_major_locator().set_params(integer=True)
    _legend(axes, series)
    return figure


def roofline(series: Sequence[tuple[str, Sequence[Attempt]]], gpu: Gpu) -> Figure:
    """Achieved FLOP/s of the fastest correct kernel of each problem against its arithmetic intensity, under the device's roofs."""
    figure, axes = _figure()
    intensity = np.geomspace(0.05, 5e4, 200)
    for rate, label in ((gpu.fp16, "16-bit"), (gpu.tf32, "tf32"), (gpu.fp32, "fp32")):
        axes.plot(intensity, np.minimum(rate, intensity * gpu.bandwidth) / 1e12, color=_INK, linewidth=0.8)
        axes.annotate(label, (5e4, rate / 1e12), ha="right", va="bottom", fontsize=8, color=_INK)
    for (name, attempts), color in zip(series, cycle(SERIES), strict=False):
        points = [p for a in fastest(attempts).values() if (p := _point(a)) is not None]
        if points:
            axes.scatter(*zip(*points, strict=True), s=9, color=color, label=name, alpha=0.7, linewidths=0)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte (reference's least traffic)", ylabel="TFLOP/s", ylim=(0.05, 2e3))
    _legend(axes, series)
    return figure


def fastest(attempts: Sequence[Attempt]) -> dict[str, Attempt]:
    """Problem to its best attempt, where that was timed."""
    grouped: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        grouped.setdefault(attempt.problem, []).append(attempt)
    return {name: found for name, group in grouped.items() if (found := best(group)) and found.verdict.timing}


def _point(attempt: Attempt) -> tuple[float, float] | None:
    floor, timing = attempt.verdict.floor, attempt.verdict.timing
    if floor is None or timing is None or not floor.bytes:
        return None
    # Elementwise work has no counted operations: one a byte keeps it on the memory roof's slope.
    flops = sum(floor.flops.values()) or float(floor.bytes)
    return flops / floor.bytes, flops / timing.candidate.median_ms / 1e9


def _legend(axes: Any, series: Sequence[tuple[str, object]]) -> None:
    if len(series) > 1:
        axes.legend(loc="best", fontsize=8, frameon=False, labelcolor=_INK)


def inline(figure: Figure, title: str) -> str:
    """A figure as SVG to put into a page: coloured by the page's CSS, sized by its box, with a title for screen readers."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kernelllm"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for placeholder, variable in _CSS.items():
        text = text.replace(placeholder, variable)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
    return re.sub(r"(\d+\.\d\d)\d+", r"\1", text)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG (150 dpi) or SVG, by the file's suffix. Raises UsageError for another one."""
    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"Plots are written as .png or .svg, not {path.suffix!r}.")
    out = io.BytesIO()
    figure.savefig(out, format=path.suffix[1:], dpi=150, facecolor="white")
    data = out.getvalue()
    if path.suffix == ".svg":
        data = data.decode().replace(_INK, "#222222").replace(_GRID, "#dddddd").encode()
    path.write_bytes(data)
