"""Sorts torch's operators by what they do: free (allocation, views, copies), moving, or computing something, by family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from kernelllm.judge.checks.light_operators import WEIGHTS, known_light, plain

_FREE = frozenset((
    "_assert_async", "_assert_tensor_metadata", "_conj", "_has_compatible_shallow_copy_type", "_local_scalar_dense", "_pin_memory",
    "_record_function_enter_new", "_record_function_exit", "_reshape_alias", "_to_copy", "_to_cpu", "_unsafe_view", "_version", "alias",
    "arange", "as_strided", "as_strided_", "bernoulli", "bernoulli_", "broadcast_to", "chunk", "clone", "contiguous", "copy", "copy_",
    "data_ptr", "detach", "detach_", "device", "diagonal", "dtype", "empty", "empty_like", "empty_permuted", "empty_quantized",
    "empty_strided", "equal", "expand", "expand_as", "eye", "fill", "fill_", "flatten", "full", "full_like", "imag", "is_contiguous",
    "is_nonzero", "is_pinned", "is_same_size", "item", "lift", "lift_fresh", "lift_fresh_copy", "linspace", "movedim", "narrow",
    "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "normal_", "numel", "ones", "ones_like", "permute",
    "pin_memory", "profiler", "rand", "rand_like", "randint", "randn", "randn_like", "random_", "real", "record_stream",
    "requires_grad_", "reshape", "resize_", "resolve_conj", "resolve_neg", "scalar_tensor", "seed", "select", "set_", "set_data",
    "size", "slice", "split", "split_with_sizes", "squeeze", "squeeze_", "stride", "swapaxes", "sym_numel", "sym_size",
    "sym_storage_offset", "sym_stride", "t", "t_", "tensor_split", "to", "transpose", "transpose_", "unbind", "unflatten", "unfold",
    "uniform_", "unsqueeze", "unsqueeze_", "view", "view_as", "view_as_complex", "view_as_real", "zero", "zero_", "zeros", "zeros_like",
    "broadcast_in_dim", "convert_element_type", "device_put", "view_of", "view_element_type", "collapse_view", "split_dim", "copy_to",
    "iota", "copy_strided", "shallow_copy",
))  # fmt: skip
"""Allocation, views, copies, casts, random numbers."""
_MOVES = frozenset((
    "block_diag", "cat", "channel_shuffle", "concat", "constant_pad_nd", "diag_embed", "diagonal_scatter", "embedding", "flip",
    "gather", "hstack", "im2col", "index", "index_copy", "index_copy_", "index_put", "index_put_", "index_select", "masked_fill",
    "masked_fill_", "one_hot", "pad", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "repeat", "repeat_interleave", "replication_pad1d", "replication_pad2d", "replication_pad3d", "roll", "rot90", "select_scatter",
    "slice_scatter", "stack", "tile", "tril", "triu", "vstack",
))  # fmt: skip
"""Elements move, none is computed."""
_MEMBERS: dict[str, tuple[str, ...]] = {
    "matmul": (
        "mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "mv", "addmv", "matmul", "linear", "dot", "vdot", "inner", "einsum",
        "tensordot", "addbmm", "chain_matmul", "_scaled_mm", "mkldnn_linear", "_int_mm", "ger", "outer", "addr", "_addmm_activation",
        "_scaled_mm_v2", "_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", "_foreach_mm", "_weight_int8pack_mm",
        "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros", "_dyn_quant_matmul_4bit",
        "_mixed_dtypes_linear", "_sparse_mm", "_sparse_addmm", "_sparse_sparse_matmul", "_sparse_mm_reduce_impl", "sparse_sampled_addmm",
        "smm", "sspaddmm", "hspmm", "_cslt_sparse_mm", "_sparse_semi_structured_mm", "_sparse_semi_structured_addmm",
        "_sparse_semi_structured_linear", "fbgemm_linear_int8_weight", "fbgemm_linear_int8_weight_fp32_activation",
        "fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation", "_wrapped_quantized_linear_prepacked", "_trilinear",
        "bilinear", "linalg_multi_dot", "linalg_matmul", "linalg_vecdot", "matrix_power", "linalg_matrix_power", "kron", "cov", "corrcoef",
        "_compute_linear_combination", "matmul_backward", "linear_backward", "mkldnn_linear_backward", "mkldnn_linear_backward_input",
        "mkldnn_linear_backward_weights", "baddbmm", "_embedding_bag", "_embedding_bag_forward_only", "embedding_bag", "linear_pointwise",
        "_linear_pointwise",
    ),
    "matrix function": (
        "linalg_matrix_exp", "matrix_exp", "linalg_inv", "linalg_inv_ex", "inverse", "linalg_pinv", "pinverse", "linalg_solve",
        "linalg_solve_ex", "_linalg_solve_ex", "linalg_solve_triangular", "triangular_solve", "_spsolve", "cholesky_solve",
        "_cholesky_solve_helper", "cholesky_inverse", "cholesky", "linalg_cholesky", "linalg_cholesky_ex", "linalg_lu", "linalg_lu_factor",
        "linalg_lu_factor_ex", "linalg_lu_solve", "lu_solve", "lu_unpack", "_lu_with_info", "linalg_ldl_factor", "linalg_ldl_factor_ex",
        "linalg_ldl_solve", "linalg_lstsq", "linalg_qr", "qr", "geqrf", "orgqr", "ormqr", "linalg_householder_product", "linalg_svd",
        "_linalg_svd", "svd", "linalg_svdvals", "linalg_eig", "linalg_eigh", "_linalg_eigh", "linalg_eigvals", "_linalg_eigvals",
        "linalg_eigvalsh", "linalg_det", "_linalg_det", "det", "linalg_slogdet", "_linalg_slogdet", "slogdet", "logdet",
        "linalg_tensorinv", "linalg_tensorsolve", "linalg_matrix_rank", "linalg_cond", "nuclear_norm",
    ),
    "distance": (
        "cdist", "_cdist_forward", "_cdist_backward", "_euclidean_dist", "pdist", "_pdist_forward", "_pdist_backward",
    ),
    "fourier": (
        "_fft_c2c", "_fft_c2r", "_fft_r2c", "stft", "istft",
        *(f"fft_{kind}{n}" for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for n in ("", "2", "n")),
    ),
    "convolution": (
        "convolution", "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "mkldnn_convolution", "cudnn_convolution", "_convolution_overrideable", "slow_conv3d", "thnn_conv2d", "conv_depthwise3d",
        "_conv_depthwise2d", "conv_tbc", "convolution_overrideable", "cudnn_convolution_relu", "cudnn_convolution_add_relu",
        "cudnn_convolution_transpose", "_mps_convolution", "_mps_convolution_transpose", "_nnpack_spatial_convolution",
        "_slow_conv2d_forward", "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d", "slow_conv_transpose2d",
        "slow_conv_transpose3d", "miopen_convolution", "miopen_convolution_transpose", "miopen_convolution_relu",
        "miopen_convolution_add_relu", "miopen_depthwise_convolution", "convolution_backward", "convolution_backward_overrideable",
        "_convolution_double_backward", "convolution_pointwise", "_convolution_pointwise", "_convolution_transpose_pointwise",
    ),
    "attention": (
        "scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math",
        "_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward", "_native_multi_head_attention",
        "_flash_attention_forward_no_dropout_inplace", "_transformer_encoder_layer_fwd", "_triton_scaled_dot_attention",
        "_triton_multi_head_attention", "_scaled_dot_product_fused_attention_overrideable", "_scaled_dot_product_attention_math_for_mps",
        "_flash_attention_backward", "_efficient_attention_backward", "_cudnn_attention_backward",
    ),
    "recurrent": (
        "lstm", "gru", "rnn_tanh", "rnn_relu", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "mkldnn_rnn_layer", "_cudnn_rnn",
        "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "miopen_rnn", "_lstm_mps", "quantized_lstm", "quantized_gru",
        "quantized_lstm_cell", "quantized_gru_cell", "quantized_rnn_relu_cell", "quantized_rnn_tanh_cell",
    ),
    "norm": (
        "native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm", "native_group_norm", "group_norm",
    ),
    "batch norm": (
        "native_batch_norm", "batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm",
        "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional",
    ),
    "softmax": (
        "_softmax", "softmax", "_softmax_", "_safe_softmax",
    ),
    "log softmax": (
        "_log_softmax", "log_softmax",
    ),
    "relu": (
        "relu", "relu_", "clamp_min", "clamp_min_", "threshold", "threshold_",
    ),
    "max pooling": (
        "max_pool2d_with_indices", "max_pool2d", "max_pool1d", "max_pool3d", "max_pool3d_with_indices", "mkldnn_max_pool2d",
        "_adaptive_max_pool2d",
    ),
    "average pooling": (
        "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "adaptive_avg_pool1d", "_adaptive_avg_pool3d",
        "adaptive_avg_pool2d",
    ),
}  # fmt: skip
LIGHT = "elements"
"""Among the counts of operators: elements that all but the heavy ones computed, as :func:`weight` counts them."""
MOVED = "moved"
"""Among the counts of operators: elements that were put elsewhere, where nothing is computed."""
ON_THE_HOST = "numbers"
"""Among the counts of operators: elements of tensors that became numbers or arrays of Python's, floating-point ones above all."""
UNLISTED = "unlisted "
"""Among the counts of operators, with a name behind it: the most FLOPs of an operator that is not known to be light."""
_WRITES_A_NUMBER = ("fill_", "full", "scalar_tensor", "lift_fresh", "index_put_", "masked_fill_", "new_full", "full_like")
_LIBRARIES = {"aten", "prims", "mkldnn", "quantized", "onednn", "fbgemm", "xnnpack", "inductor"}
_OTHERS = {"prim", "profiler", "rngprims", "higher_order", "_c10d_functional", "c10d", "debugprims", "static_runtime", "cuda"}
HEAVY = {"matmul", "convolution", "attention", "recurrent", "matrix function", "distance", "fourier"}
"""Families whose work is counted in FLOPs."""
_FAMILIES = {member: family for family, members in _MEMBERS.items() for member in members}
_SEVERAL = {"_transformer_encoder_layer_fwd": ("attention", "matmul", "norm")}
"""Operators that are several families at once: whoever leaves one of these to torch does not leave all of it."""


