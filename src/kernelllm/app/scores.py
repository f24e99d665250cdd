"""Score tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelllm.bench.summary import Scores


def show_scores(title: str, scores: Sequence[Scores], note: str = "") -> None:
    """Print a table of scores, with how the samples ended and what a reader must know below it."""
    from rich.table import Table

    from kernelllm.app.report import stdout
    from kernelllm.bench import summary

    console = stdout()
    filled = summary.rows(scores)
    keep = [i for i in range(len(summary.COLUMNS)) if any(row[i] != "-" for row in filled)]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for i in keep:
        table.add_column(summary.COLUMNS[i], justify="left" if i == 0 else "right", no_wrap=i > 0)
    for row in filled:
        table.add_row(*(row[i] for i in keep))
    console.print(table)
    total = scores[-1]
    console.print("  ".join(f"{status} {count}" for status, count in total.statuses.items()), style="dim", highlight=False)
    console.print("Brackets: 95 % intervals over problems. x: geometric mean speed-up of solved problems.", style="dim", highlight=False)
    if note:
        console.print(note, highlight=False, markup=False)
