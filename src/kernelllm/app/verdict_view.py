"""Verdicts and scores as text, for a terminal of 80 columns or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import click

from kernelllm.core import verdict_words
from kernelllm.core.types import Floor, Ratio, Severity, Status, Timing, Verdict

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from kernelllm.bench.summary import Scores

PLAIN_WIDTH = 100
"""Columns where standard output is not a terminal."""

LIMIT = "limits"
FEW = 3
"""Rows of what is for the record, where not all are asked for."""
_LABELS = 11
"""Columns of the labels before the text."""

Rows = list[tuple[str, str]]


def show_verdict(title: str, verdict: Verdict, *, whole: bool = False) -> None:
    """Print what ``check`` found; ``whole``: with all that is for the record, not a line each of some."""
    took = f"{verdict.seconds:.1f} s" + (" when it was judged" if verdict.recorded else "")
    limits = limit_rows(verdict, 0 if whole else stdout().width - _LABELS)
    show(title, [*verdict_rows(verdict), *limits, ("took", took)], verdict)


def show(title: str, rows: Rows, verdict: Verdict | None) -> None:
    """Print rows of label and text, and the table of kernels when there is one."""
    put(*_page(title, rows, verdict))


def as_text(title: str, rows: Rows, verdict: Verdict | None) -> str:
    """The same as plain text."""
    from rich.console import Console

    return _captured(Console(highlight=False, color_system=None, width=PLAIN_WIDTH), _page(title, rows, verdict)).strip("\n")


def as_html(title: str, rows: Rows, verdict: Verdict | None) -> str:
    """The same as a piece of HTML, for notebooks."""
    cells = "".join(f'<tr><th style="text-align:left">{escape(label)}</th><td style="text-align:left">{escape(text)}</td></tr>'
                    for label, text in rows)  # fmt: skip
    kernels = "".join(f"<li>{escape(k.name)}: {k.launches} launches</li>" for k in verdict.kernels) if verdict else ""
    kernels = f"<details><summary>kernels</summary><ul>{kernels}</ul></details>" if kernels else ""
    return f"<b>{escape(title)}</b><table>{cells}</table>{kernels}"


def _page(title: str, rows: Rows, verdict: Verdict | None) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    dim = False
    for label, text in rows:
        dim = (dim and not label) or label == LIMIT  # lines without a label belong to the one above
        grid.add_row(label, Text(text, style="dim" if dim else _style(label, verdict)))
    parts: list[RenderableType] = ["", Text(title, style="bold"), grid]
    if verdict is not None and verdict.kernels:
        parts += ["", _kernel_table(verdict)]
    return parts


def put(*parts: RenderableType) -> None:
    """Print to standard output, with no blanks at the ends of lines."""
    click.echo(_captured(stdout(), parts))


def _captured(console: Console, parts: Iterable[RenderableType]) -> str:
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def stdout() -> Console:
    """A console on standard output: as wide as the terminal, plain and 100 columns wide elsewhere."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def _style(label: str, verdict: Verdict | None) -> str:
    if label != "status" or verdict is None:
        return ""
    return "bold green" if verdict.status is Status.CORRECT else "bold red"


def verdict_rows(verdict: Verdict) -> Rows:
    """The verdict, line by line: status, how it was verified, coverage, findings and speed."""
    rows: Rows = [("status", verdict_words.first_line(verdict)), *findings_rows(verdict)]
    if verdict.trials:
        rows += [] if verdict.correct else [("compared", verdict_words.comparisons(verdict))]
        rows += [("error", text) for text in [verdict_words.error(verdict)] if text]
    rows += [("" if i else "sizes", text) for i, text in enumerate(_sizes(verdict))]
    unrun = [kernel.name for kernel in verdict.kernels if not kernel.launches and kernel.registers is not None]
    if verdict.correct and unrun:
        rows.append(("not run", f"compiled, but only launched at larger sizes than were tried here: {', '.join(unrun)}"))
    if verdict.coverage is not None:
        share = verdict_words.percent(verdict.coverage)
        rows.append(("coverage", f"{share} of the work runs in the candidate's own kernels"))
    if verdict.correct or verdict.timing:
        rows.append(("speed", _speed(verdict)))
        rows += [("", line) for line in _floor_lines(verdict)]
    ran = [verdict.environment[key] for key in ("device", "sandbox") if verdict.environment.get(key)]
    if ran:
        rows.append(("judged on", ", sandbox: ".join(ran[:2])))
    if verdict.recorded:
        rows.append(("recorded", f"this verdict was given at {moment(verdict.recorded)} UTC; --no-cache judges again"))
    return rows


