"""Runs many programs of a grid in lockstep: each interpreted operation works on a group of programs, which saves Python's overhead.

Values that differ between the programs of a group have one more axis, in front: a block of shape ``s`` is an array ``(programs, *s)``,
a scalar ``(programs,)``. What is the same for all stays as it was, and NumPy's broadcasting joins the two. Operations that look at
axes are replaced below; elementwise ones need nothing.

Where programs diverge (a branch or a loop that depends on the program), everything the group wrote is put back and its parts run on
their own. So do single programs after any error in a group: errors are those of one program, exactly as without groups.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as ti
from triton.runtime.errors import InterpreterError

from kernelllm.backends.sampled_launches import Stopped
from kernelllm.backends.triton.emulator import cooperative, functions, memory, races, sampling
from kernelllm.backends.triton.emulator.later_programs import LaterPrograms
from kernelllm.backends.triton.emulator.program_groups import Diverged, ProgramGroup, ProgramId, Unsuitable, by_value, group_size
from kernelllm.backends.triton.emulator.sampling import Sampling
from kernelllm.backends.triton.emulator.scalar_arguments import converted

MOST_DIVERGENCES = 24
"""Divergences in one launch after which its programs run one by one."""


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of a kernel's parameters, and defaults: the same at each launch."""
    found = inspect.getfullargspec(function)
    given = found.defaults or ()
    return tuple(found.args), dict(zip(found.args[len(found.args) - len(given) :], given, strict=True))


def is_wide(tensor: Any) -> bool:
    """Whether a value differs between the programs of the group."""
    data = tensor.handle.data
    return bool(data.ndim > len(tensor.type.shape) if tensor.type.is_block() else data.size > 1)