def operator(name: str) -> str:
    """``aten.add_.Tensor`` to ``add_``: an operator's name without namespace and overload."""
    parts = name.replace("::", ".").split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def family(name: str) -> str:
    """What an operator does, whichever entry of torch did it: ``aten.addmm.default`` and ``aten.bmm.default`` give ``matmul``."""
    base = operator(name)
    return _FAMILIES.get(base) or _FAMILIES.get(base.rstrip("_")) or base.rstrip("_")


def computing(ops: dict[str, int]) -> dict[str, int]:
    """Operators of a run that compute something, by family, with counts."""
    found: dict[str, int] = {}
    for name, count in ops.items():
        if namespace(name) in _LIBRARIES and operator(name) not in _FREE | _MOVES:
            for part in _SEVERAL.get(operator(name), (family(name),)):
                found[part] = found.get(part, 0) + count
    return found


def moving(ops: Mapping[str, int]) -> dict[str, int]:
    """Operators of a run that move elements, or may do so as they copy, with counts."""
    return {operator(name): count for name, count in ops.items() if moves(name) or operator(name) in ("clone", "copy_", "_to_copy")}


def coverage(
    ops: Mapping[str, float], flops: Mapping[str, float], reference_ops: Mapping[str, float], reference_flops: Mapping[str, float]
) -> float | None:
    """Share of the reference's work that was not left to torch, of one run; None where the reference does nothing.

    The work is the FLOPs of its heavy operators, which can be written with others as well; where it has none, what all others compute;
    where nothing is computed, what is moved. An operator that is not known to be light counts as the largest product of its operands,
    but for what the reference does by it as well.
    """
    heavy, light, own = sum(reference_flops.values()), ops.get(LIGHT, 0), reference_ops.get(LIGHT, 0)
    left = sum(v for v in flops.values() if v > 0) + (max(light - own, 0) if heavy > 0 else light)
    left += sum(max(ops[name] - reference_ops.get(name, 0), 0) for name in ops if name.startswith(UNLISTED))
    left, work = (left, heavy or own) if heavy > 0 or own > 0 else (ops.get(MOVED, 0), reference_ops.get(MOVED, 0))
    return max(0.0, 1.0 - left / work) if work > 0 else None


