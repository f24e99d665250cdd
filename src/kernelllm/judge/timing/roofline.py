"""Computes the speed of light: the least time a device needs for the bytes and operations of the reference.

Bytes: every input, parameter and buffer that the reference reads counts once, every output once, and
nothing in between (a perfect kernel keeps intermediates on the chip). Where only a part of a tensor is
read (a slice, an embedding lookup) only that part counts, so the figure stays a lower bound.

Operations: multiply and add count as two; only matrix work is counted (matmul, convolution, attention,
recurrent layers), because it alone can bound a kernel that is not bound by memory. fp32 products are
charged at a third of the 16-bit tensor-core rate (three bf16 or tf32 products give fp32 accuracy) and
fp32 convolutions at the tf32 rate, which PyTorch uses for them by default.

The SOL score is SOL-ExecBench's: S = 1 / (1 + (Tk - Tsol) / (Tb - Tsol)).
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from kernelllm.core import gpus
from kernelllm.core.background import TORCH
from kernelllm.core.gpus import Gpu
from kernelllm.core.quiet import quiet_thread
from kernelllm.core.types import Floor, Problem
from kernelllm.judge.checks.operator_families import operator
from kernelllm.judge.timing import device_rates
from kernelllm.problems.fake_mode import fake_mode
from kernelllm.problems.first_run import first_run
from kernelllm.problems.flops import heavy_flops
from kernelllm.problems.instance import Instance
from kernelllm.problems.meta_tensors import meta_tensors
from kernelllm.problems.unfused_flex import unfused_flex
from kernelllm.problems.without_dynamo import OperatorMode

_LOG = logging.getLogger(__name__)
_GATHERS = ("aten.embedding", "aten.index", "aten.gather", "aten.index_select", "aten.take")
_TAPS = {
    "upsample_nearest1d": 1, "upsample_nearest2d": 1, "upsample_nearest3d": 1, "_upsample_nearest_exact1d": 1,
    "_upsample_nearest_exact2d": 1, "_upsample_nearest_exact3d": 1,
    "upsample_linear1d": 2, "upsample_bilinear2d": 4, "upsample_trilinear3d": 8, "upsample_bicubic2d": 16,
    "grid_sampler_2d": 16, "grid_sampler_2d_backward": 16, "grid_sampler_3d": 8,
}  # fmt: skip
"""Elements of its first operand that an operator reads for one of its result, at most."""
_WINDOWS = ("avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices")
_IN_PLACES = ("index_put_", "index_copy_", "index_add_", "index_fill_", "scatter_", "scatter_add_", "scatter_reduce_", "_index_put_impl_")
"""Write into as many places of their first operand as the others say."""
_BY_MASK = ("masked_fill_", "masked_scatter_")
_CONVS = ("aten.convolution", "aten._convolution", "aten.cudnn_convolution", "aten.conv")


class Counted:
    """Bytes and operations of one reference at one setting of its sizes."""

    def __init__(self, read: int, written: int, flops: dict[str, float]) -> None:
        self.bytes = read + written
        self.flops = flops
        """Operations by unit: ``fp32``, ``tf32``, ``fp16`` (bf16 as well), ``fp64``."""


def _unit(operator: str, dtype: torch.dtype) -> str:
    if dtype in (torch.float16, torch.bfloat16):
        return "fp16"
    if dtype is torch.float64:
        return "fp64"
    return "tf32" if operator.startswith(_CONVS) else "fp32"


def _distinct_bytes(tensor: torch.Tensor) -> int:
    count = tensor.element_size()
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 or size == 0 else 1
    return int(count)


def _of_first(name: str, args: Any, result: Any) -> int | None:
    """Bytes that an operator touches of its first operand, where these are few; None where it may be all of them."""
    called, first = operator(name), args[0] if args else None
    if not isinstance(first, torch.Tensor):
        return None
    made = next((t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)), first)
    if called in _TAPS:
        return made.numel() * _TAPS[called] * first.element_size()
    if called in _WINDOWS:
        return made.numel() * int(math.prod(args[1])) * first.element_size()
    if name.startswith(_CONVS) and isinstance(args[1], torch.Tensor) and made.dim() == first.dim():
        return math.prod(made.shape[2:]) * math.prod(args[1].shape[2:]) * math.prod(first.shape[:2]) * first.element_size()
    if called in _BY_MASK:
        return 0
    if called in _IN_PLACES:
        others = [t for t in tree_flatten(args[1:])[0] if isinstance(t, torch.Tensor)]
        return max([t.numel() for t in others], default=0) * first.element_size()
    return None


class _TrafficCounter(OperatorMode):
    """Sees every ATen call of the reference on fake tensors."""

    def __init__(self, sources: dict[int, int]) -> None:
        super().__init__()
        self.sources = sources
        self.read: dict[int, int] = {}
        self.flops: dict[str, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        result = func(*args, **kwargs)
        if not func.is_view and "empty" not in name and ".size" not in name:
            self._touch(name, args, kwargs, result)
        flops = heavy_flops(func, args, kwargs, result)
        if flops:
            operand = next(t for t in tree_flatten(args)[0] if isinstance(t, torch.Tensor))
            self._add(name, operand.dtype, float(flops))
        return result

    def _add(self, name: str, dtype: torch.dtype, flops: float) -> None:
        unit = _unit(name, dtype)
        self.flops[unit] = self.flops.get(unit, 0.0) + flops

    def _touch(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        limit, of_first = None, _of_first(name, args, result)
        if name.startswith(_GATHERS):
            limit = sum(_distinct_bytes(t) for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor))
        for tensor in tree_flatten((args, kwargs))[0]:
            if not isinstance(tensor, torch.Tensor):
                continue
            key = tensor.untyped_storage()._cdata
            if key in self.sources:
                size = min(_distinct_bytes(tensor), self.sources[key])
                size = size if limit is None else min(size, limit)
                size = min(size, of_first) if of_first is not None and tensor is args[0] else size
                self.read[key] = max(self.read.get(key, 0), size)


def count(instance: Instance, *, on_meta: bool = False) -> Counted:
    """Bytes and operations of the reference at the instance's sizes, without allocating them. ``on_meta``: on meta tensors, which not
    every reference runs on, rather than on fake ones, which import all of dynamo.

    Raises whatever the reference raises on such tensors (data-dependent control flow, say).
    """
    with contextlib.ExitStack() as stack, torch.no_grad():
        if on_meta:
            stack.enter_context(meta_tensors())
        else:
            stack.enter_context(fake_mode())
            stack.enter_context(quiet_thread())
        model = instance.model(0)
        inputs = instance.inputs(0)
        tensors = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor)]
        tensors += list(model.parameters()) + list(model.buffers())
        sources = {t.untyped_storage()._cdata: t.numel() * t.element_size() for t in tensors}
        counter = _TrafficCounter(sources)
        with counter, unfused_flex():
            output = model(*inputs)
        outputs = [t for t in tree_flatten(output)[0] if isinstance(t, torch.Tensor)]
        fresh = {t.untyped_storage()._cdata: _distinct_bytes(t) for t in outputs if t.untyped_storage()._cdata not in sources}
    return Counted(sum(counter.read.values()), sum(fresh.values()), counter.flops)


def rate(unit: str, gpu: Gpu) -> float:
    """Ceiling of a unit in FLOP/s on a device (see the module's text for fp32)."""
    return {"fp16": gpu.fp16, "tf32": gpu.tf32, "fp64": gpu.fp64, "fp32": max(gpu.fp32, gpu.fp16 / 3)}[unit]


def floor(counted: Counted, gpu: Gpu, *, bandwidth: float | None = None) -> Floor:
    """The floor in milliseconds: the larger of bytes / bandwidth and operations / rate.

    ``bandwidth`` (bytes/s) replaces the datasheet's figure with a measured one.
    """
    memory_ms = 1e3 * counted.bytes / (bandwidth or gpu.bandwidth)
    compute_ms = 1e3 * sum(flops / rate(unit, gpu) for unit, flops in counted.flops.items())
    return Floor(
        ms=max(memory_ms, compute_ms),
        bytes=counted.bytes,
        flops=counted.flops,
        bound="compute" if compute_ms > memory_ms else "memory",
        device=gpu.name,
        source="measured" if bandwidth else "datasheet",
    )


def sol_score(candidate_ms: float, baseline_ms: float, floor_ms: float) -> float | None:
    """SOL-ExecBench's score: 0.5 at the baseline, 1 at the floor. None when the baseline is at or under the floor."""
    if baseline_ms <= floor_ms:
        return None
    denominator = 1.0 + (candidate_ms - floor_ms) / (baseline_ms - floor_ms)
    return 1.0 / denominator if denominator > 0 else None


class Floors:
    """The floors of problems. ``target``: the compile target whose representative GPU counts where ``device_name`` is none."""

    def __init__(self, executor: Executor, target: str, device_name: str) -> None:
        self._executor, self._target, self._device_name = executor, target, device_name
        self._lock = threading.Lock()
        self._counted: dict[str, Future[Floor | None]] = {}

    def count(self, problem: Problem) -> Future[Floor | None]:
        """Start counting, unless that was done before."""
        with self._lock:
            if problem.digest not in self._counted:
                self._counted[problem.digest] = self._executor.submit(floor_of, problem, self._target, self._device_name)
            return self._counted[problem.digest]

    def of(self, problem: Problem) -> Floor | None:
        """The floor of a problem. None where its reference cannot be counted without running it."""
        return self.count(problem).result()


def floor_of(problem: Problem, target: str, device_name: str = "") -> Floor | None:
    """The floor at the problem's own sizes, on the named device or the target's representative one. None where it cannot be counted."""
    gpu, bandwidth = device_rates.applied(gpus.by_name(device_name) or gpus.by_arch(target), device_name)
    try:
        on_meta = first_run(problem)[0] == "meta"
        if not on_meta:
            import_module("torch._dynamo")  # fake tensors need it: a long import, not to be waited for under the lock
        with TORCH:
            return floor(count(Instance(problem), on_meta=on_meta), gpu, bandwidth=bandwidth)
    except Exception as error:  # noqa: BLE001 - the problem's own code on fake tensors may raise anything
        _LOG.info("No floor for %s: %s", problem.name, error)
        return None
