"""Results of recurrent layers while a module is exported: of the right sizes alone. Torch would unroll the steps, and fix their number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _results(
    x: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool
) -> Any:  # fmt: skip
    """Tensors like the layer's results; of no layer's mode or order of dimensions do their sizes depend."""
    states = [hx] if isinstance(hx, torch.Tensor) else list(hx)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return x.new_empty((*x.shape[:-1], width)), *(torch.empty_like(state) for state in states)


@contextmanager
def not_unrolled() -> Iterator[None]:
    """While open, the steps of recurrent layers over fake tensors are not gone through."""
    kept = []
    for name in _LAYERS:
        operator = getattr(torch.ops.aten, name).input
        kept.append((operator, dict(operator.py_kernels)))
        operator.py_kernels.update(dict.fromkeys(operator.py_kernels, _results))
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in kept:
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
