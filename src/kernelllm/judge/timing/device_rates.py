"""Measures what rates a device really reaches (``kernelllm doctor --measure``), which floors use from then on.

A datasheet's rates are reached by nothing. The ceiling of a device is the best that the simplest large work gets on it: bytes
moved by fills, copies and sums, operations of square matrix products in each precision. Kept in the user's cache folder, by
the device's name.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch

from kernelllm.core import settings
from kernelllm.core.file_cache import replace_file
from kernelllm.core.gpus import Gpu
from kernelllm.core.types import to_json

_BYTES = 2 * 2**30
_SIZE = 8192
_BUDGET_S = 0.5
"""For the runs of one work, after its warm-up."""
_RUNS = 20
_PRODUCTS = (
    ("fp32", torch.float32, "highest"), ("tf32", torch.float32, "high"), ("fp16", torch.bfloat16, "highest"),
    ("fp64", torch.float64, "highest"),
)  # fmt: skip
"""Rate, type of the operands, and what torch may do with float32."""


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """Measured rates of one device, under the names and in the units of :class:`kernelllm.core.gpus.Gpu`: bytes/s and FLOP/s."""

    bandwidth: float
    fp32: float
    tf32: float
    fp16: float
    """FLOP/s with bfloat16 operands."""
    fp64: float
    torch: str = ""
    measured: str = ""
    """When (UTC, ISO 8601)."""

    def rates(self) -> dict[str, float]:
        """Field of the GPU table to what was measured."""
        return {name: getattr(self, name) for name in ("bandwidth", "fp32", "tf32", "fp16", "fp64")}


def measure(device: str, *, bytes_moved: int = _BYTES, size: int = _SIZE) -> Ceilings:
    """The ceilings of ``device`` (``cuda:N``; ``cpu`` works as well, by the wall clock). Some seconds; needs ``3 * bytes_moved`` of memory.

    ``size``: rows of the matrix products. Raises RuntimeError (torch's) where the device fails.
    """
    chosen = torch.device(device)
    free = torch.cuda.mem_get_info(chosen)[0] if chosen.type == "cuda" else 4 * bytes_moved
    elements = min(bytes_moved, free // 4) // 4
    found = {"bandwidth": _bandwidth(elements, chosen)}
    before = torch.get_float32_matmul_precision()
    try:
        for name, kind, precision in _PRODUCTS:
            torch.set_float32_matmul_precision(precision)
            found[name] = max(_product(kind, n, chosen) for n in (size // 2, size))
    finally:
        torch.set_float32_matmul_precision(before)
    return Ceilings(**found, torch=str(torch.__version__), measured=datetime.now(UTC).isoformat(timespec="seconds"))


def _bandwidth(elements: int, device: torch.device) -> float:
    """Bytes/s of the best of a fill, a copy, a sum of two and a sum over all."""
    a, b, c = (torch.ones(elements, device=device) for _ in range(3))
    moves: tuple[tuple[int, Callable[[], Any]], ...] = (
        (1, lambda: c.fill_(2.0)), (2, lambda: c.copy_(a)), (3, lambda: torch.add(a, b, out=c)), (1, lambda: a.sum()),
    )  # fmt: skip
    return max(4 * elements * count / _seconds(work, device) for count, work in moves)


def _product(kind: torch.dtype, size: int, device: torch.device) -> float:
    """FLOP/s of one square product; the second operand K-major, as tensor cores like it."""
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    out = torch.empty(size, size, device=device, dtype=kind)
    return 2.0 * size**3 / _seconds(lambda: torch.mm(a, b.t(), out=out), device)


def _seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Median seconds of one run, warm."""
    times = [_timed(work, device) for _ in range(3)]
    runs = max(3, min(_RUNS, int(_BUDGET_S / max(times[-1], 1e-6))))
    return statistics.median(_timed(work, device) for _ in range(runs))


def _timed(work: Callable[[], Any], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return max(time.perf_counter() - start, 1e-9)
    with torch.cuda.device(device):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
    return float(first.elapsed_time(last)) / 1e3


def file() -> Path:
    """Where ceilings are kept."""
    return settings.load().cache / "ceilings.json"


def keep(name: str, found: Ceilings) -> None:
    """Keep the ceilings of the device that the driver calls ``name``. Raises OSError where the folder cannot be written."""
    known = {**kept(), name: found}
    replace_file(file(), to_json(known).encode())


def known(name: str) -> Ceilings | None:
    """What was measured on the device of this name, None where nothing was or the file is damaged."""
    return kept().get(name)


def kept() -> dict[str, Ceilings]:
    """Everything that was measured, by the device's name."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(file().read_bytes(), type=dict[str, Ceilings])
    return {}


def applied(gpu: Gpu, device_name: str = "") -> tuple[Gpu, float | None]:
    """The GPU with its measured rates in place of the datasheet's, and its measured bandwidth in bytes/s; as it is, and None,
    where nothing was measured. ``device_name``: the driver's name where it is longer than the table's."""
    found = known(device_name) or known(gpu.name)
    if found is None:
        return gpu, None
    changed: Gpu = msgspec.structs.replace(gpu, **found.rates())
    return changed, found.bandwidth
