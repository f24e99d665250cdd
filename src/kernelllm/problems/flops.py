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


def _square(args: Any) -> int:
    """Functions and decompositions of a matrix: at least a product's work, 2 FLOPs for every element and column."""
    return int(2 * args[0].numel() * args[0].shape[-1])


def _fourier(args: Any) -> int:
    """Fast Fourier transforms: 5 n log2 n."""
    points = math.prod(args[0].shape[d] for d in args[1])
    return int(5 * args[0].numel() * max(math.log2(max(points, 1)), 1))


def _weight_last(args: Any) -> int:
    """Products with a weight of [out, in]."""
    return int(2 * args[0].numel() * args[1].shape[0])


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
    "_mixed_dtypes_linear": _weight_last, "_weight_int8pack_mm": _weight_last, "fbgemm_linear_int8_weight": _weight_last,
    "_int_mm": lambda args: 2 * args[0].numel() * args[1].shape[-1],
    "_grouped_mm": lambda args: 2 * args[0].numel() * args[1].shape[-1],
    "_scaled_grouped_mm": lambda args: 2 * args[0].numel() * args[1].shape[-1],
    "_sparse_mm": lambda args: 2 * args[0].numel() * args[1].shape[-1],
    "_sparse_addmm": lambda args: 2 * args[1].numel() * args[2].shape[-1],
    "_sparse_sparse_matmul": lambda args: 2 * args[0].numel() * args[1].shape[-1],
    "_fft_r2c": _fourier, "_fft_c2r": _fourier, "_fft_c2c": _fourier,
    **dict.fromkeys((
        "linalg_matrix_exp", "linalg_cholesky_ex", "cholesky", "cholesky_inverse", "linalg_lu", "linalg_lu_factor_ex",
        "linalg_ldl_factor_ex", "linalg_qr", "geqrf", "orgqr", "linalg_householder_product", "_linalg_svd", "linalg_eig",
        "_linalg_eigh", "_linalg_eigvals", "_linalg_det", "_linalg_slogdet", "linalg_lstsq", "linalg_pinv",
    ), _square),
    "ormqr": lambda args: 2 * args[2].numel() * args[0].shape[-1],
    "_pdist_forward": lambda args: args[0].numel() * args[0].shape[0],
    "ger": lambda args: 2 * args[0].numel() * args[1].numel(),
    "addr": lambda args: 2 * args[1].numel() * args[2].numel(),
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
    "_euclidean_dist": lambda args: 2 * args[0].numel() * args[1].shape[-2],
    "mkldnn._linear_pointwise": _weight_last,
    "mkldnn._convolution_pointwise": lambda args: 2 * args[0].numel() * args[1].numel() // args[1].shape[1],
    "_fused_sdp_choice": lambda args: 0,
}  # fmt: skip
