"""Stands in for a GPU that is not there: on a machine without one, candidates see their CPU tensors as ``cuda:0``.

``install`` replaces queries of ``torch.cuda`` by answers of the target's row in the GPU table; the mode
:class:`CudaOnCpu` maps ``device="cuda"``, ``.cuda()`` and ``.to("cuda")`` to the CPU and lets ``tensor.device`` and
``tensor.is_cuda`` say CUDA, but for tensors that candidate code makes on the host. Used in worker processes only.
"""

from __future__ import annotations

import contextlib
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelllm.backends import host_tensors
from kernelllm.core import gpus
from kernelllm.judge.tensor_leaves import tensor_leaves
from kernelllm.judge.worker import cuda_operators, cuda_questions, emulated_clock, plain_queries

_CUDA = "12.8"
"""The version of CUDA that torch says it was built for."""
CANDIDATE = "candidate"
"""The name of a candidate's module."""
_HERE = torch.device("cpu")
_THERE = torch.device("cuda", 0)


@contextlib.contextmanager
def autocast() -> Iterator[None]:
    """``torch.autocast`` to bfloat16, of CPU and GPU: either may stand for the other here."""
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        torch.set_autocast_enabled("cuda", True)
        try:
            yield
        finally:
            torch.set_autocast_enabled("cuda", False)


class CudaOnCpu(TorchFunctionMode):
    """See the module's text. ``noise`` fills the memory of ``torch.empty`` and the like; ``values_read``
    is told of values that become Python's or NumPy's or go to the host: how many of floating-point tensors, and of others on the GPU.
    ``has_host``: new tensors lie on the host where no device is said."""

    suspended: CudaOnCpu | None = None
    """The one that has begun a backward. A mode is off while a function that it handles runs; Python code in a backward needs it."""

    def __init__(
        self, noise: Callable[[torch.Tensor], None] | None = None,
        values_read: Callable[[int, int], None] = lambda floats, whole: None, *, has_host: bool = False,
    ) -> None:
        super().__init__()
        self.noise, self._values_read, self._has_host = noise, values_read, has_host

    def __enter__(self) -> CudaOnCpu:
        emulated_clock.enter()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        emulated_clock.leave()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if plain_queries.asks(func):
            return func(*args, **kwargs)
        if func in _BACKWARD:
            before, CudaOnCpu.suspended = CudaOnCpu.suspended, self
            try:
                return func(*args, **kwargs)
            finally:
                CudaOnCpu.suspended = before
        given = tensor_leaves(args, kwargs)
        from_host = [t for t in given if host_tensors.on_host(t)]
        says = _ANSWERS.get(getattr(func, "__self__", None) if func.__name__ == "__get__" else func)
        if says is not None:
            return says[bool(from_host)]
        if func in _READING:
            self._values_read(*_numbers(args[:1] if func is not torch.Tensor.item else ()))
        if func is torch.Tensor.__array_wrap__ or (func in _ARRAYS and not from_host):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
        if 0 < len(from_host) < len(given) and _one_device(func) and any(t.dim() for t in from_host):
            raise RuntimeError("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!")
        moves = _moves(func, args, kwargs)
        if moves and not from_host and (func is torch.Tensor.cpu or getattr(func, "__name__", "") == "to"):
            self._values_read(*_numbers(args[:1]))
        wanted = moves if moves is not None else len(from_host) == len(given) and (bool(given) or self._has_host)
        result = args[0] if func in _METHODS else _called(func, args, kwargs)
        if isinstance(result, str) and func in _NAMES and not from_host:
            result = _NAMES[func](result)
        if self.noise and func in EMPTY:
            self.noise(result)
        if moves is not None and given and result is given[0] and wanted != bool(from_host):
            result = result.clone()
        if wanted and not (kwargs.get("pin_memory") or func is torch.Tensor.pin_memory):
            host_tensors.mark(result)
        return result


