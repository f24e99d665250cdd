"""Programs that wait for later ones of their launch, as those of Stream-K do for the one that ends their tile.

Programs run in order here, one by one. Where one polls for long, the next ones run in between. On a GPU any order is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from triton.runtime import interpreter as ti

from kernelllm.backends.triton.emulator.races import Races

_POLLS = 16
"""Times that a program asks the same of one place, and gets the same answer, before a later one has its turn. Who holds a lock does not."""
_DEPTH = 16
"""Programs that wait for each other, one in the call of the other."""


class LaterPrograms:
    """Of the launch under way, whose programs may wait in a loop."""

    active: LaterPrograms | None = None

    def __init__(self, programs: Iterator[Any], run: Callable[[Any], None]) -> None:
        self._programs, self._run = programs, run
        self._polls = self._depth = 0
        self._asked: tuple[bytes, bytes] | None = None

    def asked(self, place: bytes, answer: bytes) -> None:
        """A program has used an atomic operation, or a volatile load, and may wait."""
        self._polls = self._polls + 1 if self._asked == (place, answer) else 0
        self._asked = place, answer
        if self._polls < _POLLS or self._depth == _DEPTH:
            return
        self._polls = 0
        if (program := next(self._programs, None)) is not None:
            mine = ti.interpreter_builder.grid_idx
            self._depth += 1
            try:
                with Races.between():
                    self._run(program)
            finally:
                self._depth -= 1
                ti.interpreter_builder.set_grid_idx(*mine)
            self._polls = 0
