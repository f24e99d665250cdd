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
    name = str(packet).removeprefix("aten.")
    formula = _torchs(packet) or _torchs(getattr(torch.ops.aten, name.rstrip("_"), None) if name.endswith("_") else None)
    try:
        if formula is not None:
            return int(formula(*args, **kwargs, out_val=result))
        own = _OWN_FORMULAS.get(name) or _OWN_FORMULAS.get(name.rstrip("_"))
        return int(own(args, result)) if own else 0
    except (TypeError, ValueError, IndexError, AttributeError, AssertionError, RuntimeError):
        return 0


@cache
def _torchs(packet: Any) -> Callable[..., Any] | None:
    """The formula in PyTorch's own table."""
    if not any(part in str(packet) for part in _IN_TORCHS_TABLE):
        return None
    from torch.utils.flop_counter import flop_registry

    return flop_registry.get(packet)


def _vector_product(args: Any, _result: Any) -> int:
    shapes = [a.shape for a in args if isinstance(a, torch.Tensor)]
    return 2 * max(math.prod(s) for s in shapes)


def _first(result: Any) -> torch.Tensor:
    found: torch.Tensor = result[0] if isinstance(result, tuple | list) else result
    return found


def _weights(args: Any) -> int:
    """Elements of the matrices behind the first argument, those in lists too."""
    given = [t for a in args[1:] for t in (a if isinstance(a, list | tuple) else [a]) if isinstance(t, torch.Tensor)]
    return sum(t.numel() for t in given if t.dim() == 2 and t.is_floating_point())


