"""Bounds of what an interpreted kernel may touch: the storages of the tensors passed to the launch.

A kernel that makes pointers of integers (out of a table of addresses, as a grouped product does) may touch any tensor of the process.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as ti

from kernelllm.backends.base import IllegalAccess
from kernelllm.backends.sampled_launches import Stopped
from kernelllm.backends.triton.emulator import cooperative, races, unloaded_lanes
from kernelllm.backends.triton.emulator.later_programs import LaterPrograms
from kernelllm.backends.triton.emulator.races import Races
from kernelllm.backends.triton.emulator.sampling import ProgramOrder, Sampling


class Bounds:
    """Address ranges of one launch."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._everything = False
        self.written: set[tuple[int, int]] = set()
        """Start and end of the ranges that were written to."""
        self._set({
            storage.data_ptr(): (storage.nbytes(), name) for name, value in arguments.items()
            for storage in map(torch.Tensor.untyped_storage, tensors(value))
        })  # fmt: skip

    def _set(self, ranges: dict[int, tuple[int, str]]) -> None:
        self._ranges = ranges
        items = sorted(ranges.items())
        self.starts = np.array([start for start, _ in items], dtype=np.uint64)
        self.ends = np.array([start + size for start, (size, _) in items], dtype=np.uint64)
        self.names = [name for _, (_, name) in items]
        self._views: dict[Any, Any] = {}

    def admit_all_tensors(self) -> None:
        """From now on the kernel may touch whatever tensor there is: it makes pointers of integers."""
        if self._everything:
            return
        self._everything = True
        storages = [t.untyped_storage() for t in gc.get_objects() if type(t) in _PLAIN and t.layout is torch.strided]
        found = {s.data_ptr(): (s.nbytes(), "a tensor") for s in storages if s.device.type == "cpu" and s.nbytes()}
        starts = np.array(sorted(found), dtype=np.uint64)
        for start, (size, name) in sorted(found.items()):  # one that holds others is the memory they were cut from
            inside = np.searchsorted(starts, start + size) - np.searchsorted(starts, start, side="right")
            if not inside:
                self._ranges.setdefault(start, (size, name))
        self._set(self._ranges)

    def check(self, pointers: Any, mask: Any, width: int, what: str, where: Any) -> int:
        """Raise IllegalAccess where an active lane leaves all ranges. The range that all lanes are in, -1 where it is not one."""
        if pointers.size == 0:
            return -1
        one = self._one(pointers, width)
        if one >= 0:  # inactive lanes too: the usual case, and quick to see
            return one
        active = pointers
        if mask is not None:
            shape = np.broadcast_shapes(pointers.shape, mask.shape)
            active = np.broadcast_to(pointers, shape)[np.broadcast_to(mask, shape).astype(bool)]
        if active.size == 0:
            return -1
        one = self._one(active, width)
        if one >= 0:
            return one
        index = np.searchsorted(self.starts, active, side="right").astype(np.int64) - 1
        good = (
            (index >= 0) & (active + np.uint64(width) <= self.ends[np.maximum(index, 0)])
            if len(self.ends)
            else np.zeros(active.shape, bool)
        )
        if good.all():
            return -1
        raise IllegalAccess(self._explain(int(active[~good][0]), int((~good).sum()), width, what, where))

    def _one(self, pointers: Any, width: int) -> int:
        low, high = pointers.min(), pointers.max()
        at = int(np.searchsorted(self.starts, low, side="right")) - 1
        return at if at >= 0 and high + np.uint64(width) <= self.ends[at] else -1

    def note_write(self, index: int, pointers: Any, mask: Any) -> None:
        """Active lanes write into this range; -1: into any."""
        if index >= 0:
            self.written.add((int(self.starts[index]), int(self.ends[index])))
            return
        lanes = pointers if mask is None else np.broadcast_to(pointers, np.broadcast_shapes(pointers.shape, mask.shape))[mask.astype(bool)]
        for found in np.unique(np.searchsorted(self.starts, lanes, side="right")) - 1:
            self.note_write(int(found), pointers, mask)

    def read_back(self, index: int, kind: Any, elements: Any, mask: Any) -> None:
        """Active lanes load these elements of a range: whether that is what this launch stored."""
        start = int(self.starts[index])
        if (start, int(self.ends[index])) not in self.written:
            return
        Races.suspects.add(Races.kernel)
        if Races.active is not None:
            lanes = np.arange(elements.size).reshape(elements.shape)
            if mask is not None and not mask.all():
                shape = np.broadcast_shapes(elements.shape, mask.shape)
                chosen = np.broadcast_to(mask, shape).astype(bool)
                elements, lanes = np.broadcast_to(elements, shape)[chosen], np.flatnonzero(chosen)
            Races.active.loads(start, kind.itemsize, self.names[index], elements, lanes)

    def view(self, index: int, kind: Any) -> Any:
        """A range's memory as an array, to read and write."""
        key = index, kind
        if key not in self._views:
            start, end = int(self.starts[index]), int(self.ends[index])
            memory: Any = (ctypes.c_char * (end - start)).from_address(start)
            self._views[key] = np.frombuffer(memory, dtype=kind, count=(end - start) // kind.itemsize)
        return self._views[key]

    def element_indices(self, index: int, pointers: Any, kind: Any) -> Any:
        """Indices in :meth:`view`; of lanes that are not active, anything."""
        return ((pointers - self.starts[index]) >> np.uint64(kind.itemsize.bit_length() - 1)).view(np.int64)

    def _explain(self, address: int, count: int, width: int, what: str, where: Any) -> str:
        nearest, distance = "", None
        for start, end, name in zip(self.starts.tolist(), self.ends.tolist(), self.names, strict=True):
            gap = start - address if address < start else address - end + width
            if distance is None or gap < distance:
                side = "before the start" if address < start else "past the end"
                nearest, distance = f"{gap} bytes {side} of the memory of {name!r}", gap
        program = f", program {where}" if where is not None else ""
        hint = "Mask the access or fix the offsets."
        return f"illegal memory access: a kernel {what} {count} element(s) outside of its tensors{program}; the first is {nearest}. {hint}"


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors that an argument of a launch holds."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for item in value for t in tensors(item)]
    base = getattr(value, "base", None)
    return [base] if isinstance(base, torch.Tensor) else []


_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Current:
    bounds: Bounds | None = None
    has_other = False
    """Whether the load under way names what masked lanes get. Triton asks a tensor of one element whether it is true, and drops zeros."""


class Undo:
    """What a group of programs overwrites, to be put back where the group has to be run again. A context around the run."""

    active: Undo | None = None

    def __init__(self) -> None:
        self._saved: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def __enter__(self) -> Undo:
        Undo.active = self
        return self

    def __exit__(self, *error: object) -> None:
        Undo.active = None

    def keep(self, view: Any, indices: Any) -> None:
        """Save what is at these indices of an array."""
        self._saved.append((view.__setitem__, (indices, view[indices])))

    def keep_at(self, ptr: Any, mask: Any) -> None:
        """Save what is at these addresses; they were checked before."""
        kind = ti._get_np_dtype(ptr.get_element_ty())
        lanes = np.ones(ptr.data.shape, dtype=bool) if mask is None else np.array(np.broadcast_to(mask, ptr.data.shape))
        old = ti._interpreter.load(ptr.data, lanes, np.zeros(ptr.data.shape, dtype=kind), kind)
        self._saved.append((ti._interpreter.store, (ptr.data, old, lanes)))

    def restore(self) -> None:
        """Put everything back, the last write first."""
        for write, arguments in reversed(self._saved):
            write(*arguments)
        self._saved.clear()


def current(bounds: Bounds | None) -> None:
    """Set the bounds of the launch that runs now."""
    _Current.bounds = bounds


def install(builder: Any) -> None:
    """Check every load, store and atomic of the interpreter's builder."""
    TritonSemantic.load = _noting_other(TritonSemantic.load)
    builder.create_masked_load = _checked_load(builder.create_masked_load)
    builder.create_masked_store = _checked_store(builder.create_masked_store)
    _check_atomics(builder)
    _check_pointers(builder)


def _check(builder: Any, ptr: Any, mask: Any, what: str) -> int:
    if _Current.bounds is None:
        return -1
    width = max(1, ptr.get_element_ty().primitive_bitwidth // 8)
    return _Current.bounds.check(ptr.data, mask, width, what, getattr(builder, "grid_idx", None))


def _noting_other(load: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, ptr: Any, mask: Any, other: Any, boundary_check: Any, *rest: Any, **named: Any) -> Any:
        # whole libraries count on the zeros that a block pointer gives beyond its bounds without padding_option, as on every GPU so far
        _Current.has_other = other is not None or bool(boundary_check)
        return load(self, ptr, mask, other, boundary_check, *rest, **named)

    return noted


def _checked_load(load: Callable[..., Any]) -> Callable[..., Any]:
    def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        lanes = _mask(mask)
        index = _check(self, ptrs, lanes, "reads")
        if Sampling.active is not None:
            Sampling.active.loads(_start(index))
        if any(value is True for value in (*rest, *named.values())):  # a volatile load
            ProgramOrder.waits = True
            races.waits()
            _hand_over(ptrs)
        element = ptrs.get_element_ty()
        kind = ti._get_np_dtype(element)
        partly = lanes is not None and not lanes.all()
        if partly and other is None:
            filling = 0 if _Current.has_other else unloaded_lanes.value(element, kind)
            other = ti.TensorHandle(np.full(ptrs.data.shape, filling, dtype=kind), element)
        if index < 0 or _Current.bounds is None:
            return load(self, ptrs, mask, other, *rest, **named)
        # Triton's own loop takes ten times as long
        elements = _Current.bounds.element_indices(index, ptrs.data, kind)
        if _Current.bounds.written:
            _Current.bounds.read_back(index, kind, elements, lanes)
        view = _Current.bounds.view(index, kind)
        data = view.take(elements, mode="clip") if view.size else np.zeros_like(elements, dtype=kind)  # of nothing, no lane is read
        if Sampling.active is not None:
            data = Sampling.active.read(_start(index), elements, lanes, data)
        if partly:
            data = np.where(lanes, data, other.data.astype(kind, copy=False))
        return ti.TensorHandle(data, element)

    return create_masked_load


def _checked_store(store: Callable[..., Any]) -> Callable[..., Any]:
    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        lanes = _mask(mask)
        index = _check(self, ptrs, lanes, "writes")
        kind = ti._get_np_dtype(ptrs.get_element_ty())
        if Sampling.active is not None and Sampling.active.covers:
            _covered(index, ptrs, lanes)
            return None
        if index < 0 or _Current.bounds is None or value.data.dtype.itemsize != kind.itemsize:
            if Undo.active is not None:
                Undo.active.keep_at(ptrs, lanes)
            if lanes is None or lanes.any():
                _updates()
                _note_write(index, ptrs, lanes)
            return store(self, ptrs, value, mask, *rest, **named)
        view, indices = _Current.bounds.view(index, kind), _Current.bounds.element_indices(index, ptrs.data, kind)
        data = value.data if value.data.dtype == kind else np.ascontiguousarray(value.data).view(kind)
        if lanes is not None and not lanes.all():
            shape = np.broadcast_shapes(indices.shape, data.shape, lanes.shape)
            chosen = np.broadcast_to(lanes, shape)
            indices, data = np.broadcast_to(indices, shape)[chosen], np.broadcast_to(data, shape)[chosen]
        elif data.size > indices.size:
            indices = np.broadcast_to(indices, data.shape)
        if indices.size:
            _note_write(index, ptrs, lanes)
            Races.count(index, indices.size * kind.itemsize)
            if Races.active is not None:
                position = np.arange(indices.size).reshape(indices.shape) if lanes is None or lanes.all() else np.flatnonzero(chosen)
                Races.active.stores(int(_Current.bounds.starts[index]), view, _Current.bounds.names[index], indices, data, position)
        if Sampling.active is not None:
            Sampling.active.stores(_start(index), kind.itemsize, indices)
            Sampling.active.stored(data)
        if Undo.active is not None:
            Undo.active.keep(view, indices)
        view[indices] = data  # in order: of several writes to one element the last one stays
        return None

    return create_masked_store


def _check_atomics(builder: Any) -> None:
    cas, rmw = builder.create_atomic_cas, builder.create_atomic_rmw

    def create_atomic_cas(self: Any, ptr: Any, *rest: Any, **named: Any) -> Any:
        if Sampling.active is not None and Sampling.active.covers:
            raise Stopped
        if Sampling.active is not None:
            Sampling.active.in_time()
        _note_write(_check(self, ptr, None, "updates"), ptr, None)
        _updates()
        ProgramOrder.waits = True
        races.waits(named.get("sem") or rest[2])
        result = cas(self, ptr, *rest, **named)
        _hand_over(ptr, result)
        return result

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        index = _check(self, ptr, _mask(mask), "updates")
        if Sampling.active is not None and Sampling.active.covers:
            _covered(index, ptr, _mask(mask))
            return ti.TensorHandle(np.zeros_like(value.data), value.dtype)
        if Sampling.active is not None:
            Sampling.active.in_time()
        _note_write(index, ptr, _mask(mask))
        if Sampling.active is not None:
            Sampling.active.adds(_start(index), *_places(index, ptr, _mask(mask)))
        ProgramOrder.waits = True
        races.waits(named.get("sem") or rest[0])
        if Undo.active is not None:
            Undo.active.keep_at(ptr, _mask(mask))
        result = rmw(self, op, ptr, value, mask, *rest, **named)
        _hand_over(ptr, result)
        return result

    builder.create_atomic_cas, builder.create_atomic_rmw = create_atomic_cas, create_atomic_rmw


def _check_pointers(builder: Any) -> None:
    """A kernel that makes pointers of integers may touch every tensor."""
    to_pointer, bitcast = builder.create_int_to_ptr, builder.create_bitcast

    def create_int_to_ptr(self: Any, src: Any, dst_type: Any) -> Any:
        _pointers_of_integers()
        return to_pointer(self, src, dst_type)

    def create_bitcast(self: Any, src: Any, dst_type: Any) -> Any:
        if dst_type.scalar.is_ptr() and not src.dtype.scalar.is_ptr():
            _pointers_of_integers()
        return bitcast(self, src, dst_type)

    builder.create_int_to_ptr, builder.create_bitcast = create_int_to_ptr, create_bitcast


def _start(index: int) -> int:
    """Address of a range of the launch under way."""
    return int(_Current.bounds.starts[index]) if index >= 0 and _Current.bounds is not None else -1


def _places(index: int, ptrs: Any, mask: Any) -> tuple[int, Any]:
    """Bytes of an element, and indices of the active ones in a range; nothing of no range."""
    kind = ti._get_np_dtype(ptrs.get_element_ty())
    if index < 0 or _Current.bounds is None:
        return kind.itemsize, None
    indices = _Current.bounds.element_indices(index, ptrs.data, kind)
    if mask is not None and not mask.all():
        shape = np.broadcast_shapes(indices.shape, mask.shape)
        indices = np.broadcast_to(indices, shape)[np.broadcast_to(mask, shape).astype(bool)]
    return kind.itemsize, indices


def _covered(index: int, ptrs: Any, mask: Any) -> None:
    """Where a program would store, of a run that notes that alone."""
    if Sampling.active is not None and (index >= 0 or mask is None or mask.any()):
        Sampling.active.covered(_start(index), *_places(index, ptrs, mask))


def _note_write(index: int, ptrs: Any, mask: Any) -> None:
    if _Current.bounds is not None:
        _Current.bounds.note_write(index, ptrs.data, mask)


def _updates() -> None:
    if Sampling.active is not None:
        Sampling.active.updates()


def _hand_over(place: Any, answer: Any = None) -> None:
    if cooperative.Grid.active is not None:
        cooperative.Grid.active.hand_over()
    if LaterPrograms.active is not None:
        LaterPrograms.active.asked(place.data.tobytes(), b"" if answer is None else answer.data.tobytes())


def _mask(handle: Any) -> Any:
    return handle.data if isinstance(handle, ti.TensorHandle) else handle


def _pointers_of_integers() -> None:
    if _Current.bounds is not None:
        _Current.bounds.admit_all_tensors()
    if Sampling.active is not None:
        Sampling.active.marks.forget_all()
