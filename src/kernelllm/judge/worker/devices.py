"""A GPU that is not there: on a machine without one, candidates see their CPU tensors as ``cuda:0``.

``install`` replaces queries of ``torch.cuda`` by answers of the target's row in the GPU table; the mode
:class:`CudaOnCpu` maps ``device="cuda"``, ``.cuda()`` and ``.to("cuda")`` to the CPU and lets ``tensor.device`` and
``tensor.is_cuda`` say CUDA, so that device comparisons stay consistent. Used in worker processes only.
"""

from __future__ import annotations

import contextlib
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelllm.core import gpus

_HERE = torch.device("cpu")
_THERE = torch.device("cuda", 0)


class CudaOnCpu(TorchFunctionMode):
    """See the module's text. ``noise``: memory of ``torch.empty`` and the like is filled with finite random numbers; ``values_read``
    is told of values that become Python's or NumPy's, and how many of them are of floating-point tensors, but for single ones."""

    def __init__(self, noise: bool = False, values_read: Callable[[int], None] = lambda floats: None) -> None:
        super().__init__()
        self.noise, self._values_read = noise, values_read
        self._getters: dict[Any, Any] = {torch.Tensor.device: _THERE, torch.Tensor.is_cuda: True, torch.Tensor.is_cpu: False}
        self._methods: dict[Any, Callable[..., Any]] = {
            torch.Tensor.cuda: lambda self, *a, **k: self,
            torch.Tensor.pin_memory: lambda self, *a, **k: self,
            torch.Tensor.record_stream: lambda self, *a, **k: None,
            torch.Tensor.get_device: lambda self: 0,
            torch.get_device: lambda self: 0,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        owner = getattr(func, "__self__", None)
        try:
            if owner is not None and owner in self._getters:
                return self._getters[owner]
            if func in self._methods:
                return self._methods[func](*args, **(kwargs or {}))
        except TypeError:
            pass
        if func in _READING:
            self._values_read(_floats(args) if func is not torch.Tensor.item else 0)
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        if func is torch.Tensor.__array_wrap__:
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
        if func in _SHARED and args and isinstance(args[0], torch.Tensor):
            args = (args[0].clone(), *args[1:])  # on a GPU it is a copy on the host: what is written into it changes nothing
        is_to = getattr(func, "__name__", "") == "to"
        wanted = (*args[1:], (kwargs or {}).get("device")) if is_to else ()
        to_host = any(value in ("cpu", _HERE) for value in wanted if isinstance(value, str | torch.device))
        args = tuple(_here(a, is_to) for a in args)
        kwargs = {k: _here(v, k == "device") for k, v in (kwargs or {}).items()}
        result = func(*args, **kwargs)
        if self.noise and func in EMPTY:
            fill_noise(result)
        return result.clone() if to_host and result is args[0] else result


_SHARED = frozenset({torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__})
"""What gives memory on the host."""
EMPTY = frozenset({torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted, torch.Tensor.new_empty,
                   torch.Tensor.new_empty_strided})  # fmt: skip


_READING = frozenset({torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__, torch.Tensor.__repr__,
                      torch.Tensor.__format__, torch.Tensor.item})  # fmt: skip


def _floats(args: Any) -> int:
    return sum(t.numel() for t in args[:1] if isinstance(t, torch.Tensor) and (t.is_floating_point() or t.is_complex()))


class Noise(TorchFunctionMode):
    """On a real GPU: only the noise of :class:`CudaOnCpu`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in EMPTY:
            fill_noise(result)
        return result


def fill_noise(tensor: torch.Tensor) -> None:
    """Finite values that no kernel would leave behind; does not touch torch's global generator."""
    generator = torch.Generator(tensor.device).manual_seed(20011)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.uniform_(-3.0, 3.0, generator=generator) if not tensor.dtype.is_complex else tensor.fill_(1.5)
    elif tensor.dtype is torch.bool:
        tensor.random_(0, 2, generator=generator)
    else:
        tensor.random_(0, 5, generator=generator)


def _here(value: Any, text_too: bool) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return _HERE
    if text_too and isinstance(value, str) and value.split(":")[0] == "cuda":
        return _HERE
    if text_too and type(value) is int:
        return _HERE
    return value


class Stream:
    """Stands for torch.cuda.Stream: everything is synchronous here."""

    cuda_stream = 0
    device = _THERE
    device_index = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.priority = kwargs.get("priority", 0)

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = synchronize = __exit__ = _nothing

    def query(self) -> bool:
        """Always done."""
        return True

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def __enter__(self) -> Stream:
        return self


class Event:
    """Stands for torch.cuda.Event."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._at = 0.0

    def record(self, *args: Any) -> None:
        """Note the time."""
        self._at = time.perf_counter()

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds between two records."""
        return max((other._at - self._at) * 1000, 1e-3)

    def query(self) -> bool:
        """Always done."""
        return True

    def wait(self, *args: Any) -> None:
        """Nothing to wait for."""

    synchronize = wait


def install(target: str) -> None:
    """Replace the queries for good (this process and its forks). Raises UnknownName for a target not in the table."""
    gpu = gpus.by_arch(target)
    for name, value in _torch_cuda(gpu).items():
        setattr(torch.cuda, name, value)
    for name in ("current_device_index", "device_count", "synchronize", "set_device_index"):
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None and hasattr(accelerator, name):
            setattr(accelerator, name, lambda *a, _n=name, **k: 1 if _n == "device_count" else 0)
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign,assignment]  # its parser takes real streams alone
    real: Any = torch.Generator

    class Generator(real):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return real.__new__(cls, device="cpu")

        def __init__(self, device: Any = "cpu") -> None:
            super().__init__()

    torch.Generator = Generator  # type: ignore[misc]