def _rnn(args: Any, _result: Any) -> int:
    """Recurrent layers: 2 FLOPs for each weight, step and row of the batch. The first argument is the input, with features last."""
    return int(2 * args[0].numel() // max(args[0].shape[-1], 1) * _weights(args))


def _rnn_backward(args: Any, result: Any) -> int:
    """The gradients of the input and of the weights, each as much as the layer itself."""
    return 2 * _rnn(args, result)


def _attention_layer(args: Any, result: Any) -> int:
    """Projections, and what comes behind them in an encoder's layer, with the attention of each row to all rows between them."""
    return int(_rnn(args, result) + 4 * args[0].numel() * args[0].shape[-2])


def _square(args: Any, _result: Any) -> int:
    """Functions and decompositions of a matrix: at least a product's work, 2 FLOPs for every element and column."""
    return int(2 * args[0].numel() * args[0].shape[-1])


def _least_squares(args: Any, result: Any) -> int:
    """A decomposition, and the solution for every right side."""
    return int(_square(args, result) + 2 * _first(result).numel() * args[0].shape[-2])


def _fourier(args: Any, _result: Any) -> int:
    """Fast Fourier transforms: 5 n log2 n."""
    points = math.prod(args[0].shape[d] for d in args[1])
    return int(5 * args[0].numel() * max(math.log2(max(points, 1)), 1))


def _weight_last(args: Any, _result: Any) -> int:
    """Products with a weight of [out, in]."""
    return int(2 * args[0].numel() * args[1].shape[0])


def _packed_weight(args: Any, result: Any) -> int:
    """Products with a weight whose shape says little: every feature that comes out takes all that go in."""
    return int(2 * args[0].numel() * _first(result).shape[-1])


def _columns(args: Any, _result: Any) -> int:
    """Products with a matrix of [in, out]."""
    return int(2 * args[0].numel() * args[1].shape[-1])


def _rows_of(dense: int) -> Callable[[Any, Any], int]:
    """Products with a dense matrix of [in, out] at this place, where the other is packed."""
    return lambda args, result: int(2 * result.numel() * args[dense].shape[-2])


def _all_pairs(args: Any, result: Any) -> int:
    """Something of every row with every row of another matrix."""
    return int(2 * result.numel() * args[0].shape[-1])


def _trilinear(args: Any, _result: Any) -> int:
    """2 FLOPs for each combination of all indices. A list for each operand has the dimensions in which it is repeated."""
    shapes = []
    for operand, repeated in zip(args[:3], args[3:6], strict=True):
        sizes = list(operand.shape)
        for dimension in sorted(repeated):
            sizes.insert(dimension, 1)
        shapes.append(sizes)
    return int(2 * math.prod(torch.broadcast_shapes(*shapes)))


def _solved(square: int, each: int) -> Callable[[Any, Any], int]:
    """Substitution in the matrix at this place: ``each`` FLOPs for every element of the solution and row of the matrix. The solution is
    what counts: right sides are repeated for many matrices."""
    return lambda args, result: int(each * _first(result).numel() * args[square].shape[-1])


def _bags(args: Any, _result: Any) -> int:
    """The rows that indices choose, with a weight each."""
    return int(2 * args[1].numel() * args[0].shape[1])


def _window_at_each(args: Any, result: Any) -> int:
    """A convolution backward with kernels of (out, in, window): two products, each of the size of the one forward."""
    gradient, _, weight = args[:3]
    return int(4 * gradient.numel() * weight.numel() // weight.shape[0])


_OWN_FORMULAS: dict[str, Callable[[Any, Any], int]] = {
    **dict.fromkeys(("mv", "dot", "vdot", "addmv"), _vector_product),
    **dict.fromkeys(("_cudnn_rnn", "miopen_rnn", "mkldnn_rnn_layer", "lstm", "gru", "rnn_tanh", "rnn_relu"), _rnn),
    **dict.fromkeys(("_cudnn_rnn_backward", "miopen_rnn_backward", "mkldnn_rnn_layer_backward"), _rnn_backward),
    **dict.fromkeys(("_native_multi_head_attention", "_triton_multi_head_attention", "_transformer_encoder_layer_fwd"), _attention_layer),
    **dict.fromkeys((
        "linear", "mkldnn_linear", "_mixed_dtypes_linear", "_weight_int8pack_mm", "fbgemm_linear_int8_weight", "mkldnn._linear_pointwise",
    ), _weight_last),
    **dict.fromkeys((
        "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros", "_dyn_quant_matmul_4bit",
        "fbgemm_linear_int8_weight_fp32_activation", "fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation",
        "_wrapped_quantized_linear_prepacked", "_sparse_semi_structured_linear",
    ), _packed_weight),
    **dict.fromkeys(("_int_mm", "_grouped_mm", "_scaled_grouped_mm", "_sparse_mm", "_sparse_sparse_matmul"), _columns),
    "_sparse_addmm": lambda args, result: 2 * args[1].numel() * args[2].shape[-1],
    "_cslt_sparse_mm": _rows_of(1), "_sparse_semi_structured_mm": _rows_of(2), "_sparse_semi_structured_addmm": _rows_of(3),
    "_trilinear": _trilinear,
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), _fourier),
    **dict.fromkeys((
        "linalg_matrix_exp", "linalg_cholesky_ex", "cholesky", "cholesky_inverse", "linalg_lu", "linalg_lu_factor_ex",
        "linalg_ldl_factor_ex", "linalg_qr", "geqrf", "orgqr", "linalg_householder_product", "_linalg_svd", "linalg_eig",
        "_linalg_eigh", "_linalg_eigvals", "_linalg_det", "_linalg_slogdet", "linalg_pinv",
    ), _square),
    "linalg_lstsq": _least_squares,
    "ormqr": lambda args, result: 2 * args[2].numel() * args[0].shape[-1],
    "_euclidean_dist": _all_pairs, "_cdist_forward": _all_pairs,
    "_pdist_forward": lambda args, result: args[0].numel() * args[0].shape[0],
    "_pdist_backward": lambda args, result: 2 * args[1].numel() * args[1].shape[0],
    "_cdist_backward": lambda args, result: 2 * args[0].numel() * args[1].shape[-1],
    "ger": lambda args, result: 2 * args[0].numel() * args[1].numel(),
    "addr": lambda args, result: 2 * args[1].numel() * args[2].numel(),
    # operators as which a matrix product can be written
    "linalg_solve_triangular": _solved(0, 1), "triangular_solve": _solved(1, 1), "cholesky_solve": _solved(1, 2),
    "_cholesky_solve_helper": _solved(1, 2), "linalg_ldl_solve": _solved(0, 2), "linalg_lu_solve": _solved(0, 2),
    "_linalg_solve_ex": _solved(0, 2), "linalg_inv_ex": _solved(0, 2),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_backward", "_embedding_bag_dense_backward"), _bags),
    "_embedding_bag_per_sample_weights_backward": lambda args, result: 2 * args[2].numel() * args[0].shape[1],
    "_scaled_dot_product_flash_attention_for_cpu": lambda args, result: 4 * math.prod(args[0].shape) * args[1].shape[-2],
    "_scaled_dot_product_attention_math_for_mps": lambda args, result: 4 * math.prod(args[0].shape) * args[1].shape[-2],
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda args, result: 10 * math.prod(args[1].shape) * args[2].shape[-2],
    "conv_tbc": lambda args, result: 2 * result.numel() * args[1].shape[0] * args[1].shape[1],
    "_slow_conv2d_backward": _window_at_each,
    "mkldnn._convolution_pointwise": lambda args, result: 2 * args[0].numel() * args[1].numel() // args[1].shape[1],
}  # fmt: skip