class GridExecutor(ti.GridExecutor):  # type: ignore[misc]
    cooperative = False
    """Whether the programs of this launch wait for each other."""
    waits = False
    """Whether programs may wait for those before them: they run in order, one by one."""
    sampling: Sampling | None = None
    """Which programs run; None: all."""
    launches = 0
    """How many there were in this process."""
    serial: set[Any] = set()  # noqa: RUF012 (kernels that do not run in groups, for the life of the process)
    largest: dict[Any, int] = {}  # noqa: RUF012 (elements of the largest block of a kernel with certain constants)

    def __call__(self, *args_dev: Any, **kwargs: Any) -> None:
        GridExecutor.launches += 1
        names, defaults = _parameters(self.fn)
        kwargs = {k: v for k, v in kwargs.items() if k in names}
        args_hst, kwargs_hst = self._init_args_hst(args_dev, kwargs)
        for hook in self.pre_run_hooks:
            hook(*args_hst, **kwargs_hst)
        bound = {**defaults, **dict(zip(names, args_hst, strict=False)), **kwargs_hst}  # what is missing was told before
        bound = {name: bound[name] for name in names}
        self.bound = {n: a if n in self.constexprs else converted(a, self.fn.__annotations__.get(n, "")) for n, a in bound.items()}
        grid = tuple(self.grid(self.bound) if callable(self.grid) else self.grid)
        grid += (1,) * (3 - len(grid))
        ti.interpreter_builder.set_grid_dim(*grid)
        try:
            programs = sampling.programs(self.fn, grid, sampled=self.sampling is not None)
            if self.cooperative:
                cooperative.Grid(list(programs), lambda: self.fn(**self.bound)).run()
            else:
                self._all(programs if self.sampling is None or self.waits else self._after_sample(programs, grid, self.sampling))
        except Exception as error:
            raise InterpreterError(repr(error)) from error
        finally:
            ProgramGroup.size, LaterPrograms.active = 1, None
        sampling.ran(self.fn)
        self._restore_args_dev(args_dev, args_hst, kwargs, kwargs_hst)

    def _all(self, programs: Iterator[tuple[int, ...]]) -> None:
        LaterPrograms.active = LaterPrograms(programs, self._single) if self.waits else None
        key = self.fn, tuple(repr(self.bound[n]) for n in self.constexprs)
        self.divergences, ProgramGroup.largest = 0, self.largest.get(key, 1)
        if key not in self.largest:  # one program shows how large its blocks are
            for program in itertools.islice(programs, 1):
                self._single(program)
                if self.sampling is not None:
                    self.sampling.ran(1)
            self.largest[key] = ProgramGroup.largest
        races.Races.trace((*key, sampling.ProgramOrder.backwards), programs, self._single)
        size = 1 if self.waits else group_size()
        while (self.sampling is None or self.sampling.goes_on(whole=True)) and (chunk := list(itertools.islice(programs, size))):
            try:
                self._some(chunk)
            except Stopped:
                if self.sampling is None:
                    raise
                self.sampling.stopped()
                break
            if self.sampling is not None:
                self.sampling.ran(len(chunk))

    def _after_sample(self, programs: Iterator[ProgramId], grid: ProgramId, sampling: Sampling) -> Iterator[ProgramId]:
        """Run the programs of a sample one by one. The others."""
        chosen = dict.fromkeys(sampling.programs(grid))
        for program in chosen:
            if sampling.goes_on(whole=False):
                self._single(program)
                sampling.ran(1)
        return (program for program in programs if program not in chosen)

    def _single(self, program: ProgramId) -> None:
        ProgramGroup.size = 1
        ti.interpreter_builder.set_grid_idx(*program)
        self.fn(**self.bound)

    def _some(self, programs: list[ProgramId]) -> None:
        if len(programs) > 1 and self.divergences <= MOST_DIVERGENCES and self.fn not in self.serial:
            undo, flops = memory.Undo(), functions.Arithmetic.flops
            try:
                with undo:
                    self._together(programs)
                return
            except Diverged as divergence:
                undo.restore()
                functions.Arithmetic.flops = flops
                self.divergences += 1
                parts = by_value(programs, divergence.values)
                if len(parts) <= max(2, len(programs) // 4):
                    for part in parts:
                        self._some(part)
                    return
                self.divergences += MOST_DIVERGENCES // 4
            except Exception:  # noqa: BLE001 (whatever it is, single programs say it better, or do it right)
                undo.restore()
                functions.Arithmetic.flops = flops
                self.serial.add(self.fn)
        for program in programs:
            self._single(program)

    def _together(self, programs: list[ProgramId]) -> None:
        ti.interpreter_builder.set_grid_idx(*programs[0])
        ProgramGroup.ids = tuple(np.array(axis, dtype=np.int32) for axis in zip(*programs, strict=True))  # type: ignore[assignment]
        ProgramGroup.size = len(programs)
        try:
            self.fn(**self.bound)
        finally:
            ProgramGroup.size = 1


def join(builder: Any) -> None:
    """Let Triton's own loads and stores take operands of which only some differ between programs. Before bounds are put on them."""
    builder.create_masked_load = _joined(builder.create_masked_load, 3)
    builder.create_masked_store = _joined(builder.create_masked_store, 3)


def install() -> None:
    """Replace what looks at axes in the interpreter's builder and language. After all other patches, before launches are wrapped."""
    # the class: Triton 3.6 makes an object of it for each part of the language
    builder, semantic = ti.InterpreterBuilder, type(ti.interpreter_semantic)
    for function in (_program_id, _splat, _unsplat, _broadcast, _reshape, _trans, _cat, _join, _make_range, _advance):
        setattr(builder, f"create_{function.__name__.removeprefix('_').replace('program_id', 'get_program_id')}", function)
    for name in ("create_gather", "create_histogram", "create_descriptor_gather", "create_descriptor_scatter", "create_atomic_cas"):
        setattr(builder, name, _one_by_one(getattr(builder, name)))
    ti.BlockPointerHandle.materialize_pointers = _block_pointers
    ti.TensorDescHandle.materialize_pointers = _one_by_one(ti.TensorDescHandle.materialize_pointers)
    ti.ReduceOps.apply_impl = _lifted(ti.ReduceOps.apply_impl)
    ti.ScanOps.apply_impl = _lifted(ti.ScanOps.apply_impl)
    semantic.expand_dims = _expand_dims
    check = semantic.atom_red_typechecking_impl
    semantic.atom_red_typechecking_impl = lambda *args: _each_program(*check(*args))
    valid = tl.core.validate_block_shape
    tl.core.validate_block_shape = lambda shape: math.prod(shape) if ProgramGroup.lifted else valid(shape)
    tl.core.tensor.__index__ = lambda self: int(_same(self))
    tl.core.tensor.__bool__ = lambda self: True if self.type.is_block() and self.handle.data.size > 1 else bool(_same(self))
    tl.core.tensor.T = property(_transposed)
    ti.GridExecutor = GridExecutor


def _same(tensor: Any) -> Any:
    """The value of a scalar; Diverged where the programs of the group have different ones."""
    flat = tensor.handle.data.reshape(-1)
    if ProgramGroup.size > 1 and flat.size > 1 and not (flat == flat[0]).all():
        raise Diverged(flat) if flat.size == ProgramGroup.size else Unsuitable("a block where a scalar is needed")
    return flat[0]


def _handle(data: Any, like: Any) -> Any:
    return ti.TensorHandle(data, like.dtype.scalar)


def _sized(shape: Sequence[int]) -> int:
    elements = math.prod(shape)
    if elements > ProgramGroup.largest:
        ProgramGroup.largest = elements
    return elements


def _program_id(self: Any, axis: int) -> Any:
    if ProgramGroup.size > 1:
        ids = ProgramGroup.ids[axis]
        return ti.TensorHandle(ids if (ids != ids[0]).any() else ids[:1], tl.int32)
    return ti.TensorHandle(np.array([self.grid_idx[axis]], dtype=np.int32), tl.int32)


def _make_range(self: Any, ret_ty: Any, start: int, stop: int) -> Any:
    _sized((stop - start,))
    return ti.TensorHandle(np.arange(start, stop, dtype=np.int32), tl.int32)


def _splat(self: Any, ret_ty: Any, arg: Any) -> Any:
    shape = tuple(ret_ty.shape)
    _sized(shape)
    data = arg.data
    if data.size == 1:
        # a comparison of two scalars has Boolean data and its operands' type
        kind = data.dtype if data.dtype == np.bool_ else ti._get_np_dtype(arg.dtype)
        return _handle(np.full(shape, data.reshape(-1)[0], dtype=kind), arg)
    return _handle(np.broadcast_to(data.reshape(-1, *[1] * len(shape)), (data.size, *shape)), arg)


def _unsplat(self: Any, arg: Any) -> Any:
    return _handle(arg.data.reshape(-1), arg)


def _broadcast(self: Any, arg: Any, shape: Sequence[int]) -> Any:
    _sized(shape)
    wide = arg.data.shape[:1] if arg.data.ndim > len(shape) else ()
    return _handle(np.broadcast_to(arg.data, (*wide, *shape)), arg)


def _reshape(self: Any, arg: Any, shape: Sequence[int], allow_reorder: bool) -> Any:
    wide = () if arg.data.size == math.prod(shape) else arg.data.shape[:1]
    return _handle(arg.data.reshape(*wide, *shape), arg)


def _trans(self: Any, arg: Any, perm: Sequence[int]) -> Any:
    more = arg.data.ndim - len(perm)
    return _handle(np.transpose(arg.data, (*range(more), *[p + more for p in perm])), arg)


def _transposed(tensor: Any) -> Any:
    shape = [*tensor.type.shape[:-2], tensor.type.shape[-1], tensor.type.shape[-2]]
    return tl.core.tensor(_handle(np.swapaxes(tensor.handle.data, -1, -2), tensor.handle), tl.core.block_type(tensor.dtype, shape))


def _cat(self: Any, lhs: Any, rhs: Any) -> Any:
    wide = np.broadcast_shapes(lhs.data.shape[:-1], rhs.data.shape[:-1])
    parts = [np.broadcast_to(h.data, (*wide, h.data.shape[-1])) for h in (lhs, rhs)]
    return _handle(np.concatenate(parts, axis=-1), lhs)


def _join(self: Any, lhs: Any, rhs: Any) -> Any:
    return _handle(np.stack(np.broadcast_arrays(lhs.data, rhs.data), axis=-1), lhs)


def _expand_dims(semantic: Any, input: Any, axis: int) -> Any:
    shape = [getattr(s, "value", s) for s in input.shape]
    shape.insert(axis, 1)
    if not input.type.is_block():
        return semantic.splat(input, shape=shape)
    # counted from the end, the axis is the same with and without the programs' axis
    data = np.expand_dims(input.handle.data, axis - len(shape) if axis >= 0 else axis)
    return tl.core.tensor(_handle(data, input.handle), tl.core.block_type(input.type.scalar, shape))


def _one_by_one(original: Callable[..., Any]) -> Callable[..., Any]:
    def operation(*args: Any, **named: Any) -> Any:
        if ProgramGroup.size > 1:
            raise Unsuitable(original.__name__)
        return original(*args, **named)

    return operation


def _joined(original: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The first ``count`` operands, handles or arrays or None, are brought to one shape: the operation goes through them flat."""

    def operation(self: Any, *args: Any, **named: Any) -> Any:
        if ProgramGroup.size == 1:
            return original(self, *args, **named)
        arrays = [a.data if isinstance(a, ti.TensorHandle) else a for a in args[:count]]
        shape = np.broadcast_shapes(*[a.shape for a in arrays if a is not None])
        full = [None if a is None else _whole(a, shape) for a in arrays]
        pairs = zip(args[:count], full, strict=True)
        args = (*[ti.TensorHandle(f, a.dtype) if isinstance(a, ti.TensorHandle) else f for a, f in pairs], *args[count:])
        return original(self, *args, **named)

    return operation


def _whole(data: Any, shape: tuple[int, ...]) -> Any:
    """The array at its full shape, in memory of its own where it was not: what is written through NumPy's views must not be."""
    return data if data.shape == shape and data.flags.writeable else np.broadcast_to(data, shape).copy()


def _each_program(pointer: Any, value: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Operands of an atomic operation, which every program of the group must do, even where all do the same."""
    if ProgramGroup.size == 1:
        return pointer, value, mask

    def wide(tensor: Any) -> Any:
        shape = (ProgramGroup.size, *(tensor.type.shape if tensor.type.is_block() else ()))
        data = _whole(tensor.handle.data, shape)
        return tl.core.tensor(ti.TensorHandle(data, tensor.handle.dtype), tensor.type)

    return wide(pointer), wide(value), wide(mask)


def _advance(self: Any, ptr: Any, offsets: Sequence[Any]) -> Any:
    moved = [ti.TensorHandle(o.data + d.data.astype(o.data.dtype), o.dtype) for o, d in zip(ptr.offsets, offsets, strict=True)]
    return ti.BlockPointerHandle(ptr.base, ptr.shape, ptr.strides, moved, ptr.block_shape, ptr.order)


def _block_pointers(self: Any, boundary_check: Sequence[int]) -> tuple[Any, Any]:
    rank = len(self.block_shape)
    _sized(self.block_shape)

    def wide(data: Any) -> Any:
        return data.reshape(-1, *[1] * rank) if data.size > 1 else data

    width = self.base.get_element_ty().primitive_bitwidth // 8
    pointers, mask = wide(self.base.data), np.ones(self.block_shape, dtype=bool)
    for dim, extent in enumerate(self.block_shape):
        steps = np.arange(extent).reshape([-1 if d == dim else 1 for d in range(rank)])
        at = wide(self.offsets[dim].data) + steps
        pointers = pointers + (width * at * wide(self.strides[dim].data)).astype(np.uint64)
        if dim in boundary_check:
            mask = mask & (at < wide(self.shape[dim].data)) & (at >= 0)
    shape = np.broadcast_shapes(pointers.shape, mask.shape)
    return ti.TensorHandle(_whole(pointers, shape), self.base.dtype.scalar), _whole(mask, shape)


def _lifted(original: Callable[..., Any]) -> Callable[..., Any]:
    """Reductions and scans of a group: those of a block with one more axis, whose type says so meanwhile."""

    def apply_impl(self: Any, input: Any) -> Any:
        races.meets()
        if ProgramGroup.size == 1 or not any(is_wide(t) for t in input):
            return original(self, input)
        axis, keep = getattr(self.axis, "value", self.axis), getattr(self, "keep_dims", False)
        rank = len(input[0].type.shape)
        data = [np.broadcast_to(t.handle.data, (ProgramGroup.size, *t.type.shape)) for t in input]
        if axis is None:
            self.axis, self.keep_dims = 1, False
            data = [d.reshape(ProgramGroup.size, -1) for d in data]
        elif axis >= 0:
            self.axis = axis + 1
        ProgramGroup.lifted = True
        try:
            full = [_tensor(d, t.handle, d.shape) for d, t in zip(data, input, strict=True)]
            result = original(self, tuple(full))
        finally:
            ProgramGroup.lifted = False
            self.axis = axis
            if axis is None:
                self.keep_dims = keep
        results = result if isinstance(result, list | tuple) else [result]
        shape = (1,) * rank if axis is None and keep else None
        return [_narrowed(t, shape) for t in results]

    return apply_impl


def _narrowed(tensor: Any, shape: tuple[int, ...] | None) -> Any:
    data = tensor.handle.data if shape is None else tensor.handle.data.reshape(-1, *shape)
    return _tensor(data, tensor.handle, data.shape[1:])


def _tensor(data: Any, like: Any, shape: tuple[int, ...]) -> Any:
    kind = like.dtype.scalar
    return tl.core.tensor(ti.TensorHandle(data, kind), tl.core.block_type(kind, list(shape)) if shape else kind)
