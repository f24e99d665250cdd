"""Allocates memory that judge and worker both see, and puts tensors in it.

Host memory is a sealed ``memfd`` (it cannot be shrunk or grown by the worker); GPU memory is an allocation of the judge
that the worker opens by CUDA IPC. Every tensor gets a storage of its own over its bytes, with guards of
poison around those that a candidate is given.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import logging
import math
import mmap
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from kernelllm.core.errors import KernelLLMError
from kernelllm.judge.transport import trusted_torch
from kernelllm.judge.transport.protocol import ArenaRef, ProtocolError, TensorSpec
from kernelllm.judge.transport.values import ValueProblem, dtype, dtype_name

_LOG = logging.getLogger(__name__)
HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
ALIGN = 512
GUARD = 512
"""Bytes before the first tensor, between tensors and behind the last, at least."""
_TAIL = 2**20
"""Bytes of an arena's unused end that are poisoned."""
POISON = 0xFF
"""Byte that fills output memory before a run: NaN in every floating type, -1 in signed integers."""
_POISONED = bytes([POISON]) * _TAIL
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
MAX_DIMS = 32
_SEALS = fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_keys = itertools.count(1)


class HostArena:
    """Shared host memory of ``size`` bytes. ``fd`` is kept open by the judge and closed by the worker once mapped."""

    device = -1

    def __init__(self, size: int, fd: int | None = None, key: int | None = None) -> None:
        self.size = max(size, mmap.PAGESIZE)
        self.key = next(_keys) if key is None else key
        if fd is None:
            fd = os.memfd_create("kernelllm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, self.size)
            fcntl.fcntl(fd, *_SEALS)
        self.fd = fd
        self._map = mmap.mmap(fd, self.size)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def ref(self, opened: bool) -> ArenaRef:
        """The reference that goes over the wire."""
        return ArenaRef(key=self.key, size=self.size, fd=-1 if opened else 0)

    def view(self, spec: TensorSpec) -> torch.Tensor:
        """A tensor over the arena's own bytes (shape and stride of ``spec``). Raises ProtocolError where it does not fit."""
        kind = checked_dtype(spec, self.size)
        count = extent(spec.shape, spec.stride)
        if count == 0:
            return torch.empty(spec.shape, dtype=kind)
        flat = torch.frombuffer(self._map, dtype=kind, count=count, offset=spec.offset)
        return trusted_torch.as_strided(flat, spec.shape, spec.stride)

    def poison(self, start: int = 0, stop: int | None = None) -> None:
        """Fill the bytes from ``start`` to ``stop`` (default: all) with :data:`POISON`."""
        stop = self.size if stop is None else min(stop, self.size)
        ctypes.memset(self._bytes.data_ptr() + start, POISON, max(stop - start, 0))

    def written(self, start: int, stop: int) -> torch.Tensor:
        """bool[]: whether any byte from ``start`` to ``stop`` is not :data:`POISON`."""
        first, stop = self._bytes.data_ptr(), min(stop, self.size)
        pieces = (_memcmp(first + at, _POISONED, min(_TAIL, stop - at)) for at in range(start, stop, _TAIL))
        return torch.tensor(any(pieces))  # torch would wake its threads for it, many times in a verdict

    def close(self) -> None:
        """Let go of descriptor and mapping (the mapping ends with the last tensor over it). Safe to call twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.__dict__.pop("_bytes", None)
        self.__dict__.pop("_map", None)


class CudaArena:
    """GPU memory of ``size`` bytes on ``device``, allocated apart from torch's own pool so that sharing it shares nothing else."""

    fd = -1

    def __init__(self, size: int, device: int = 0, handle: bytes | None = None, key: int | None = None) -> None:
        # whole 2 MiB pages: smaller allocations share a page, and IPC would then share the neighbours too
        self.size = -(-max(size, 1) // 2**21) * 2**21
        self.device = device
        self.key = next(_keys) if key is None else key
        self._owned = handle is None
        self._pointer = allocate(self.size, device) if handle is None else open_handle(handle, device)
        self.handle = export_handle(self._pointer) if handle is None else handle

    def ref(self, opened: bool) -> ArenaRef:
        """The reference that goes over the wire."""
        return ArenaRef(key=self.key, size=self.size, handle=b"" if opened else self.handle, device=self.device)

    def view(self, spec: TensorSpec) -> torch.Tensor:
        """A tensor over the arena's own bytes. Raises ProtocolError where it does not fit."""
        kind = checked_dtype(spec, self.size)
        count = extent(spec.shape, spec.stride)
        if count == 0:
            return torch.empty(spec.shape, dtype=kind, device=f"cuda:{self.device}")
        flat = as_tensor(self._pointer + spec.offset, count * kind.itemsize, self.device).view(kind)
        return trusted_torch.as_strided(flat, spec.shape, spec.stride)

    def poison(self, start: int = 0, stop: int | None = None) -> None:
        """Fill the bytes from ``start`` to ``stop`` (default: all) with :data:`POISON`."""
        stop = self.size if stop is None else min(stop, self.size)
        if stop > start:
            as_tensor(self._pointer + start, stop - start, self.device).fill_(POISON)

    def written(self, start: int, stop: int) -> torch.Tensor:
        """bool[] on the device: whether any byte from ``start`` to ``stop`` is not :data:`POISON`."""
        stop = min(stop, self.size)
        if stop <= start:
            return torch.zeros((), dtype=torch.bool, device=f"cuda:{self.device}")
        return (as_tensor(self._pointer + start, stop - start, self.device) != POISON).any()

    def close(self) -> None:
        """Free (judge) or unmap (worker) the memory; no tensor over it may be used afterwards."""
        pointer, self._pointer = self._pointer, 0
        if pointer:
            try:
                (free if self._owned else close_handle)(pointer, self.device)
            except torch.AcceleratorError as error:  # the memory has gone with the device's context
                _LOG.debug("An arena of cuda:%s is not given back: %s", self.device, error)


Arena = HostArena | CudaArena


def create(size: int, device: str) -> Arena:
    """A judge-owned arena on ``cpu``, ``cuda`` or ``cuda:N``."""
    if device == "cpu":
        return HostArena(size)
    return CudaArena(size, torch.device(device).index or 0)


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last that the strides reach; 0 for an empty tensor."""
    if any(length == 0 for length in shape):
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))


def checked_dtype(spec: TensorSpec, size: int) -> torch.dtype:
    """The dtype of a spec that lies wholly inside ``size`` bytes. Raises ProtocolError otherwise."""
    try:
        kind = dtype(spec.dtype)
    except ValueProblem as error:
        raise ProtocolError(str(error)) from error
    numbers = (*spec.shape, *spec.stride, spec.offset)
    if len(spec.shape) != len(spec.stride) or len(spec.shape) > MAX_DIMS or any(n < 0 or n >= 2**62 for n in numbers):
        raise ProtocolError("A tensor's shape, stride or offset is malformed.")
    if spec.offset % kind.itemsize or spec.offset + extent(spec.shape, spec.stride) * kind.itemsize > size:
        raise ProtocolError("A tensor lies outside its arena.")
    if math.prod(spec.shape) * kind.itemsize > 2**44:
        raise ProtocolError("A tensor is larger than any memory.")
    return kind


def layout(tensors: Sequence[torch.Tensor], *, contiguous: bool = False, start: int = 0) -> tuple[tuple[TensorSpec, ...], int]:
    """Places for tensors one after another, from byte ``start``; the second value is the size they need.

    Strides are kept (so that a transposed input arrives transposed) unless ``contiguous``.
    """
    specs, offset = [], start
    with trusted_torch.no_hooks():
        for tensor in tensors:
            kind, shape = trusted_torch.dtype(tensor), tuple(trusted_torch.shape(tensor))
            stride = _contiguous_stride(shape) if contiguous else tuple(trusted_torch.stride(tensor))
            specs.append(TensorSpec(dtype_name(kind), shape, stride, offset))
            offset += _room(shape, stride, kind)
    return tuple(specs), offset


def check_delivered(arena: Arena, specs: Sequence[TensorSpec]) -> None:
    """Raise ProtocolError unless a worker put these tensors where :func:`layout` puts contiguous ones.

    Then none lies outside of the arena, none over another, and copies of all of them take no more memory than the arena.
    """
    offset = 0
    for spec in specs:
        kind = checked_dtype(spec, arena.size)
        if spec.offset != offset or spec.stride != _contiguous_stride(spec.shape):
            raise ProtocolError("The worker delivered a tensor that is not contiguous, or not in its place.")
        offset += _room(spec.shape, spec.stride, kind)


def _room(shape: Sequence[int], stride: Sequence[int], kind: torch.dtype) -> int:
    return -(-extent(shape, stride) * kind.itemsize // ALIGN) * ALIGN + GUARD


def _contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def put(arena: Arena, specs: Sequence[TensorSpec], tensors: Sequence[torch.Tensor]) -> None:
    """Copy tensors to their places. Where a dimension is expanded (stride 0) one element stands for all of it.

    Uses PyTorch's own functions alone: the tensors may be a candidate's.
    """
    with trusted_torch.no_hooks():
        for spec, tensor in zip(specs, tensors, strict=True):
            source, target = trusted_torch.detach(tensor), arena.view(spec)
            expanded = (step == 0 and length > 1 for length, step in zip(spec.shape, spec.stride, strict=True))
            index = tuple(slice(0, 1) if one else slice(None) for one in expanded)
            if index:
                target, source = trusted_torch.getitem(target, index), trusted_torch.getitem(source, index)
            trusted_torch.copy_(target, trusted_torch.resolve_neg(trusted_torch.resolve_conj(source)))


def guard(arena: Arena, specs: Sequence[TensorSpec]) -> None:
    """Poison what lies before, between and behind tensors: who reads past one and multiplies by nought gets NaN."""
    end = 0
    for spec in specs:
        arena.poison(end, spec.offset)
        end = spec.offset + extent(spec.shape, spec.stride) * dtype(spec.dtype).itemsize
    arena.poison(end, end + _TAIL)


def broken(arena: Arena, specs: Sequence[TensorSpec]) -> int | None:
    """The tensor beside which poison of :func:`guard` was written over, None where all of it stands."""
    end, marks = 0, []
    for spec in specs:
        marks.append(arena.written(end, spec.offset))
        end = spec.offset + extent(spec.shape, spec.stride) * dtype(spec.dtype).itemsize
    marks.append(arena.written(end, end + _TAIL))
    found = torch.stack(marks).nonzero().flatten().tolist()
    return max(found[0] - 1, 0) if found else None


def take(arena: Arena, spec: TensorSpec) -> torch.Tensor:
    """A private copy of a tensor in an arena: what is compared cannot change any more."""
    view = arena.view(spec)
    if view.dtype is torch.bool:
        return view.view(torch.uint8).clone().view(torch.bool) if view.numel() else view.clone()
    return view.clone()


def unwritten(tensor: torch.Tensor) -> bool:
    """True for a bool tensor that holds bytes other than 0 and 1: poison that was never overwritten."""
    return tensor.dtype is torch.bool and tensor.numel() > 0 and bool((tensor.view(torch.uint8) > 1).any())


def poisoned(number: torch.Tensor) -> bool:
    """Whether a single number holds nothing but poison. Arithmetic makes other NaN, unless it began with this one."""
    return bool((number.detach().cpu().contiguous().reshape(1).view(torch.uint8) == POISON).all())


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class _Memory:
    """What ``torch.as_tensor`` understands: a pointer with a length."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 2}


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *args: Any) -> None:
    code = getattr(_driver(), name)(*args)
    if code != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        detail = (text.value or b"unknown error").decode()
        kind = torch.OutOfMemoryError if code == 2 else KernelLLMError
        raise kind(f"{name} failed: CUDA error {code}, {detail}.")


def _context(device: int) -> None:
    torch.cuda.init()
    torch.cuda.set_device(device)
    torch.cuda.current_stream(device).synchronize()  # makes torch's primary context current in this thread


def allocate(size: int, device: int) -> int:
    """Device memory of ``size`` bytes; frees torch's cache once before giving up. Raises torch.OutOfMemoryError."""
    _context(device)
    pointer = ctypes.c_uint64()
    try:
        _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer.value


def free(pointer: int, device: int) -> None:
    """Give device memory back."""
    _context(device)
    _call("cuMemFree_v2", ctypes.c_uint64(pointer))


def export_handle(pointer: int) -> bytes:
    """The handle by which another process of this machine can open an allocation."""
    handle = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(pointer))
    return bytes(bytearray(handle))


def open_handle(handle: bytes, device: int) -> int:
    """Map another process's allocation; the pointer in this process."""
    _context(device)
    pointer = ctypes.c_uint64()
    raw = _Handle.from_buffer_copy(handle)
    opener = "cuIpcOpenMemHandle_v2" if hasattr(_driver(), "cuIpcOpenMemHandle_v2") else "cuIpcOpenMemHandle"
    _call(opener, ctypes.byref(pointer), raw, ctypes.c_uint(_LAZY_PEER_ACCESS))
    return pointer.value


def close_handle(pointer: int, device: int) -> None:
    _context(device)
    _call("cuIpcCloseMemHandle", ctypes.c_uint64(pointer))


def as_tensor(pointer: int, size: int, device: int) -> torch.Tensor:
    """uint8[size] over device memory, without a copy."""
    return torch.as_tensor(_Memory(pointer, size), device=f"cuda:{device}")
