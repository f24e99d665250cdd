"""CUDA IPC through the driver API: memory that one process allocates and another opens without a copy.

The driver library is used directly (``libcuda.so.1``, a stable ABI) because torch's own sharing exports the whole
segment of its caching allocator, and with it other tensors of the judge.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from kernelllm.core.errors import KernelLLMError

HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class _Memory:
    """What ``torch.as_tensor`` understands: a pointer with a length. ``owner``: lives as long as a tensor over it."""

    def __init__(self, pointer: int, size: int, owner: object) -> None:
        self.owner = owner
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


def as_tensor(pointer: int, size: int, device: int, owner: object = None) -> torch.Tensor:
    """uint8[size] over device memory, without a copy; ``owner``, where the memory has one, lives as long as the tensor."""
    return torch.as_tensor(_Memory(pointer, size, owner), device=f"cuda:{device}")
