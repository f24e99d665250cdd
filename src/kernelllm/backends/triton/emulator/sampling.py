"""Launches of which only some programs run, at sizes where all of them would take too long.

What the programs left out would have written is missing. Whatever reads it says nothing: a launch that does so is not looked at, and
neither is what it writes. The same holds for atomics, which add up over programs, and where other launches may still have written.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from time import process_time
from typing import Any

import numpy as np
import torch

from kernelllm.backends.host_tensors import has_storage
from kernelllm.backends.sampled_launches import SampledLaunches, Stopped
from kernelllm.backends.triton.emulator.written_elements import WrittenElements

_ALL = 16
"""Programs of a grid that is run whole."""
_KEPT = 2048
"""Elements of one store of a group of programs that are looked at."""
_MIDDLE = 6
"""Programs at random places that run beside the first and the last."""
_LAUNCHES = 8
"""A launch has this part of a run's time."""
_FIRST = 5
"""Shares of a launch's time that one program may take: a first one includes what is made ready for all, on a slow machine too."""
_COVERING = 0.4
"""Part of a run's time that may be added to it, to know where programs store that were left out."""
Storages = dict[int, Any]


class Sampling(SampledLaunches):
    """One run of a candidate. ``active``: the run under way in this process."""

    active: Sampling | None = None

    def __init__(self, seed: int, seconds: float, programs: Sequence[float] = ()) -> None:
        self._named = tuple(programs)
        self._random, self._end, self._launch_seconds = random.Random(seed), process_time() + seconds, seconds / _LAUNCHES
        self._missing: Storages = {}
        """Memory that lacks something, by address; held, so that no other gets the address."""
        self._written: dict[int, tuple[int, list[Any]]] = {}
        """Memory to bytes of an element, and indices of some elements that have their final value."""
        self._most: dict[int, float] = {}
        """Memory to the elements that all launches so far write at most, by what the programs that ran wrote."""
        self._now: dict[int, tuple[int, float, list[Any]]] = {}
        """For the launch under way: memory to bytes of an element, elements written, and indices of some of them."""
        self._of_singles: dict[int, tuple[int, float, list[Any]]] = {}
        """What it was before programs ran in groups."""
        self.storages: Storages = {}
        """Memory that the launch under way may touch."""
        self.marks = WrittenElements()
        self._unwritten_read: dict[int, list[Any]] = {}
        """Memory to elements that no program of an earlier launch stores, and that stores of a later one depend on."""
        self._of_unwritten: dict[int, Any] = {}
        """Elements of that kind that the launch under way has read since its last store."""
        self._stained: set[int] = set()
        """Memory that torch wrote into from what lacks something."""
        self.tuned = dict[int, Any]()
        """Autotuned kernels that were launched as such, by identity: to hash one is to read all that it calls."""
        self.covers = False
        """Whether programs run to note where they store, and store nothing."""
        self._covering_left, self._covering_ends = seconds * _COVERING, 0.0
        self._reads_missing = self._adds = self._anywhere = False
        """Whether the launch under way reads what is missing, writes in ways that add up over programs, and to places not known."""
        self._total = self._ran = self._singles = 0
        """Programs of the launch under way, those that ran, and those of them that ran one by one."""
        self._begun = self._groups_begun = 0.0

    def __enter__(self) -> Sampling:
        Sampling.active = self
        return self

    def __exit__(self, *error: object) -> None:
        Sampling.active = None

    def launches_kept(self, kernel: Any) -> None:
        """Note a launch of what an earlier launch of an autotuned kernel compiled: it has the same configuration always."""
        self.configurations_left |= id(kernel) not in self.tuned

    def programs(self, grid: Sequence[int]) -> list[tuple[int, ...]]:
        """The programs of a launch that run in any case."""
        total = math.prod(grid)
        numbers = range(total) if total <= _ALL else [total - 1, 0, *(self._random.randrange(total) for _ in range(_MIDDLE))]
        numbers = [*numbers, *(int(share * total) for share in self._named if share < 1)]
        found = [tuple(map(int, np.unravel_index(number, tuple(grid)))) for number in dict.fromkeys(numbers)]
        along = [(axis, int(number)) for number in self._named for axis, length in enumerate(grid) if 1 <= number < length]
        named = along if total > _ALL else []
        return found + [(*found[-1][:axis], number, *found[-1][axis + 1 :]) for axis, number in named]

    def ran(self, programs: int) -> None:
        """Count programs of the launch under way that have run."""
        self._ran += programs

    def goes_on(self, *, whole: bool) -> bool:
        """Whether the launch under way has time for another program; ``whole``: for all of them, as far as can be told."""
        now = process_time()
        if not whole:
            return not self._ran or now - self._begun < self._launch_seconds
        if not self._singles:
            self._singles, self._groups_begun, self._of_singles = self._ran, now, dict(self._now)
        done = self._ran - self._singles
        needed = (now - self._groups_begun) * (self._total - self._singles) / done if done else 0.0
        return now - self._begun < self._launch_seconds and needed < self._launch_seconds

    def stopped(self) -> None:
        """A group of programs took too long and was left in the middle: what groups wrote is not looked at."""
        self._now = {start: self._of_singles.get(start, (0, 0.0, [])) for start in self._now}
        self._ran = self._singles

    @contextlib.contextmanager
    def launch(self, storages: Storages, total: int) -> Iterator[None]:
        """A context manager for a launch of ``total`` programs that may touch these storages."""
        if process_time() > self._end:
            raise Stopped
        self.storages, self._now, self._of_unwritten = storages, {}, {}
        self._reads_missing = self._adds = self._anywhere = False
        self._begun, self._total, self._ran, self._singles = process_time(), total, 0, 0
        yield
        complete = self._ran == total
        useless = self._reads_missing or (self._adds and not complete)
        for start in storages if useless or not complete else ():
            self._written.pop(start, None)  # programs left out may write there
            if start not in self._now:
                self._most[start] = math.inf
        for start, (width, count, indices) in self._now.items():
            if useless or not complete:
                self._missing[start] = storages[start]
            known_count = width and not useless and not self._anywhere
            self._most[start] = self._most.get(start, 0.0) + (count * total / self._ran if known_count else math.inf)
            if not useless:
                known = self._written.get(start, (width, []))
                self._written[start] = width, [*(known[1] if known[0] == width else []), *indices]

    @property
    def complete(self) -> bool:
        """Whether all programs of the launch under way ran."""
        return self._ran == self._total

    @contextlib.contextmanager
    def covering(self) -> Iterator[None]:
        """A context in which programs of the launch under way store nothing, and where they would is noted."""
        begun = process_time()
        self.covers, self._covering_ends = True, begun + min(self._launch_seconds, self._covering_left)
        try:
            yield
        finally:
            self.covers, took = False, process_time() - begun
            self._covering_left -= took
            self._end += took

    def covered(self, start: int, width: int, indices: Any) -> None:
        """A program would store there. Raises Stopped where there is no more time, or it is not known where."""
        if process_time() > self._covering_ends:
            raise Stopped
        self.marks.store(start, self.storages[start].nbytes(), width, indices)

    def loads(self, start: int) -> None:
        """A program reads from the memory at this address; -1: from several."""
        if self.covers:
            lacking = self._missing.keys() | self._now.keys()
            if process_time() > self._covering_ends or (start in lacking if start >= 0 else not lacking.isdisjoint(self.storages)):
                raise Stopped
            return
        self.in_time()
        self._reads_missing |= start in self._missing if start >= 0 else not self._missing.keys().isdisjoint(self.storages)

    def in_time(self) -> None:
        """Raises Stopped where a program takes long: it may wait for one that was left out."""
        if process_time() > self._begun + _FIRST * self._launch_seconds:
            raise Stopped

    def read(self, start: int, elements: Any, lanes: Any, data: Any) -> Any:
        """What a program reads there instead of ``data``: one where it is missing, and infinity where no program stores it."""
        if self.covers or data.dtype.kind != "f":
            return data
        found = self.marks.unwritten(start, data.dtype.itemsize, elements) if start not in self._now else None
        if start in self._missing:
            data = np.ones_like(data)
        found = found if found is None or lanes is None else found & lanes.astype(np.bool_)
        if found is not None and found.any():
            self._of_unwritten[start] = np.unique(np.broadcast_to(elements, found.shape)[found])
            data = np.where(found, np.array(np.inf, data.dtype), data)
        return data

    def stored(self, data: Any) -> None:
        """A program stored these values."""
        if self._of_unwritten and data.dtype.kind == "f" and bool((np.isnan(data) | np.isposinf(data)).any()):
            for start, elements in self._of_unwritten.items():
                self._unwritten_read.setdefault(start, []).append(elements)
            self._of_unwritten = {}

    def unwritten_read(self, starts: Iterable[int]) -> int:
        count = 0
        for start in set(starts) & self._unwritten_read.keys() - self._stained:
            places = np.unique(np.concatenate(self._unwritten_read[start]))
            found = self.marks.unwritten(start, self.marks.width(start), places)
            count += 0 if found is None else int(found.sum())
        return count

    def stores(self, start: int, width: int, indices: Any) -> None:
        """A program writes these elements of so many bytes."""
        if start < 0 or start not in self.storages:
            self.updates()
            return
        _, count, kept = self._now.get(start, (width, 0.0, []))
        self.marks.store(start, self.storages[start].nbytes(), width, indices)
        few = indices.reshape(-1)[:: max(indices.size // _KEPT, 1)]
        self._now[start] = width, count + indices.size, [*kept, np.array(few, dtype=np.int64)]

    def adds(self, start: int, width: int, indices: Any) -> None:
        """A program writes these elements in a way that adds up over programs."""
        self.updates(known=start in self.storages)
        if start in self.storages:
            self.marks.store(start, self.storages[start].nbytes(), width, indices)

    def updates(self, *, known: bool = False) -> None:
        """A program writes in a way that adds up over programs, or to places that are not ``known``."""
        self._adds = True
        if not known:
            self._anywhere = True
            self.marks.forget_all()
        for start in self.storages:
            self._now.setdefault(start, (0, 0.0, []))

    def lacks(self, tensors: Iterable[torch.Tensor]) -> bool:
        return any(address(tensor) in self._missing for tensor in tensors)

    def changed(self, tensors: Iterable[torch.Tensor], *, missing: bool) -> None:
        for tensor in (t for t in tensors if t.layout is torch.strided):
            self._written.pop(address(tensor), None)
            if missing:
                self._missing[address(tensor)] = tensor.untyped_storage()
                self._stained.add(address(tensor))

    def derived(self, known: Sequence[torch.Tensor], made: torch.Tensor) -> None:
        alike = [t for t in known if t.shape == made.shape and t.is_contiguous() and made.is_contiguous() and not t.storage_offset()]
        if len(known) != 1 or not alike or made.storage_offset():
            return
        width, indices = self._written.get(address(alike[0]), (0, []))
        if width == alike[0].element_size():
            self._written[address(made)] = made.element_size(), list(indices)
            self._most[address(made)] = self._most[address(alike[0])]

    def written(self, tensor: torch.Tensor) -> tuple[torch.Tensor, float] | None:
        width, indices = self._written.get(address(tensor), (0, []))
        if width != tensor.element_size() or not indices:
            return None
        rest = torch.from_numpy(np.unique(np.concatenate(indices))) - int(tensor.storage_offset())
        flat, inside = torch.zeros_like(rest), rest >= 0
        steps = sorted(zip(tensor.stride(), tensor.shape, _contiguous(tensor.shape), strict=True), reverse=True)
        for stride, size, step in steps:
            if size > 1 and stride > 0:
                place = rest // stride
                inside &= place < size
                flat += place * step
                rest = rest - place * stride
        return flat[inside & (rest == 0)], self._most[address(tensor)]


    def holes(self, tensor: torch.Tensor) -> torch.Tensor | None:
        start = address(tensor)
        return None if start in self._stained else self.marks.holes(tensor, start)


def address(tensor: torch.Tensor) -> int:
    """The address of a tensor's memory."""
    return tensor.untyped_storage().data_ptr() if has_storage(tensor) else -1


def _contiguous(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


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
