"""The order in which the programs of a launch run one after the other: on a GPU there is none, so no result may depend on it.

Every second run of a model goes from the last program to the first. Kernels that wait for other programs, by atomics or volatile loads,
keep to the order in which those they wait for come first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any


class ProgramOrder:
    backwards = True
    """Of the run under way. The first is forwards."""
    waits = False
    """Whether the launch under way may wait for other programs."""
    any_backwards = False
    """Whether any launch of the run under way went from the last program to the first."""
    independent: set[Any] = set()  # noqa: RUF012 (kernels that a launch has shown to wait for nothing, for the life of the process)


def begin_run(*, again: bool, in_order: bool) -> None:
    """A run of the model begins: in the other direction, or ``again`` in that of the run before."""
    ProgramOrder.backwards = not in_order and (ProgramOrder.backwards if again else not ProgramOrder.backwards)
    ProgramOrder.any_backwards = False


def programs(kernel: Any, grid: Sequence[int], *, sampled: bool) -> Iterator[tuple[int, ...]]:
    """All programs of a launch, in the order in which they run."""
    backwards = ProgramOrder.backwards and kernel in ProgramOrder.independent and not sampled
    ProgramOrder.any_backwards |= backwards
    ProgramOrder.waits = False
    return itertools.product(*(range(extent)[:: -1 if backwards else 1] for extent in grid))


def ran(kernel: Any) -> None:
    """A launch is over."""
    (ProgramOrder.independent.discard if ProgramOrder.waits else ProgramOrder.independent.add)(kernel)
