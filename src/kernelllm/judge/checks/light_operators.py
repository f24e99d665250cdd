"""Lists torch's operators that are known to be light: a few operations for each element of their largest operand or result.

Every other operator that computes may be a matrix product in disguise, and is charged as one. So this is a list of what is known,
and an operator that a later version of torch brings is not in it until someone has looked at it.
"""

from __future__ import annotations

_ELEMENTWISE = """
abs absolute acos acosh add addcdiv addcmul airy_ai angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 bessel_y0 bessel_y1 bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor cbrt ceil celu chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w
clamp clamp_max clamp_min complex conj conj_physical copysign cos cosh deg2rad dequantize digamma div divide elu entr eq erf erf_inv erfc
erfcx erfinv exp exp2 expit expm1 floor floor_divide fmax fmin fmod frac frexp gcd ge gelu glu greater greater_equal gt hardshrink
hardsigmoid hardswish hardtanh heaviside hermite_polynomial_h hermite_polynomial_he hypot i0 i0e i1 i1e igamma igammac isfinite isin isinf
isnan isneginf isposinf laguerre_polynomial_l lcm ldexp le leaky_relu legendre_polynomial_p lerp less less_equal lgamma log log10 log1p log2
log_ndtr log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt maximum maximum_value minimum
minimum_value mish modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 mul multiply mvlgamma nan_to_num ndtr ndtri
ne neg negative nextafter not_equal polar polygamma positive pow powsum rad2deg reciprocal remainder round rrelu_with_noise
rrelu_with_noise_functional rsqrt rsub scaled_modified_bessel_k0 scaled_modified_bessel_k1 sgn shift_left shift_right_arithmetic
shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sigmoid sign
signbit silu sin sinc sinh softplus softshrink spherical_bessel_j0 sqrt square sub subtract tan tanh true_divide trunc where xlog1py xlogy
zeta __and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__ _add_relu
_amp_foreach_non_finite_check_and_unscale _amp_update_scale _conj_physical _masked_scale _neg_view _prelu_kernel
"""
_LOSSES = """
binary_cross_entropy binary_cross_entropy_with_logits huber_loss l1_loss miopen_ctc_loss mse_loss multi_margin_loss nll_loss2d_forward
nll_loss_forward smooth_l1_loss soft_margin_loss _ctc_loss _cudnn_ctc_loss
"""
_GRADIENTS_ELEMENT_BY_ELEMENT = """
binary_cross_entropy_backward elu_backward gelu_backward glu_backward glu_backward_jvp glu_jvp hardshrink_backward hardsigmoid_backward
hardswish_backward hardtanh_backward huber_loss_backward leaky_relu_backward log_sigmoid_backward logit_backward mish_backward
mse_loss_backward multi_margin_loss_backward native_dropout_backward nll_loss2d_backward nll_loss_backward rrelu_with_noise_backward
sigmoid_backward silu_backward smooth_l1_loss_backward soft_margin_loss_backward softplus_backward softshrink_backward tanh_backward
threshold_backward _dirichlet_grad _prelu_kernel_backward _standard_gamma_grad
"""
_GRADIENTS_THAT_SUM = """
batch_norm_backward batch_norm_backward_elemt batch_norm_backward_reduce cudnn_affine_grid_generator_backward cudnn_batch_norm_backward
cudnn_grid_sampler_backward grid_sampler_2d_backward grid_sampler_3d_backward miopen_batch_norm_backward native_batch_norm_backward
native_group_norm_backward native_layer_norm_backward _ctc_loss_backward _fake_quantize_learnable_per_channel_affine_backward
_fake_quantize_learnable_per_tensor_affine_backward _fused_rms_norm_backward _grid_sampler_2d_cpu_fallback_backward
_log_softmax_backward_data _masked_softmax_backward _segment_reduce_backward _softmax_backward_data _sparse_log_softmax_backward_data
_sparse_softmax_backward_data _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell_backward_impl _weight_norm_interface_backward
"""
_GRADIENTS_OF_MOVES = """
adaptive_avg_pool3d_backward adaptive_max_pool2d_backward adaptive_max_pool3d_backward avg_pool2d_backward avg_pool3d_backward
diagonal_backward embedding_dense_backward fractional_max_pool2d_backward fractional_max_pool3d_backward masked_scatter_backward
max_pool2d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward mkldnn_adaptive_avg_pool2d_backward
mkldnn_max_pool2d_backward mkldnn_max_pool3d_backward reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward select_backward slice_backward unfold_backward
upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_linear1d_backward upsample_nearest1d_backward upsample_nearest2d_backward
upsample_nearest3d_backward upsample_trilinear3d_backward _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward
_nested_select_backward _nested_sum_backward _sparse_sum_backward _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa_backward
_upsample_lanczos2d_aa_backward _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
"""
_REDUCTIONS = """
all allclose amax amin aminmax any argmax argmin batch_norm_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts
batch_norm_stats batch_norm_update_stats count_nonzero cummax cummin cumprod cumsum dist embedding_renorm hash_tensor linalg__powsum
linalg_cross linalg_vector_norm logcumsumexp logsumexp max mean median min miopen_batch_norm mode nanmedian nansum native_norm norm prod
quantized_batch_norm renorm segment_reduce std std_mean sum trace var var_mean xor_sum _aminmax _batch_norm_no_update
_batch_norm_with_update_functional _cummax_helper _cummin_helper _is_all_true _is_any_true _linalg_check_errors _logcumsumexp
_masked_softmax _nested_tensor_softmax_with_shape _sparse_csr_prod _sparse_csr_sum _sparse_log_softmax _sparse_softmax _sparse_sum
_weight_norm_interface
"""
_SORTS_AND_COUNTS = """
bincount bucketize histc histogram kthvalue nonzero nonzero_static searchsorted sort topk unique_consecutive unique_dim
unique_dim_consecutive _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors _unique _unique2
"""
_POOLS_AND_SAMPLES = """
adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d affine_grid_generator col2im cudnn_affine_grid_generator cudnn_grid_sampler
fractional_max_pool2d fractional_max_pool3d grid_sampler_2d grid_sampler_3d max_unpool2d max_unpool3d mkldnn_adaptive_avg_pool2d
mkldnn_max_pool3d quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d upsample_bicubic2d upsample_bilinear2d upsample_linear1d
upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d _grid_sampler_2d_cpu_fallback _thnn_fused_gru_cell
_thnn_fused_lstm_cell _transform_bias_rescale_qkv _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
"""
_RANDOM = """
binomial cauchy exponential geometric log_normal multinomial native_dropout normal normal_functional poisson randint_like random randperm
uniform _cudnn_init_dropout_state _fill_mem_eff_dropout_mask _fused_dropout _philox_key_fold_in _philox_key_split _philox_normal
_philox_uniform _sample_dirichlet _standard_gamma
"""
_PUTS_ELSEWHERE = """
alias as_strided as_strided_scatter clone collapse copy detach diagonal_copy expand index_add index_fill index_reduce lu_unpack
masked_scatter masked_select mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight narrow permute put resize resize_as rev scatter
scatter_add scatter_reduce select set slice slice_inverse split split_with_sizes squeeze t take to_mkldnn to_padded_tensor transpose tril
triu unbind unfold unsafe_split unsafe_split_with_sizes unsqueeze view view_as_complex view_as_real zero _chunk_cat _conj _copy_from
_copy_from_and_resize _index_add_impl _index_put_impl _jagged_to_padded_dense_forward _lazy_clone _mkldnn_reshape _mkldnn_transpose
_nested_compute_contiguous_strides_offsets _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor
_nested_get_jagged_dummy _nested_get_lengths _nested_get_max_seqlen _nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx
_nested_get_values _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list _nested_tensor_size
_nested_tensor_storage_offsets _nested_tensor_strides _nested_view_from_buffer _nested_view_from_jagged _pack_padded_sequence
_padded_dense_to_jagged_forward _reshape _reshape_alias _resize_output _stack _to_dense _unsafe_index _unsafe_index_put
_unsafe_masked_index _unsafe_masked_index_put_accumulate
"""
_SPARSE = """
ccol_indices col_indices copy_sparse_to_sparse crow_indices dense_dim indices is_coalesced resize_as_sparse row_indices
sparse_compressed_tensor sparse_coo_tensor sparse_dim sparse_mask sparse_resize sparse_resize_and_clear values _coalesce _coalesced
_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _dimI _dimV _indices _nnz _sparse_broadcast_to
_sparse_compressed_tensor_with_dims _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors _sparse_mask_projection _spdiags
_to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr _validate_compressed_sparse_indices _values
"""
_QUANTISES = """
fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask int_repr q_per_channel_axis q_per_channel_scales
q_per_channel_zero_points q_scale q_zero_point qscheme quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic
_convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _cslt_compress _cslt_sparse_mm_search _dyn_quant_pack_4bit_weight
_empty_affine_quantized _empty_per_channel_affine_quantized _fake_quantize_learnable_per_channel_affine
_fake_quantize_learnable_per_tensor_affine _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_moving_avg_obs_fq_helper
_fused_moving_avg_obs_fq_helper_functional _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor
"""
_BOOKKEEPING = """
bartlett_window blackman_window fft_fftfreq fft_rfftfreq from_file hamming_window hann_window is_set_to kaiser_window logspace range
sym_constrain_range sym_constrain_range_for_size tril_indices triu_indices view_of_dtype _assert_scalar _cudnn_rnn_flatten_weight
_efficientzerotensor _functional_assert_async _functional_assert_scalar _functional_sym_constrain_range
_functional_sym_constrain_range_for_size _fused_adagrad _fused_adam _fused_adamw _fused_sdp_choice _fused_sgd _fw_primal
_has_same_storage_numel _make_dep_token _make_dual _make_token _new_zeros_with_same_feature_meta _print _sink_tokens _use_cudnn_ctc_loss
_use_miopen_ctc_loss
"""

