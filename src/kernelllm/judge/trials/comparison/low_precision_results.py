"""Warns of half-precision results that are within tolerance and far less exact than eager's own, as products of 8 bits are."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.trials.comparison.compare import Expected
from kernelllm.judge.trials.comparison.error_sums import FEW
from kernelllm.problems import nested

_COARSE = 4.0
"""Times eager's own relative rms error. Kernels that round what lies between, as eager does, come to less than twice that."""
_ROUNDED = 0.25
"""Eager's relative rms error is taken to be at least so many units of rounding: that of rounding a result once."""
_UNKNOWN = 0.02
"""Where eager is off by more than this, rounding makes much of the output."""


def report_low_precision(value: Any, expected: Expected) -> list[Finding]:
    """A warning with both errors."""
    if not expected.has_exact:
        return []
    for mine, eager, exact in zip(*(nested.tensors(one) for one in (value, expected.value, expected.exact)), strict=False):
        if not eager.is_floating_point() or eager.itemsize != 2 or eager.numel() < FEW or not mine.shape == eager.shape == exact.shape:
            continue
        size = _rms(exact)
        own, theirs = (_rms(one.double() - exact.double()) / size if size > 0 else 0.0 for one in (mine, eager))
        least = max(theirs, _ROUNDED * torch.finfo(eager.dtype).eps)
        if theirs < _UNKNOWN and own > _COARSE * least:
            text = f"Right within the tolerance of {str(eager.dtype).removeprefix('torch.')}, and {own / least:.0f} times as far from "
            text += f"float64 as eager (relative rms error {own:.2g} and {theirs:.2g}): something is rounded to fewer digits on the way."
            return [Finding(check="precision", message=text, severity=Severity.WARN)]
    return []


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())
