"""Figures of a run's outputs, which checks look at: they are kept where the tensors are not."""

from __future__ import annotations

import hashlib

import torch

from kernelllm.judge.observation import OutputStats
from kernelllm.judge.transport import values

_DIGEST_LIMIT = 2**26
_SAMPLE = 2**24
"""Figures of larger outputs come from a sample of about this many elements."""


def stats(value: object) -> tuple[OutputStats, ...]:
    """Figures of all tensors of an output."""
    return tuple(tensor_stats(t) for t in values.flatten(value))


def tensor_stats(tensor: torch.Tensor) -> OutputStats:
    shape, kind = tuple(tensor.shape), values.dtype_name(tensor.dtype)
    digest = hashlib.sha256(_some_bytes(tensor)).hexdigest()
    if tensor.numel() == 0 or tensor.is_complex():
        return OutputStats(shape, kind, 0.0, 0.0, 0.0, 0.0, 0.0, digest)
    numbers = tensor.detach().reshape(-1)
    numbers = numbers[:: max(1, numbers.numel() // _SAMPLE)]
    numbers = numbers.double() if numbers.numel() <= _DIGEST_LIMIT else numbers.float()
    finite = numbers[torch.isfinite(numbers)]
    if finite.numel() == 0:
        return OutputStats(shape, kind, 0.0, 0.0, 0.0, 0.0, 0.0, digest)
    zeros = float((numbers == 0).sum()) / numbers.numel()
    deviation = float(finite.std(correction=0))
    return OutputStats(shape, kind, float(finite.mean()), deviation, float(finite.min()), float(finite.max()), zeros, digest)


def _some_bytes(tensor: torch.Tensor) -> bytes:
    """All bytes of a small tensor; of a large one a strided sample with its sum."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() > 2**20:
        step = flat.numel() // 2**18
        sample = flat[::step].contiguous()
        tail = repr(float(flat.double().sum() if flat.numel() <= _DIGEST_LIMIT else flat.float().sum())).encode()
    else:
        sample, tail = flat.contiguous(), b""
    return bytes(sample.view(torch.uint8).cpu().numpy().tobytes()) + tail if flat.numel() else b""