_LIGHT = frozenset(
    " ".join((
        _ELEMENTWISE, _LOSSES, _GRADIENTS_ELEMENT_BY_ELEMENT, _GRADIENTS_THAT_SUM, _GRADIENTS_OF_MOVES, _REDUCTIONS, _SORTS_AND_COUNTS,
        _POOLS_AND_SAMPLES, _RANDOM, _PUTS_ELSEWHERE, _SPARSE, _QUANTISES, _BOOKKEEPING,
    )).split()
)  # fmt: skip
WEIGHTS = {
    "norm": 6, "batch norm": 6, "softmax": 5, "log softmax": 5, "logsumexp": 3, "var": 3, "std": 3, "var_mean": 3, "std_mean": 3,
    "addcmul": 2, "addcdiv": 2, "lerp": 2, "sigmoid": 4, "tanh": 6, "silu": 5, "glu": 5, "gelu": 5, "mish": 10, "softplus": 3,
    "log_sigmoid_forward": 3, "elu": 3, "selu": 3, "celu": 3, "hardswish": 4, "hardsigmoid": 3, "hardtanh": 2, "clamp": 2, "hardshrink": 3,
    "softshrink": 3, "mse_loss": 3, "l1_loss": 3, "smooth_l1_loss": 5, "huber_loss": 5, "binary_cross_entropy": 6,
    "binary_cross_entropy_with_logits": 8, "_fused_adam": 14, "_fused_adamw": 14, "_fused_sgd": 4, "_fused_adagrad": 6,
    # what multiplies two operands and adds up, in one operator
    "linalg_cross": 3, "dist": 3, "_ctc_loss": 4, "affine_grid_generator": 6, "cudnn_affine_grid_generator": 6, "grid_sampler_2d": 8,
    "grid_sampler_3d": 16, "_grid_sampler_2d_cpu_fallback": 8, "cudnn_grid_sampler": 8, "_masked_softmax": 5, "_sparse_softmax": 5,
    "_sparse_log_softmax": 5, "_nested_tensor_softmax_with_shape": 5, "_weight_norm_interface": 4, "batch_norm_elemt": 4,
    "_batch_norm_no_update": 6, "_batch_norm_with_update_functional": 6, "_logcumsumexp": 3, "logcumsumexp": 3, "logaddexp": 3,
    "logaddexp2": 3, "hypot": 4, "mse_loss_backward": 3, "binary_cross_entropy_backward": 4, "_transform_bias_rescale_qkv": 2,
    "recurrent": 6, "_thnn_fused_gru_cell": 6, "_thnn_fused_lstm_cell": 6, **dict.fromkeys(_GRADIENTS_THAT_SUM.split(), 8),
    "_softmax_backward_data": 4, "_log_softmax_backward_data": 4, "_masked_softmax_backward": 4, "_sparse_softmax_backward_data": 4,
    "_sparse_log_softmax_backward_data": 4, "_segment_reduce_backward": 3, "grid_sampler_2d_backward": 16, "grid_sampler_3d_backward": 32,
    "_grid_sampler_2d_cpu_fallback_backward": 16, "cudnn_grid_sampler_backward": 16,
}  # fmt: skip
"""Operations of a family or of an operator for each element, as many as it has where it is written with others; 1 where not named."""
_MULTIPLIES = frozenset((
    "mul", "multiply", "div", "divide", "true_divide", "addcmul", "addcdiv", "lerp", "prod", "cumprod", "pow", "square", "reciprocal",
    "linalg_cross",
))  # fmt: skip
_OF_COMPLEX = 3
"""A product of two complex numbers is six operations, of which a sum has two."""


def plain(base: str) -> str:
    """``_foreach_add_``, ``special_expit`` and ``expand_copy`` to the operator that they are forms of."""
    return base.rstrip("_").removeprefix("_foreach_").removeprefix("special_").removesuffix("_copy") if base[-2:] != "__" else base


def known_light(base: str) -> bool:
    """Whether the operator of this name, without namespace and overload, does a few operations for each element."""
    return base in _LIGHT or base.rstrip("_") in _LIGHT or plain(base) in _LIGHT


def as_complex(base: str) -> int:
    """How many times as much an operator does for each part of a complex number as for a real one."""
    return _OF_COMPLEX if plain(base) in _MULTIPLIES else 1
