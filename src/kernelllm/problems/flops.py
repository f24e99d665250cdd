"""FLOPs of ATen operators: the one place that counts them. A multiply and an add are two.

Counted are matrix products, convolutions, attention, recurrent layers, and what a matrix product can be written as: PyTorch's own
table of formulas, and formulas for operators that the table lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

_IN_TORCHS_TABLE = ("mm", "conv", "attention")
"""One of these is in the name of every operator in PyTorch's table, which imports Triton: a problem without any does not wait for it."""


def heavy_flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of one call of an ATen operator. 0 for an operator without a formula, and for arguments that do not fit the formula."""
    packet = getattr(func, "_overloadpacket", None)
    formula = _torchs(packet)
    try:
        if formula is not None:
            return int(formula(*args, **kwargs, out_val=result))
        own = _OWN_FORMULAS.get(str(packet).removeprefix("aten."))
        return int(own(args)) if own else 0
    except (TypeError, ValueError, IndexError, AttributeError, AssertionError, RuntimeError):
        return 0


@cache
def _torchs(packet: Any) -> Callable[..., Any] | None:
    """The formula in PyTorch's own table."""
    if not any(part in str(packet) for part in _IN_TORCHS_TABLE):
        return None
    from torch.utils.flop_counter import flop_registry

    return flop_registry.get(packet)


def _vector_product(args: Any) -> int:
    shapes = [a.shape for a in args if isinstance(a, torch.Tensor)]
    return 2 * max(math.prod(s) for s in shapes)


def _rnn(args: Any) -> int:
    """Recurrent layers: 2 FLOPs for each weight, step and row of the batch. The first argument is the input, with features last."""
    rows = args[0].numel() // max(args[0].shape[-1], 1)
    weights = [t for a in args[1:] for t in (a if isinstance(a, list | tuple) else [a]) if isinstance(t, torch.Tensor) and t.dim() == 2]
    return int(2 * rows * sum(w.numel() for w in weights))


def _solved(right: Any, square: Any, each: int) -> int:
    """Solving for ``right`` by substitution: ``each`` FLOPs for every element of ``right`` and row of the square matrix."""
    return int(each * right.numel() * square.shape[-1])


_OWN_FORMULAS: dict[str, Callable[[Any], int]] = {
    "mv": _vector_product, "dot": _vector_product, "vdot": _vector_product, "addmv": _vector_product,
    "_cudnn_rnn": _rnn, "mkldnn_rnn_layer": _rnn, "lstm": _rnn, "gru": _rnn, "rnn_tanh": _rnn, "rnn_relu": _rnn,
    "_thnn_fused_lstm_cell": lambda args: 0,
    "linear": lambda args: 2 * args[0].numel() * args[1].shape[0],
    "mkldnn_linear": lambda args: 2 * args[0].numel() * args[1].shape[0],
    "_trilinear": _vector_product,
    # operators as which a matrix product can be written
    "linalg_solve_triangular": lambda args: _solved(args[1], args[0], 1),
    "triangular_solve": lambda args: _solved(args[0], args[1], 1),
    "cholesky_solve": lambda args: _solved(args[0], args[1], 2),
    "linalg_lu_solve": lambda args: _solved(args[2], args[0], 2),
    "_linalg_solve_ex": lambda args: _solved(args[1], args[0], 2),
    "linalg_inv_ex": lambda args: _solved(args[0], args[0], 2),
    "_embedding_bag": lambda args: 2 * args[1].numel() * args[0].shape[1],
    "_embedding_bag_forward_only": lambda args: 2 * args[1].numel() * args[0].shape[1],
    "_cdist_forward": lambda args: 2 * args[0].numel() * args[1].shape[-2],
    "_scaled_dot_product_flash_attention_for_cpu": lambda args: 4 * math.prod(args[0].shape) * args[1].shape[-2],
    "_scaled_dot_product_attention_math_for_mps": lambda args: 4 * math.prod(args[0].shape) * args[1].shape[-2],
    "_fused_sdp_choice": lambda args: 0,
}  # fmt: skip