def _called(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """On the CPU, whatever device is asked for; memory cannot be pinned."""
    is_to = getattr(func, "__name__", "") == "to"
    return func(*(_here(a, is_to) for a in args), **{k: _here(v, k == "device") for k, v in kwargs.items() if k != "pin_memory"})


def _moves(func: Any, args: Any, kwargs: dict[str, Any]) -> bool | None:
    """Whether a function that was told a device gives a tensor on the host; None where it was told none."""
    if func in (torch.Tensor.cpu, torch.Tensor.cuda):
        return func is torch.Tensor.cpu
    is_to = getattr(func, "__name__", "") == "to"
    for value in (*(args[1:] if is_to else ()), kwargs.get("device"), *([kwargs["other"]] if is_to and "other" in kwargs else ())):
        if isinstance(value, torch.Tensor):
            return host_tensors.on_host(value)
        if isinstance(value, torch.device | str):
            return torch.device(value).type == "cpu"
        if type(value) is int:
            return False
    return None


def _one_device(func: Any) -> bool:
    name = getattr(func, "__name__", "").strip("_")
    return name in _SAME_DEVICE or (name[:1] in "ir" and name[1:] in _SAME_DEVICE)


_ANSWERS: dict[Any, tuple[Any, Any]] = {
    torch.Tensor.device: (_THERE, _HERE), torch.Tensor.is_cuda: (True, False), torch.Tensor.is_cpu: (False, True),
    torch.Tensor.is_shared: (True, False),
    torch.Tensor.get_device: (0, -1), torch.get_device: (0, -1), torch.Tensor.__dlpack_device__: ((2, 0), (1, 0)),
}  # fmt: skip
"""What is said of a tensor: of one on the GPU, and of one on the host."""
_NAMES: dict[Any, Callable[[str], str]] = {
    torch.Tensor.__repr__: lambda text: f"{text.removesuffix(')')}, device='{_THERE}')",
    torch.Tensor.type: lambda text: text.replace("torch.", "torch.cuda."),
}  # fmt: skip
"""Texts that name the device."""
_METHODS = frozenset({torch.Tensor.cuda, torch.Tensor.cpu, torch.Tensor.pin_memory})
_ARRAYS: tuple[Any, ...] = (torch.Tensor.numpy, torch.Tensor.__array__)
_BACKWARD = frozenset({torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward})
_SAME_DEVICE = frozenset((
    "add", "sub", "mul", "div", "truediv", "true_divide", "pow", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "matmul", "mm",
    "bmm", "addmm", "linear", "cat", "stack", "where", "logical_and", "logical_or", "and", "or",
))  # fmt: skip
"""Functions that refuse tensors of two devices, but for single numbers."""
EMPTY = frozenset({torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted, torch.Tensor.new_empty,
                   torch.Tensor.new_empty_strided})  # fmt: skip


_READING = frozenset({torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__, torch.Tensor.__repr__,
                      torch.Tensor.__format__, torch.Tensor.item})  # fmt: skip


def _numbers(args: Any) -> tuple[int, int]:
    """How many elements floating-point tensors have, and others that do not lie on the host."""
    floats, whole = 0, 0
    for tensor in (a for a in args if isinstance(a, torch.Tensor)):
        if tensor.is_floating_point() or tensor.is_complex():
            floats += tensor.numel()
        elif not host_tensors.on_host(tensor):
            whole += tensor.numel()
    return floats, whole


class Noise(TorchFunctionMode):
    """On a real GPU: only the noise of :class:`CudaOnCpu`."""

    def __init__(self, noise: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._fill = noise

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in EMPTY:
            self._fill(result)
        return result


def fill_noise(tensor: torch.Tensor, *, other: bool = False) -> None:
    """Finite values that no kernel would leave behind; does not touch torch's global generator. ``other``: each differs from those."""
    generator = torch.Generator(tensor.device).manual_seed(20011)
    if tensor.dtype.is_complex:
        tensor.fill_(-1.5 if other else 1.5)
    elif tensor.dtype.is_floating_point:
        tensor.uniform_(-3.0, 3.0, generator=generator)
        tensor.neg_() if other else None
    elif tensor.dtype is torch.bool:
        tensor.random_(0, 2, generator=generator)
        tensor.logical_not_() if other else None
    else:
        tensor.random_(0, 5, generator=generator)
        tensor.add_(5) if other else None


def _here(value: Any, text_too: bool) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return _HERE
    if text_too and (type(value) is int or (isinstance(value, str) and value.split(":")[0] == "cuda")):
        return _HERE
    return value


class _CudaDeviceProperties(types.SimpleNamespace):
    """Stands for what torch.cuda.get_device_properties gives."""


_CudaDeviceProperties.__module__ = "torch._C"


class Stream:
    """Stands for torch.cuda.Stream: everything is synchronous here."""

    cuda_stream = 0
    device = _THERE
    device_index = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.priority = kwargs.get("priority", 0)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={_THERE} cuda_stream={self.cuda_stream:#x}>"

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
    emulated_clock.install()
    for name, value in _torch_cuda(gpu).items():
        _seems(value, "torch.cuda", name)
        setattr(torch.cuda, name, value)
    cuda_questions.watch(built=torch.version.cuda is not None)
    if torch.version.cuda is None:
        torch.version.cuda = _CUDA
        torch.__version__ = torch.version.__version__ = type(torch.__version__)(torch.__version__.replace("+cpu", "+cu128"))
        torch.backends.cuda.is_built = lambda: True
    torch.UntypedStorage.device = property(_storage_device)  # type: ignore[assignment]
    torch.get_num_threads = torch.get_num_interop_threads = lambda: 16
    answers = {"current_device_index": 0, "device_count": 1, "synchronize": None, "set_device_index": None, "is_available": True,
               "current_accelerator": torch.device("cuda")}  # fmt: skip
    for name, answer in answers.items():
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None and hasattr(accelerator, name):
            setattr(accelerator, name, lambda *a, _answer=answer, **k: _answer)
    _autograd._engine_run_backward = _run_backward
    cuda_operators.install()
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign,assignment]  # torch takes real streams alone
    real: Any = torch.Generator

    class Generator(real):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return real.__new__(cls, device="cpu")

        def __init__(self, device: Any = "cpu") -> None:
            super().__init__()

    torch.Generator = Generator  # type: ignore[misc]


_autograd: Any = torch.autograd
_engine_run_backward: Any = _autograd._engine_run_backward


def _run_backward(*args: Any, **kwargs: Any) -> Any:
    with CudaOnCpu.suspended or contextlib.nullcontext():
        return _engine_run_backward(*args, **kwargs)


def _seems(value: Any, module: str, name: str) -> None:
    """A stand-in says of itself what torch's own says."""
    if isinstance(value, type):
        value.__module__ = module
    elif isinstance(value, types.FunctionType):
        value.__module__, value.__name__, value.__qualname__ = module, name, name


_storage_is_on: Any = torch._C.StorageBase.device.__get__  # type: ignore[attr-defined]


def _storage_device(storage: Any) -> torch.device:
    """On the GPU for candidate code, where its tensors are; torch's own code needs the truth."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") == "torch.storage" and frame.f_back is not None:
        frame = frame.f_back
    there = frame.f_globals.get("__name__") == CANDIDATE and not host_tensors.on_host(storage)
    return _THERE if there else _storage_is_on(storage)


def _torch_cuda(gpu: gpus.Gpu) -> dict[str, Any]:
    capability = divmod(gpus.capability(gpu.arch), 10)
    properties = _CudaDeviceProperties(
        uuid="4f7a1c52-3d0b-4c11-9a6e-7b8d2f9e0c31", pci_bus_id=1, pci_device_id=0, pci_domain_id=0, is_multi_gpu_board=0,
        name=gpu.name, major=capability[0], minor=capability[1], total_memory=gpu.memory_bytes, multi_processor_count=gpu.sms,
        warp_size=32, max_threads_per_multi_processor=2048, max_threads_per_block=1024, regs_per_multiprocessor=gpu.registers_per_sm,
        shared_memory_per_block=48 * 1024, shared_memory_per_block_optin=gpu.shared_bytes,
        shared_memory_per_multiprocessor=gpu.shared_bytes + 1024, L2_cache_size=gpu.l2_bytes, is_integrated=0, gcnArchName=gpu.arch,
        clock_rate=1_980_000, memory_clock_rate=2_619_000, memory_bus_width=5120, capturing=False,
    )  # fmt: skip
    stream, used = Stream(), gpu.memory_bytes // 64

    def nothing() -> Any:
        return lambda *args, **kwargs: None  # one each: dynamo, imported later, has a rule for each function

    def graphs(*args: Any, **kwargs: Any) -> Any:
        cuda_questions.asked.append("CUDA graphs")
        raise NotImplementedError("CUDA graphs cannot run without a GPU; launch kernels directly, or judge this with --device cuda.")

    return {
        "is_available": lambda: True, "is_initialized": lambda: True, "init": nothing(), "_lazy_init": nothing(),
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": nothing(), "synchronize": nothing(),
        "get_device_properties": lambda device=None: properties, "get_device_name": lambda device=None: properties.name,
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "current_stream": lambda device=None: stream, "default_stream": lambda device=None: stream, "stream": _entering,
        "set_stream": nothing(),
        "Stream": Stream, "ExternalStream": Stream, "Event": Event, "device": _Device, "device_of": _entering, "empty_cache": nothing(),
        "memory_allocated": lambda device=None: used, "max_memory_allocated": lambda device=None: used,
        "memory_reserved": lambda device=None: 2 * used, "max_memory_reserved": lambda device=None: 2 * used,
        "reset_peak_memory_stats": nothing(), "reset_max_memory_allocated": nothing(),
        "mem_get_info": lambda device=None: (gpu.memory_bytes - 3 * used, gpu.memory_bytes),
        "manual_seed": nothing(), "manual_seed_all": nothing(), "is_bf16_supported": lambda *a, **k: True,
        "is_tf32_supported": lambda: True, "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": nothing(), "get_arch_list": lambda: [gpu.arch], "CUDAGraph": graphs, "graph": graphs, "ipc_collect": nothing(),
        "is_current_stream_capturing": lambda: properties.capturing,
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
