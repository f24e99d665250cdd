"""Score tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelllm.bench.summary import Scores


def show_scores(title: str, scores: Sequence[Scores], note: str = "", kinds: Mapping[str, int] | None = None) -> None:
    """Print a table of scores, with how the samples ended and what a reader must know below it.

    With ``kinds`` (kind of error to count) every figure of the last group and the kinds follow.
    """
    from rich.table import Table

    from kernelllm.app.verdict_view import stdout
    from kernelllm.bench import summary

    console = stdout()
    filled = summary.rows(scores)
    keep = [i for i in range(len(summary.COLUMNS)) if any(row[i] != "-" for row in filled)]
    cells = [list(summary.COLUMNS), *filled]
    wide = sum(max(len(row[i]) for row in cells) + 2 for i in keep) > console.width
    console.print(title, style="italic", highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    for i in keep:
        table.add_column(summary.COLUMNS[i], justify="left" if i == 0 else "right", no_wrap=not wide)
    for row in filled:
        # With no room for the intervals, the figures alone: a table of fragments can be read by nobody.
        table.add_row(*(row[i].partition(" [")[0] if wide else row[i] for i in keep))
    console.print(table)
    total = scores[-1]
    console.print("  ".join(f"{status} {count}" for status, count in total.statuses.items()), style="dim", highlight=False)
    brackets = "Intervals are left out for want of room." if wide else "Brackets: 95 % intervals over problems."
    console.print(f"{brackets} x: geometric mean speed-up of solved problems.", style="dim", highlight=False, markup=False)
    if kinds is not None:
        if kinds:
            console.print("errors: " + ", ".join(f"{kind} {count}" for kind, count in kinds.items()), style="dim", highlight=False)
        grid = Table(title=f"all figures ({total.group})", title_justify="left", box=None, pad_edge=False, show_header=False)
        for name, text in summary.all_figures(total):
            grid.add_row(name, text)
        console.print(grid)
    if note:
        console.print(note, highlight=False, markup=False)