def _torch_cuda(gpu: gpus.Gpu) -> dict[str, Any]:
    capability = divmod(gpus.capability(gpu.arch), 10)
    properties = types.SimpleNamespace(
        name=gpu.name, major=capability[0], minor=capability[1], total_memory=gpu.memory_bytes, multi_processor_count=gpu.sms,
        warp_size=32, max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=gpu.registers_per_sm,
        shared_memory_per_block=48 * 1024, shared_memory_per_block_optin=gpu.shared_bytes,
        shared_memory_per_multiprocessor=gpu.shared_bytes + 1024, L2_cache_size=gpu.l2_bytes, is_integrated=0, gcnArchName=gpu.arch,
        clock_rate=1_980_000, memory_clock_rate=2_619_000, memory_bus_width=5120,
    )  # fmt: skip
    stream = Stream()

    def nothing() -> Any:
        return lambda *args, **kwargs: None  # one each: dynamo, imported later, has a rule for each function

    def graphs(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("CUDA graphs cannot run without a GPU; launch kernels directly, or judge this with --device cuda.")

    return {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": nothing(), "_lazy_init": nothing(),
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": nothing(), "synchronize": nothing(),
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: capability, "get_device_name": lambda device=None: gpu.name,
        "current_stream": lambda device=None: stream, "default_stream": lambda device=None: stream, "stream": _entering,
        "set_stream": nothing(),
        "Stream": Stream, "ExternalStream": Stream, "Event": Event, "device": _Device, "device_of": _entering, "empty_cache": nothing(),
        "memory_allocated": lambda device=None: 0, "max_memory_allocated": lambda device=None: 0, "memory_reserved": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 0, "reset_peak_memory_stats": nothing(), "reset_max_memory_allocated": nothing(),
        "mem_get_info": lambda device=None: (gpu.memory_bytes, gpu.memory_bytes), "manual_seed": nothing(), "manual_seed_all": nothing(),
        "is_bf16_supported": lambda *a, **k: True, "is_tf32_supported": lambda: True, "is_current_stream_capturing": lambda: False,
        "get_arch_list": lambda: [gpu.arch], "CUDAGraph": graphs, "graph": graphs, "ipc_collect": nothing(),
        "nvtx": types.SimpleNamespace(range_push=nothing(), range_pop=nothing(), mark=nothing(), range=_entering),
    }  # fmt: skip


@contextlib.contextmanager
def _entering(value: Any = None, *args: Any, **kwargs: Any) -> Iterator[Any]:
    yield value


class _Device:
    """Stands for the context manager torch.cuda.device."""

    def __init__(self, device: Any = None) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *args: object) -> None:
        return None
