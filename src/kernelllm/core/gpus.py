"""The one table of GPUs: what prompts, rooflines and compile targets know about a device.

Figures are dense (no sparsity) datasheet rates. Sources: NVIDIA's A100, L4, L40S, RTX 4090, H100, H200
and B200 datasheets and architecture whitepapers.
"""

from __future__ import annotations

import msgspec

from kernelllm.core.errors import UnknownName


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device. Bandwidth in bytes/s, rates in FLOP/s, memory sizes in bytes."""

    name: str
    arch: str
    """Compile target, e.g. ``sm_90``."""
    sms: int
    memory_bytes: int
    bandwidth: float
    l2_bytes: int
    shared_bytes: int
    """Largest shared memory one block can ask for."""
    fp32: float
    tf32: float
    fp16: float
    """Tensor-core rate for fp16 and bf16 operands with fp32 accumulation."""
    fp64: float
    registers_per_sm: int = 65536


_G = 2**30
_T = 1e12
GPUS: tuple[Gpu, ...] = (
    Gpu(name="NVIDIA A100-SXM4-80GB", arch="sm_80", sms=108, memory_bytes=80 * _G, bandwidth=2.039e12, l2_bytes=40 * 2**20,
        shared_bytes=163 * 1024, fp32=19.5 * _T, tf32=156 * _T, fp16=312 * _T, fp64=19.5 * _T),
    Gpu(name="NVIDIA L4", arch="sm_89", sms=58, memory_bytes=24 * _G, bandwidth=0.3e12, l2_bytes=48 * 2**20,
        shared_bytes=99 * 1024, fp32=30.3 * _T, tf32=60 * _T, fp16=121 * _T, fp64=0.47 * _T),
    Gpu(name="NVIDIA L40S", arch="sm_89", sms=142, memory_bytes=48 * _G, bandwidth=0.864e12, l2_bytes=96 * 2**20,
        shared_bytes=99 * 1024, fp32=91.6 * _T, tf32=183 * _T, fp16=362 * _T, fp64=1.4 * _T),
    Gpu(name="NVIDIA GeForce RTX 4090", arch="sm_89", sms=128, memory_bytes=24 * _G, bandwidth=1.008e12, l2_bytes=72 * 2**20,
        shared_bytes=99 * 1024, fp32=82.6 * _T, tf32=82.6 * _T, fp16=165 * _T, fp64=1.3 * _T),
    Gpu(name="NVIDIA H100 80GB HBM3", arch="sm_90", sms=132, memory_bytes=80 * _G, bandwidth=3.35e12, l2_bytes=50 * 2**20,
        shared_bytes=227 * 1024, fp32=66.9 * _T, tf32=494 * _T, fp16=989 * _T, fp64=66.9 * _T),
    Gpu(name="NVIDIA H200", arch="sm_90", sms=132, memory_bytes=141 * 10**9, bandwidth=4.8e12, l2_bytes=50 * 2**20,
        shared_bytes=227 * 1024, fp32=66.9 * _T, tf32=494 * _T, fp16=989 * _T, fp64=66.9 * _T),
    Gpu(name="NVIDIA B200", arch="sm_100", sms=148, memory_bytes=180 * 10**9, bandwidth=8.0e12, l2_bytes=126 * 2**20,
        shared_bytes=227 * 1024, fp32=80 * _T, tf32=1100 * _T, fp16=2250 * _T, fp64=40 * _T),
)

DEFAULT_BY_ARCH = {"sm_80": "NVIDIA A100-SXM4-80GB", "sm_89": "NVIDIA L40S", "sm_90": "NVIDIA H200", "sm_100": "NVIDIA B200"}


def by_name(device_name: str) -> Gpu | None:
    """The row whose name the driver's device name starts with or contains, None when unknown."""
    for gpu in GPUS:
        if gpu.name == device_name or device_name.startswith(gpu.name):
            return gpu
    return None


def by_arch(target: str) -> Gpu:
    """The representative device of a compile target such as ``sm_90``. Raises UnknownName otherwise."""
    if target not in DEFAULT_BY_ARCH:
        raise UnknownName(f"Unknown target {target!r}.", fix=f"Known: {', '.join(DEFAULT_BY_ARCH)}.")
    found = by_name(DEFAULT_BY_ARCH[target])
    assert found is not None
    return found


def of(target: str) -> Gpu:
    """The device that a name or a compile target stands for. Raises UnknownName otherwise."""
    return by_name(target) or by_arch(target)


def capability(target: str) -> int:
    """``sm_90`` to 90. Raises UnknownName where it is not of that form."""
    by_arch(target)
    return int(target.removeprefix("sm_"))
