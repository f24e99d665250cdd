"""Data races: reads of what other programs or threads of a launch wrote, with no wait between, and different values stored in one place.

Here one program ends before the next begins, and a whole block is stored before it is loaded: such kernels are right in the
interpreter and may be anything on a GPU. Kernels that load what their launch stored, or store more than there is room for, are
traced, in one launch for each order of programs.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from triton._C.libtriton import ir

from kernelllm.backends.base import STORED_TWICE, IllegalAccess
from kernelllm.backends.triton.emulator import unloaded_lanes

MOST_PROGRAMS = 512
"""Programs of one launch that are traced at the most; they run one by one."""
_LANE = 2**32
_ONE = "A GPU keeps no order between programs: let one of them store each."
_ACQUIRES = (None, ir.MEM_SEMANTIC.ACQUIRE, ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
"""After these a program sees what those stored before that it waited for."""


class Races:
    """Of one launch. ``active``: of the launch under way, where it is traced."""

    active: Races | None = None
    kernel: Any = None
    """What is launched now."""
    warps = 4
    """Warps that a program of the launch has; threads of one warp go together."""
    whole = True
    """Whether all programs of it run."""
    suspects: set[Any] = set()  # noqa: RUF012 (kernels that are to be traced, for the life of the process)
    _stored: Counter[int] = Counter()  # noqa: RUF012
    """Bytes that the launch stored in each range."""
    _traced: set[Any] = set()  # noqa: RUF012 (kernels, constants and orders that were traced)

    def __init__(self) -> None:
        self._writers: dict[tuple[int, int], tuple[Any, Any]] = {}
        """Range and size of elements to the program that stored each element last, and when and in which lane."""
        self._program = self._programs = self._time = 0
        self._waited = self._relaxed = False
        self._stored_twice: IllegalAccess | None = None
        """What is wrong with the stores. It is told when all programs have run: who allows it, since the reference writes several values to
        one place as well, knows then that nothing else is wrong."""

    @classmethod
    def begin(cls, kernel: Any, warps: int, *, whole: bool) -> None:
        """A launch begins."""
        cls.kernel, cls.warps, cls.whole = kernel, warps, whole
        cls._stored.clear()

    @classmethod
    def end(cls, lengths: Any) -> None:
        """The launch has ended; ``lengths``: bytes of each range."""
        if any(index < len(lengths) and stored > lengths[index] for index, stored in cls._stored.items()):
            cls.suspects.add(cls.kernel)

    @classmethod
    def trace(cls, key: Any, programs: Iterator[Any], run: Callable[[Any], None]) -> None:
        """Run the first programs of a launch one by one, where the kernel loads what it stored and nothing of this key was traced."""
        if not cls.whole or cls.kernel not in cls.suspects or key in cls._traced:
            return
        cls._traced.add(key)
        cls.active = own = cls()
        try:
            for program in itertools.islice(programs, MOST_PROGRAMS):
                own._next()
                run(program)
        finally:
            cls.active = None
        if own._stored_twice is not None:
            raise own._stored_twice

    def _next(self) -> None:
        """Another program begins."""
        self._program = self._programs = self._programs + 1
        self._waited, self._relaxed, self._time = False, False, self._time + 1

    @classmethod
    @contextlib.contextmanager
    def between(cls) -> Iterator[None]:
        """Inside it another program runs, for which the one under way waits."""
        if (own := cls.active) is None:
            yield
            return
        mine = own._program, own._waited, own._relaxed
        own._next()
        try:
            yield
        finally:
            own._program, own._waited, own._relaxed = mine

    @classmethod
    def count(cls, index: int, size: int) -> None:
        """Count ``size`` bytes that are stored in a range."""
        cls._stored[index] += size

    def stores(self, start: int, view: Any, name: str, elements: Any, data: Any, lanes: Any) -> None:
        """The program under way stores this in elements of the range that begins there."""
        key = start, view.itemsize
        if key not in self._writers:
            self._writers[key] = np.zeros(view.size, dtype=np.int32), np.zeros(view.size, dtype=np.int64)
        writers, times = self._writers[key]
        before, old = writers[elements], view[elements]
        others = int(((before != 0) & (before != self._program) & (old != data) & ((old == old) | (data == data))).sum())
        if others and not self._waited:
            text = f"{STORED_TWICE} {others} element(s) of {name!r} in which another program of the same launch stored other values"
            self._stored_twice = self._stored_twice or IllegalAccess(f"{text}, and waits for nothing. {_ONE}", unloaded_lanes.place()[1])
        writers[elements], times[elements] = self._program, self._time * _LANE + lanes

    def loads(self, start: int, width: int, name: str, elements: Any, lanes: Any) -> None:
        """Note elements that the program loads. Raises IllegalAccess where others stored some of them."""
        if (start, width) not in self._writers:
            return
        writers, times = (known[elements] for known in self._writers[start, width])
        others = int(((writers != 0) & (writers != self._program)).sum())
        if others and not self._waited:
            text = f"a race: a program loads {others} element(s) of {name!r} that another program of the same launch stored, and waits "
            if self._relaxed:
                raise IllegalAccess(f"{text}by relaxed atomics alone, which order no other memory: leave sem= out, or use another launch.")
            raise IllegalAccess(f"{text}for nothing. A GPU keeps no order between programs: use another launch, or atomics.")
        unordered = (writers == self._program) & (times // _LANE == self._time) & (times % _LANE != lanes)
        if Races.warps > 1 and unordered.any():
            text = f"a race: a program loads {int(unordered.sum())} element(s) of {name!r} that other threads of it stored, with nothing"
            raise IllegalAccess(f"{text} between: call tl.debug_barrier() first, or keep the values in registers.")

    def waits(self, semantic: Any) -> None:
        """The program under way does what may wait for others, where it is not relaxed. None: a volatile load."""
        self._waited |= semantic in _ACQUIRES
        self._relaxed |= semantic not in _ACQUIRES
        self._time += 1

    def meets(self) -> None:
        """All threads of it wait for each other."""
        self._time += 1


def waits(semantic: Any = None) -> None:
    if Races.active is not None:
        Races.active.waits(semantic)


def meets() -> None:
    if Races.active is not None:
        Races.active.meets()
