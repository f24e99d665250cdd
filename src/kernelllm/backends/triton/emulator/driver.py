"""A stub of Triton's CUDA driver for machines without a GPU: it answers with the target's row of the GPU table."""

from __future__ import annotations

import struct
import types
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget

from kernelllm.core import gpus

_REGCOUNT, _FRAME = 0x2F, 0x11
_WITH_SIZE = 4


class StubDriver:
    """Knows the target, loads nothing, launches nothing."""

    def __init__(self, gpu: gpus.Gpu) -> None:
        capability = gpus.capability(gpu.arch)
        self.gpu, self.capability = gpu, divmod(capability, 10)
        self._target = GPUTarget("cuda", capability, 32)
        self.utils = types.SimpleNamespace(get_device_properties=self._properties, load_binary=self._load, unload_module=lambda *a: None)
        self.binary_ext = "cubin"
        self.launcher_cls = lambda source, metadata: lambda *args, **kwargs: None
        self.get_device_capability = lambda device=0: self.capability

    def _properties(self, device: int = 0) -> dict[str, int]:
        return {
            "max_shared_mem": self.gpu.shared_bytes, "max_num_regs": self.gpu.registers_per_sm, "multiprocessor_count": self.gpu.sms,
            "warpSize": 32, "sm_clock_rate": 1_980_000, "mem_clock_rate": 2_619_000, "mem_bus_width": 5120,
        }  # fmt: skip

    def _load(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        registers, stack = resources(binary, name)
        return 0, 0, registers, stack // 4, 1024

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_current_target(self) -> Any:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """torch.cuda, with its stand-ins."""
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        """Runs once; times mean nothing here."""
        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A small buffer."""
        return torch.empty(1)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Nothing to clear."""


StubDriver.__name__ = StubDriver.__qualname__ = "CudaDriver"
StubDriver.__module__ = "triton.backends.nvidia.driver"


def do_bench(function: Callable[[], Any], *args: Any, quantiles: Any = None, **kwargs: Any) -> Any:
    """Stands for triton.testing.do_bench: one call, a made-up time."""
    function()
    return [1.0] * len(quantiles) if quantiles is not None else 1.0


def install(target: str) -> None:
    """Make it Triton's driver for good (this process and its forks). Raises UnknownName for a target not in the table."""
    triton.runtime.driver.set_active(StubDriver(gpus.by_arch(target)))
    triton.testing.do_bench = do_bench
    triton.testing.do_bench_cudagraph = do_bench


def resources(binary: bytes, name: str = "") -> tuple[int, int]:
    """Registers a thread and bytes of stack a thread (where spills go). (0, 0) when the file cannot be read."""
    registers = stack = 0
    try:
        for attribute, value in _attributes(binary):
            if attribute == _REGCOUNT:
                registers = max(registers, value)
            elif attribute == _FRAME:
                stack = max(stack, value)
    except (struct.error, IndexError, ValueError):
        return 0, 0
    return registers, stack


def _attributes(binary: bytes) -> list[tuple[int, int]]:
    if binary[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", binary, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", binary, table + i * entry_size) for i in range(count)]
    names = headers[names_index][4]
    found: list[tuple[int, int]] = []
    for name_at, _, _, _, offset, size in headers:
        start = names + name_at
        if binary[start : binary.index(b"\0", start)] == b".nv.info":
            found += _parse_info(binary[offset : offset + size])
    return found


def _parse_info(data: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = 0
    while at + 4 <= len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == _WITH_SIZE:
            if size == 8:
                found.append((attribute, struct.unpack_from("<II", data, at)[1]))
            at += size
    return found
