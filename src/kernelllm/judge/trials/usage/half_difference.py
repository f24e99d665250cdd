"""Says how a result in half precision differs from eager's."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.problems import nested

_FACTOR, _UNITS, _FEW, _LEAST = 4.0, 16.0, 0.02, 1e-4
"""In half precision: times eager's own error, units of rounding, share of elements that rounding may decide; and what float32 results of
a forward that computes in float32 itself may be off, as in the trials (float64 says nothing of its rounding)."""


def half_precision_difference(value: Any, expected: Any, exact: Any) -> str:
    """How a result in half precision differs from eager's; empty where rounding may be the cause.

    It may be off by several times eager's own error and by some units of rounding. Whole numbers may hang on rounding altogether, and
    so may a few elements.
    """
    made, wanted, right = (list(nested.tensors(v)) for v in (value, expected, exact))  # the same one twice counts twice
    if [(t.shape, t.dtype) for t in made] != [(t.shape, t.dtype) for t in wanted]:
        return "the shapes or types of its results"
    for mine, eager, truth in zip(made, wanted, right, strict=True):
        if not eager.is_floating_point() or not eager.numel():
            continue
        truth = truth.double()  # what is rounded to float8 by the module stays so
        rounding = max(_UNITS * torch.finfo(eager.dtype).eps, _LEAST) * truth.square().mean().sqrt()
        allowed = _FACTOR * (eager.double() - truth).abs().max() + rounding
        off = ~((mine.double() - truth).abs() <= allowed)
        if int(off.sum()) > _FEW * off.numel():
            return f"{int(off.sum())} of {off.numel()} elements are further from the exact result than {float(allowed):.3g}"
    return ""