@lru_cache(maxsize=2**12)
def free(name: str) -> bool:
    """Whether an operator of torch's allocates, views, copies or casts, or draws random numbers."""
    return namespace(name) not in _LIBRARIES or operator(name) in _FREE


@lru_cache(maxsize=2**12)
def moves(name: str) -> bool:
    """Whether an operator of torch's moves elements and computes none."""
    return namespace(name) in _LIBRARIES and operator(name) in _MOVES


@lru_cache(maxsize=2**12)
def weight(name: str) -> int:
    """Operations of an operator that is not heavy for each element of its largest operand or result; 0 where it computes nothing."""
    base = operator(name)
    if namespace(name) not in _LIBRARIES or base in _FREE | _MOVES:
        return 0
    return WEIGHTS.get(family(name)) or WEIGHTS.get(base.rstrip("_")) or WEIGHTS.get(plain(base), 1)


@lru_cache(maxsize=2**12)
def heavy(name: str) -> bool:
    """Whether an operator of torch's is known to be heavy: its work is never 0."""
    return namespace(name) in _LIBRARIES and family(name) in HEAVY and not known_light(operator(name))


@lru_cache(maxsize=2**12)
def unlisted(name: str) -> bool:
    """Whether an operator of torch's computes something, and is neither known to be heavy nor to be light."""
    base = operator(name)
    return bool(weight(name)) and not (base in _FAMILIES or base.rstrip("_") in _FAMILIES or known_light(base))


def number_by_number(ops: dict[str, int]) -> int:
    """How many values were both read as numbers of Python (``item``) and written from such (``y[i] = 1.0``, ``fill_``)."""
    count = Counter[str]()
    for name, times in ops.items():
        count[operator(name)] += times
    return min(count["_local_scalar_dense"] + count["item"], sum(count[name] for name in _WRITES_A_NUMBER))


def unknown(ops: dict[str, int]) -> list[str]:
    """Operators that torch did not bring, or of a library beside aten of which nothing is known: what they do inside cannot be counted."""
    return sorted(name for name in ops if name.count(".") > 1 and not (_counted(name) or namespace(name) in _OTHERS))


def _counted(name: str) -> bool:
    base = operator(name)
    return namespace(name) in ("aten", "prims") or (namespace(name) in _LIBRARIES and (base in _FAMILIES or base in _FREE | _MOVES))


def namespace(name: str) -> str:
    """``aten.mm.default`` to ``aten``."""
    return name.replace("::", ".").partition(".")[0]