def findings_rows(verdict: Verdict) -> Rows:
    """What the checks saw, ``info`` left out."""
    shown = [f for f in verdict.findings if f.severity is not Severity.INFO]
    place = [f" (line {f.line})" if f.line else "" for f in shown]
    texts = ["see the status" if f.message in verdict.message else f"{f.message}{at}" for f, at in zip(shown, place, strict=True)]
    return [(str(f.severity), f"{f.check}: {text}") for f, text in zip(shown, texts, strict=True)]


def limit_rows(verdict: Verdict, width: int) -> Rows:
    """What checks noted for the record, a line of so many columns each and few of them; all of it where ``width`` is 0."""
    found = [f.message if f.check == "limits" else f"{f.check}: {f.message}" for f in verdict.findings if f.severity is Severity.INFO]
    shown = found if not width else [_cut(" ".join(text.split()), width) for text in found[:FEW]]
    left = f"... {len(found) - len(shown)} more with --json or -v"
    return [("" if number else LIMIT, text) for number, text in enumerate([*shown, *([left] if len(found) > len(shown) else [])])]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 3, 1)].rstrip()}..."


def _sizes(verdict: Verdict) -> list[str]:
    lines = []
    for shape in verdict.shapes:
        pairs = ((name, *(tuple(v) if isinstance(v, list) else v for v in both)) for name, both in shape.changed.items())
        changed = ", ".join(f"{name} {old} to {new}" for name, old, new in pairs)
        lines.append(f"{shape.label}: {', '.join(shape.inputs)}" + (f"  ({changed})" if changed else ""))
    return lines


def _speed(verdict: Verdict) -> str:
    timing = verdict.timing
    if timing is None:
        return "not measured" if verdict.on_gpu else "not measured: no GPU"
    parts = [f"{_ms(timing.candidate.median_ms)} ({_ms(timing.candidate.low_ms)} to {_ms(timing.candidate.high_ms)}) on {timing.device}"]
    parts += [_against(name, timing) for name in timing.baselines]
    if timing.recorded:
        parts.append(f"all measured at {moment(timing.recorded)} UTC, not now")
    return "; ".join(parts)


def _against(name: str, timing: Timing) -> str:
    text = f"{name} {_ms(timing.baselines[name].median_ms)}"
    ratio: Ratio | None = timing.speedups.get(name)
    if ratio is None:
        return text
    return f"{text}: {ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f}{', a tie' if ratio.tie else ''})"


def _floor_lines(verdict: Verdict) -> list[str]:
    floor: Floor | None = verdict.floor
    if floor is None:
        return []
    work = _scaled(floor.bytes, "B") if floor.bound == "memory" else _scaled(sum(floor.flops.values()), "FLOP")
    if floor.below_any_launch:
        return [f"floor below 1 us for {work}: launching one kernel takes longer"]
    text = f"floor {_ms(floor.ms)} for {work} on {floor.device} (estimate from its {floor.source}; bound by {floor.bound})"
    if verdict.timing is not None and verdict.timing.floor_percent is not None:
        text += f"; {verdict.timing.floor_percent:.0f}% of it reached"
    if verdict.timing is not None and verdict.timing.sol_score is not None:
        text += f"; SOL score {verdict.timing.sol_score:.2f}"
    return [text]


