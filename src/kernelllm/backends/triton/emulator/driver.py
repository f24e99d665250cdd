"""Stands for Triton's CUDA driver on a machine without a GPU: answers of the target's row in the GPU table."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget

from kernelllm.backends.triton.emulator import cubin
from kernelllm.core import gpus


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
        registers, stack = cubin.resources(binary, name)
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


def do_bench(function: Callable[[], Any], *args: Any, quantiles: Any = None, **kwargs: Any) -> Any:
    """Stands for triton.testing.do_bench: one call, a made-up time."""
    function()
    return [1.0] * len(quantiles) if quantiles is not None else 1.0


def install(target: str) -> None:
    """Make it Triton's driver for good (this process and its forks). Raises UnknownName for a target not in the table."""
    triton.runtime.driver.set_active(StubDriver(gpus.by_arch(target)))
    triton.testing.do_bench = do_bench
    triton.testing.do_bench_cudagraph = do_bench
