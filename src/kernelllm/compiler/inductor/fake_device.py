"""A CUDA device that need not exist: the table of GPUs answers what Inductor asks of a device.

Used with and without a GPU in the machine, so that the same problem gives the same code everywhere and the real
device is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from kernelllm.compiler.capture.patching import patch
from kernelllm.core import gpus


def _properties(target: str) -> Any:
    gpu = gpus.by_arch(target)
    capability = gpus.capability(target)
    return SimpleNamespace(
        name=gpu.name,
        major=capability // 10,
        minor=capability % 10,
        multi_processor_count=gpu.sms,
        total_memory=gpu.memory_bytes,
        regs_per_multiprocessor=gpu.registers_per_sm,
        max_threads_per_multi_processor=1536 if capability == 89 else 2048,
        max_threads_per_block=1024,
        warp_size=32,
        shared_memory_per_block_optin=gpu.shared_bytes,
        L2_cache_size=gpu.l2_bytes,
        gcnArchName="",
    )


class _Guard:
    def __init__(self, *_: Any) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


def _interface(target: str) -> type:
    """A device interface class whose every answer comes from the table."""
    from torch._dynamo.device_interface import CudaInterface

    properties = _properties(target)
    capability = gpus.capability(target)

    class Worker:
        set_device = staticmethod(lambda device: None)
        current_device = staticmethod(lambda: 0)
        get_device_properties = staticmethod(lambda device=None: properties)

    answers: dict[str, Any] = {
        "device": _Guard,
        "Worker": Worker,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device_count": lambda: 1,
        "synchronize": lambda device=None: None,
        "get_device_properties": lambda device=None: properties,
        "get_raw_stream": lambda device=None: 0,
        "exchange_device": lambda device: 0,
        "maybe_exchange_device": lambda device: 0,
        "memory_allocated": lambda device=None: 0,
        "is_bf16_supported": lambda including_emulation=False: True,
        "is_available": lambda: True,
        "get_compute_capability": lambda device=None: capability,
        "is_triton_capable": lambda device=None: True,
        "raise_if_triton_unavailable": lambda device=None: None,
    }
    return type("TableInterface", (CudaInterface,), {k: v if isinstance(v, type) else staticmethod(v) for k, v in answers.items()})


class _Driver:
    """Triton's active driver, as far as code generation asks."""

    def __init__(self, target: str) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget("cuda", gpus.capability(target), 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_device_interface(self) -> Any:
        return torch.cuda


def _forget() -> None:
    """Drop what torch remembers about the device it asked last."""
    from torch._inductor import utils as inductor_utils
    from torch._inductor.runtime.hints import DeviceProperties
    from torch.utils import _triton

    DeviceProperties.create.cache_clear()
    for module, names in (
        (inductor_utils, ("get_gpu_type", "is_big_gpu", "get_max_num_sms", "using_b200", "get_device_tflops",
                          "get_gpu_dram_gbps", "get_backend_num_stages")),
        (_triton, ("_device_supports_tma", "has_triton", "triton_backend", "has_triton_experimental_host_tma",
                   "has_triton_tensor_descriptor_host_tma", "has_triton_tma", "has_triton_tma_device",
                   "has_datacenter_blackwell_tma_device", "has_triton_stable_tma_api", "triton_hash_with_backend")),
    ):
        for name in names:
            getattr(module, name).cache_clear()


@contextmanager
def fake_gpu(target: str) -> Iterator[None]:
    """While open, Inductor and Triton believe that the machine has one GPU of ``target``; all is undone at exit."""
    import torch._dynamo.device_interface as interfaces
    from torch._subclasses import fake_tensor
    from triton.runtime.driver import driver

    interface = _interface(target)
    properties = _properties(target)
    interfaces.get_interface_for_device("cpu")  # fills the table
    with ExitStack() as stack:
        before = dict(interfaces.device_interfaces)
        stack.callback(interfaces.device_interfaces.update, before)
        for name in ("cuda", "cuda:0"):
            interfaces.device_interfaces[name] = interface
        for owner, name, value in (
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "get_device_properties", lambda device=None: properties),
            (torch.cuda, "get_device_capability", lambda device=None: (properties.major, properties.minor)),
            (torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
            (torch.cuda, "synchronize", lambda device=None: None),
            (fake_tensor, "init_gpu_context", lambda *_: None),
            # the method asks for a GPU's driver, the operator does not
            (fake_tensor.FakeTensor, "contiguous", lambda tensor, **how: torch.ops.aten.contiguous.default(tensor, **how)),
        ):
            patch(stack, owner, name, value)
        patch(stack, driver, "_active", _Driver(target))
        _forget()
        stack.callback(_forget)
        yield
