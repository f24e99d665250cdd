"""The groups of programs that run in lockstep: how many, and when a group must fall back to single programs."""

from __future__ import annotations

from typing import Any

ELEMENTS = 2**18
"""Elements of the largest block times programs in a group: more would leave the processor's cache."""
MOST_PROGRAMS = 2048
ProgramId = tuple[int, ...]


class Diverged(BaseException):
    """Programs of a group differ in what decides a branch or a loop. Not an Exception: Triton wraps those."""

    def __init__(self, values: Any) -> None:
        super().__init__("programs diverge")
        self.values = values


class Unsuitable(Exception):
    """An operation that is only done for one program at a time."""


class ProgramGroup:
    """The programs that run now; ``size`` 1 means a single one, with nothing special about any value."""

    size = 1
    ids: tuple[Any, Any, Any] = (None, None, None)
    largest = 1
    """Elements of the largest block seen in this launch."""
    lifted = False
    """Whether the programs' axis is an axis of blocks' types as well, which need not be a power of two then."""


def group_size() -> int:
    """Programs of a group, for the blocks seen in this launch."""
    return max(1, min(ELEMENTS // ProgramGroup.largest, MOST_PROGRAMS))


def by_value(programs: list[ProgramId], values: Any) -> list[list[ProgramId]]:
    """The programs by value, in the order of their first members."""
    parts: dict[Any, list[ProgramId]] = {}
    for program, value in zip(programs, values.tolist(), strict=True):
        parts.setdefault(value, []).append(program)
    return list(parts.values())