def moment(iso: str) -> str:
    """``2026-11-23T00:18:46+00:00`` as ``2026-11-23 00:18``."""
    return iso[:16].replace("T", " ")


def _scaled(value: float, unit: str) -> str:
    """134217728 bytes to ``134 MB``."""
    prefixes = ["", "k", "M", "G", "T"]
    while value >= 999.5 and len(prefixes) > 1:
        value, prefixes = value / 1000, prefixes[1:]
    return f"{value:.3g} {prefixes[0]}{unit}"


def _bytes(value: int) -> str:
    return f"{value} B" if value < 1024 else f"{value / 1024:.4g} KB"


def _ms(value: float) -> str:
    return f"{value * 1000:.3g} us" if value < 0.1 else f"{value:.3g} ms"


def _kernel_table(verdict: Verdict) -> Table:
    from rich.table import Table

    target = next((kernel.target for kernel in verdict.kernels if kernel.target), "")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("kernel", overflow="fold")
    for name in ("launches", "registers", "shared", "spills"):
        table.add_column(name, justify="right")
    for kernel in verdict.kernels:
        shared = None if kernel.shared_bytes is None else _bytes(kernel.shared_bytes)
        figures = [None, None, None] if kernel.error else [kernel.registers, shared, kernel.spills]
        launches = str(kernel.launches) if kernel.launches or verdict.correct else "-"  # a worker that ended told no number
        table.add_row(kernel.name, launches, *("-" if f is None else str(f) for f in figures))
    if target:
        table.caption = f"compiled for {target}"
        table.caption_justify = "left"
    return table


def show_scores(title: str, scores: Sequence[Scores], note: str = "", kinds: Mapping[str, int] | None = None) -> None:
    """Print a table of scores, with how the samples ended and what a reader must know below it.

    With ``kinds`` (kind of error to count) every figure of the last group and the kinds follow.
    """
    from rich.table import Table

    from kernelllm.bench import summary

    console = stdout()
    columns, *filled = summary.table(scores)
    console.print(title, style="italic", highlight=False, markup=False)
    table, wide = _figures(columns, filled, console.width)
    console.print(table)
    total = scores[-1]
    console.print("  ".join(f"{status} {count}" for status, count in total.statuses.items()), style="dim", highlight=False)
    if total.rounds:
        heads, *after = summary.round_table(total)
        console.print()
        console.print(f"after each round ({total.group}; a sample counts with its best version so far)", style="italic", highlight=False)
        table, cut = _figures(heads, after, console.width)
        console.print(table)
        wide = wide or cut
        if "repaired" in heads:
            console.print("repaired: wrong versions that the next one put right.", style="dim", highlight=False)
    brackets = "Intervals are left out for want of room." if wide else "Brackets: 95 % intervals over problems."
    ratios = " x: geometric mean speed-up of solved problems." if any(name.startswith("x ") for name in columns) else ""
    console.print(brackets + ratios, style="dim", highlight=False, markup=False)
    if kinds is not None:
        if kinds:
            console.print("errors: " + ", ".join(f"{kind} {count}" for kind, count in kinds.items()), style="dim", highlight=False)
        grid = Table(title=f"all figures ({total.group})", title_justify="left", box=None, pad_edge=False, show_header=False)
        for name, text in summary.all_figures(total):
            grid.add_row(name, text)
        console.print(grid)
    if note:
        console.print(note, highlight=False, markup=False)


def _figures(columns: Sequence[str], filled: Sequence[Sequence[str]], room: int) -> tuple[Table, bool]:
    """A table of scores, and whether it has no room for the intervals: then it has the figures alone, not fragments of both."""
    from rich.table import Table

    cut = sum(max(map(len, column)) + 2 for column in zip(columns, *filled, strict=True)) > room
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name == columns[0] else "right", no_wrap=not cut)
    for row in filled:
        table.add_row(*(cell.partition(" [")[0] if cut else cell for cell in row))
    return table, cut
