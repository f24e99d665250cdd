"""Custom operators ``kernelllm::<name>`` that stand for the template host functions in graphs and on Inductor's host side.

Each has the name and signature of a function in ``templates/``. They have fake implementations only: nothing runs
them; the emitter writes a call of the function itself. Every output is a new contiguous tensor, but for attention's, in which the
dimensions of heads and queries are swapped, ``padded_mm``'s, whose rows are aligned, and ``conv_relu``'s: channels last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from kernelllm.compiler import template_gradients
from kernelllm.compiler.capture.decompositions import plain_rules
from kernelllm.compiler.capture.derived_sizes import named, pooled

_RNN = "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
SCHEMAS: dict[str, str] = {
    "matmul": '(Tensor a, Tensor b, Tensor? bias=None, bool allow_tf32=False, str activation="", Tensor? other=None, str join="") '
    "-> Tensor",
    "int8_matmul": "(Tensor a, Tensor b) -> Tensor",
    "wide_matmul": "(Tensor a, Tensor b, Tensor? bias=None) -> Tensor",
    "half_matmul": '(Tensor a, Tensor b, Tensor? bias=None, bool allow_tf32=False, str activation="", Tensor? other=None, str join="") '
    "-> Tensor",
    "quantized_matmul": "(Tensor a, Tensor b, Tensor? scale=None, Tensor? bias=None, Tensor? zero=None, float offset=0.0, "
    "bool nibbles=False) -> Tensor",
    "padded_mm": "(Tensor a, Tensor b) -> Tensor",
    "conv_relu": "(Tensor x, Tensor weight, Tensor bias, Tensor? other, SymInt[] stride, SymInt[] padding, SymInt[] dilation) -> Tensor",
    "matmul_three": "(Tensor a, Tensor b, Tensor c, Tensor d, Tensor? b_bias=None, Tensor? c_bias=None, Tensor? d_bias=None, "
    "bool allow_tf32=False) -> (Tensor, Tensor, Tensor)",
    "half_batched_matmul": "(Tensor a, Tensor b, Tensor? bias=None, bool allow_tf32=False) -> Tensor",
    "gated_matmul": "(Tensor a, Tensor b, Tensor gate, str activation, Tensor? b_bias=None, Tensor? gate_bias=None, bool allow_tf32=False) "
    "-> Tensor",
    "addmm": "(Tensor c, Tensor a, Tensor b, float beta=1.0, float alpha=1.0, bool allow_tf32=False) -> Tensor",
    "batched_matmul": "(Tensor a, Tensor b, Tensor? bias=None, bool allow_tf32=False) -> Tensor",
    "baddbmm": "(Tensor c, Tensor a, Tensor b, float beta=1.0, float alpha=1.0, bool allow_tf32=False) -> Tensor",
    "matvec": "(Tensor a, Tensor x) -> Tensor",
    "conv": "(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups, "
    "bool allow_tf32=False) -> Tensor",
    "conv_transpose": "(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] output_padding, "
    "SymInt[] dilation, SymInt groups, bool allow_tf32=False) -> Tensor",
    "attention": "(Tensor q, Tensor k, Tensor v, Tensor? mask=None, bool is_causal=False, float? scale=None, "
    "bool allow_tf32=False, bool nan_rows=False) -> Tensor",
    "half_attention": "(Tensor q, Tensor k, Tensor v, Tensor? mask=None, bool is_causal=False, float? scale=None, "
    "bool allow_tf32=False, bool nan_rows=False) -> Tensor",
    "sink_attention": "(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor sinks, float? scale=None) -> Tensor",
    "half_attention_backward": "(Tensor q, Tensor k, Tensor v, Tensor out, Tensor grad, bool is_causal=False, float? scale=None) "
    "-> (Tensor, Tensor, Tensor)",
    "attention_with_sums": "(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> (Tensor, Tensor)",
    "attention_gradients": "(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor sums, bool is_causal=False, float? scale=None) "
    "-> (Tensor, Tensor, Tensor)",
    "rnn_tanh": f"(Tensor x, Tensor hx, {_RNN}, bool allow_tf32=False) -> (Tensor, Tensor)",
    "rnn_relu": f"(Tensor x, Tensor hx, {_RNN}, bool allow_tf32=False) -> (Tensor, Tensor)",
    "gru": f"(Tensor x, Tensor hx, {_RNN}, bool allow_tf32=False) -> (Tensor, Tensor)",
    "lstm": f"(Tensor x, Tensor[] hx, {_RNN}, bool allow_tf32=False) -> (Tensor, Tensor, Tensor)",
    "max_pool": "(Tensor x, SymInt[] kernel_size, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool ceil_mode) -> Tensor",
    "max_pool_with_indices": "(Tensor x, SymInt[] kernel_size, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool ceil_mode) "
    "-> (Tensor, Tensor)",
    "avg_pool": "(Tensor x, SymInt[] kernel_size, SymInt[] stride, SymInt[] padding, bool ceil_mode, bool count_include_pad, "
    "int? divisor_override=None) -> Tensor",
    "adaptive_avg_pool": "(Tensor x, SymInt[] output_size) -> Tensor",
    "adaptive_max_pool": "(Tensor x, SymInt[] output_size) -> (Tensor, Tensor)",
    "cumsum": "(Tensor x, int dim) -> Tensor",
    "cumprod": "(Tensor x, int dim) -> Tensor",
    "cummax": "(Tensor x, int dim) -> (Tensor, Tensor)",
    "cummin": "(Tensor x, int dim) -> (Tensor, Tensor)",
    "logcumsumexp": "(Tensor x, int dim) -> Tensor",
    "row_softmax": "(Tensor x, float scale=1.0) -> Tensor",
    "row_logsumexp": "(Tensor x, float scale=1.0) -> Tensor",
    "sort": "(Tensor x, int dim, bool descending) -> (Tensor, Tensor)",
    "topk": "(Tensor x, SymInt k, int dim, bool largest) -> (Tensor, Tensor)",
    "scatter_extreme": "(Tensor x, int dim, Tensor index, Tensor src, bool largest, bool include_self) -> Tensor",
    "bag_rows": "(Tensor weight, Tensor indices, Tensor offsets, Tensor? scales, str mode, bool last, SymInt padding) -> Tensor",
    "grid_sample": "(Tensor x, Tensor grid, str mode, str padding_mode, bool align_corners) -> Tensor",
    "grouped_matmul": "(Tensor a, Tensor b, Tensor ends, bool allow_tf32=False) -> Tensor",
    "matrix_states": "(Tensor first, Tensor? gate, Tensor k, Tensor v, Tensor? w) -> Tensor",
    "bincount": "(Tensor x, Tensor? weights, SymInt size) -> Tensor",
    "topk_long": "(Tensor x, int k, int dim, bool largest) -> (Tensor, Tensor)",
    "concat": "(Tensor a, Tensor b, int dim) -> Tensor",
    "window_gradient": "(Tensor grad, Tensor x, int[] kernel_size, int[] padding, int[] dilation) -> Tensor",
    "lu_factor": "(Tensor a, bool pivot) -> (Tensor, Tensor)",
    "ldl_factor": "(Tensor a) -> (Tensor, Tensor)",
    "permutation": "(Tensor pivots, SymInt m) -> Tensor",
    "triangular_solve": "(Tensor a, Tensor b, bool upper, bool unit) -> Tensor",
    "qr": "(Tensor a, bool complete) -> (Tensor, Tensor)",
    **plain_rules.SCHEMAS,
}

TORCH_SCHEMAS: dict[str, tuple[str, str]] = {
    "torch_scaled_dot_product_attention": (
        "torch.nn.functional.scaled_dot_product_attention",
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool is_causal, float? scale, "
        "bool enable_gqa) -> Tensor",
    ),
    "torch_conv": (
        "torch.convolution",
        "(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups) -> Tensor",
    ),
    "torch_conv_transpose": (
        "torch.convolution",
        "(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] output_padding, SymInt[] dilation, "
        "SymInt groups) -> Tensor",
    ),
    "torch_rnn_tanh": ("torch.rnn_tanh", f"(Tensor x, Tensor hx, {_RNN}) -> (Tensor, Tensor)"),
    "torch_rnn_relu": ("torch.rnn_relu", f"(Tensor x, Tensor hx, {_RNN}) -> (Tensor, Tensor)"),
    "torch_gru": ("torch.gru", f"(Tensor x, Tensor hx, {_RNN}) -> (Tensor, Tensor)"),
    "torch_lstm": ("torch.lstm", f"(Tensor x, Tensor[] hx, {_RNN}) -> (Tensor, Tensor, Tensor)"),
    "torch_ctc_loss": (
        "torch.nn.functional.ctc_loss",
        "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, str reduction, bool zero_infinity) "
        "-> Tensor",
    ),
    "torch_ctc_alphas": (
        "torch.ops.aten._ctc_loss",
        "(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, bool zero_infinity) "
        "-> (Tensor, Tensor)",
    ),
    "torch_ctc_gradient": (
        "torch.ops.aten._ctc_loss_backward",
        "(Tensor grad, Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, Tensor loss, Tensor alphas, "
        "int blank, bool zero_infinity) -> Tensor",
    ),
    "torch_contiguous": ("torch.Tensor.contiguous", "(Tensor x) -> Tensor"),
}
"""Operators for what is left to torch: what the emitter writes instead (a torch function, the same arguments in the same order), schema."""


def _matmul(a: Any, b: Any, bias: Any = None, *_: Any, **__: Any) -> Any:
    torch._check(a.shape[1] == b.shape[0])
    return a.new_empty((a.shape[0], b.shape[1]))


def _grid_sample(x: Any, grid: Any, *_: Any) -> Any:
    torch._check(x.shape[0] == grid.shape[0])
    return x.new_empty((x.shape[0], x.shape[1], grid.shape[1], grid.shape[2]))


def _matmul_three(a: Any, b: Any, c: Any, d: Any, *_: Any, **__: Any) -> Any:
    return tuple(a.new_empty((a.shape[0], weight.shape[0])) for weight in (b, c, d))


def _batched_matmul(a: Any, b: Any, bias: Any = None, *_: Any, **__: Any) -> Any:
    torch._check(a.shape[2] == b.shape[1])
    torch._check(a.shape[0] == b.shape[0])
    return a.new_empty((a.shape[0], a.shape[1], b.shape[2]))


def _conv(x: Any, weight: Any, bias: Any, stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any], groups: Any,
          allow_tf32: bool = False) -> Any:
    spatial = [
        named((size + 2 * p - d * (k - 1) - 1) // s + 1)
        for size, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    ]
    return x.new_empty((x.shape[0], weight.shape[0], *spatial))


def _conv_transpose(x: Any, weight: Any, bias: Any, stride: Sequence[Any], padding: Sequence[Any], output_padding: Sequence[Any],
                    dilation: Sequence[Any], groups: Any, allow_tf32: bool = False) -> Any:
    spatial = [
        named((size - 1) * s - 2 * p + d * (k - 1) + o + 1)
        for size, k, s, p, o, d in zip(x.shape[2:], weight.shape[2:], stride, padding, output_padding, dilation, strict=True)
    ]
    return x.new_empty((x.shape[0], weight.shape[1] * groups, *spatial))


def attended(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    batch, heads, queries, _ = q.shape
    return q.new_empty((batch, queries, heads, v.shape[-1])).transpose(1, 2)


def _torch_attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    """In torch's own order of memory where sizes are numbers, so that the file can name the strides: heads behind the length, unless the
    query has them before it, which cuDNN follows."""
    known = q.dim() == 4 and all(isinstance(n, int) for n in (*q.shape, v.shape[-1]))
    return attended(q, k, v) if known and not q.is_contiguous() else q.new_empty((*q.shape[:-1], v.shape[-1]))


def _rnn(x: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
         batch_first: bool, allow_tf32: bool = False) -> Any:
    width = hx.shape[-1] * (2 if bidirectional else 1)
    return x.new_empty((*x.shape[:-1], width)), hx.new_empty(hx.shape)


def _lstm(x: Any, hx: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
          bidirectional: bool, batch_first: bool, allow_tf32: bool = False) -> Any:
    h, c = hx
    width = h.shape[-1] * (2 if bidirectional else 1)
    return x.new_empty((*x.shape[:-1], width)), h.new_empty(h.shape), c.new_empty(c.shape)


def _pooled(x: Any, kernel: Sequence[Any], stride: Sequence[Any], padding: Sequence[Any], dilation: Sequence[Any], ceil_mode: bool) -> Any:
    n = len(kernel)
    sizes = [pooled(*each, ceil_mode) for each in zip(x.shape[-n:], kernel, padding, stride, dilation, strict=True)]
    return (*x.shape[:-n], *sizes)


def _max_pool(x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    return x.new_empty(_pooled(x, kernel_size, stride, padding, dilation, ceil_mode))


def _avg_pool(x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, *_: Any) -> Any:
    return x.new_empty(_pooled(x, kernel_size, stride, padding, [1] * len(kernel_size), ceil_mode))


def _adaptive(x: Any, output_size: Any) -> Any:
    return x.new_empty((*x.shape[: -len(output_size)], *output_size))


def _same(x: Any, *_: Any) -> Any:
    return x.new_empty(x.shape)


def _indexed(make: Callable[..., Any]) -> Callable[..., Any]:
    def fake(*args: Any) -> Any:
        out = make(*args)
        return out, out.new_empty(out.shape, dtype=torch.int64)

    return fake


def _padded_mm(a: Any, b: Any) -> Any:
    m, n = a.shape[0], b.shape[1]
    return a.new_empty_strided((m, n), (-(-n // 64) * 64, 1))


def _conv_relu(x: Any, weight: Any, bias: Any, other: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return torch.empty_like(_conv(x, weight, bias, stride, padding, dilation, 1), memory_format=torch.channels_last)


def _concat(a: Any, b: Any, dim: int) -> Any:
    shape = list(a.shape)
    shape[dim] = shape[dim] + b.shape[dim]
    return a.new_empty(shape)


def _topk(x: Any, k: Any, dim: int, largest: bool) -> Any:
    shape = list(x.shape)
    shape[dim] = k
    return x.new_empty(shape)


def _matrix_states(first: Any, gate: Any, k: Any, v: Any, w: Any) -> Any:
    if first.dtype == torch.float64 or any(x is not None and x.dtype != first.dtype for x in (k, v, w)):
        raise ValueError("the states of a loop have a dtype of their own")
    chunk, width = (n if isinstance(n, int) else n.node.hint for n in k.shape[2:])  # a state for each single row would be too many
    if (chunk is not None and not 8 <= chunk <= 128) or (width is not None and width > 256):
        raise ValueError("the states of a loop are too many or too large")
    return first.new_empty((v.shape[0] + 1, *first.shape))


def _bincount(x: Any, weights: Any, size: Any) -> Any:
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype == torch.float32 else torch.float64
    return x.new_empty((size,), dtype=dtype)


def _shorter_side(a: Any) -> Any:
    return torch.sym_min(a.shape[-2], a.shape[-1])


def _qr(a: Any, complete: bool) -> Any:
    return a.new_empty((*a.shape[:-1], a.shape[-2] if complete else _shorter_side(a))), a.new_empty(a.shape)


_FAKES: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "int8_matmul": lambda a, b: a.new_empty((a.shape[0], b.shape[1]), dtype=torch.int32),
    "wide_matmul": lambda a, b, *_: a.new_empty((a.shape[0], b.shape[1]), dtype=torch.float32),
    "half_matmul": _matmul,
    "half_batched_matmul": _batched_matmul,
    "gated_matmul": _matmul,
    "quantized_matmul": lambda a, b, *_, **__: a.new_empty((a.shape[0], b.shape[1])),
    "padded_mm": _padded_mm,
    "conv_relu": _conv_relu,
    "matmul_three": _matmul_three,
    "addmm": lambda c, a, b, *_, **__: _matmul(a, b),
    "batched_matmul": _batched_matmul,
    "baddbmm": lambda c, a, b, *_, **__: _batched_matmul(a, b),
    "matvec": lambda a, x: a.new_empty((a.shape[0],)),
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "attention": attended,
    "half_attention": attended,
    "sink_attention": attended,
    "half_attention_backward": lambda q, k, v, *_, **__: (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)),
    "attention_with_sums": lambda q, *_, **__: (torch.empty_like(q), q.new_empty((*q.shape[:3], 1), dtype=torch.float32)),
    "attention_gradients": lambda grad, q, k, v, *_, **__: tuple(map(torch.empty_like, (q, k, v))),
    "scaled_dot_product_attention": _torch_attention,
    "rnn_tanh": _rnn,
    "rnn_relu": _rnn,
    "gru": _rnn,
    "lstm": _lstm,
    "max_pool": _max_pool,
    "max_pool_with_indices": _indexed(_max_pool),
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive,
    "adaptive_max_pool": _indexed(_adaptive),
    "cumsum": _same,
    "cumprod": _same,
    "cummax": _indexed(_same),
    "cummin": _indexed(_same),
    "logcumsumexp": _same,
    "row_softmax": _same,
    "row_logsumexp": lambda x, *_: x.new_empty(x.shape[:-1], dtype=torch.float64 if x.dtype == torch.float64 else torch.float32),
    "sort": _indexed(_same),
    "topk": _indexed(_topk),
    "bag_rows": lambda weight, _, offsets, scales, mode, last, padding: weight.new_empty((offsets.shape[0] - last, weight.shape[1])),
    "grid_sample": _grid_sample,
    "grouped_matmul": lambda a, b, *_, **__: a.new_empty((a.shape[0], b.shape[2])),
    "matrix_states": _matrix_states,
    "bincount": _bincount,
    "topk_long": _indexed(_topk),
    "scatter_extreme": _same,
    "concat": _concat,
    "window_gradient": lambda grad, x, kernel_size, *_: x.new_empty((x.shape[1], 1, *kernel_size)),
    "contiguous": _same,
    "ctc_loss": lambda x, targets, lengths, *rest: x.new_empty(lengths.shape if rest[2] == "none" else ()),
    "ctc_alphas": lambda x, targets, lengths, *_: (x.new_empty(lengths.shape), x.new_empty((lengths.shape[0], x.shape[0], 2))),
    "ctc_gradient": lambda grad, x, *_: x.new_empty(x.shape),
    "lu_factor": lambda a, _: (a.new_empty(a.shape), a.new_empty((*a.shape[:-2], _shorter_side(a)), dtype=torch.int32)),
    "ldl_factor": lambda a: (a.new_empty(a.shape), a.new_empty(a.shape[:-1], dtype=torch.int32)),
    "permutation": lambda pivots, m: pivots.new_empty((*pivots.shape[:-1], m), dtype=torch.int64),
    "triangular_solve": lambda a, b, *_: b.new_empty(b.shape),
    "qr": _qr,
    **plain_rules.FAKES,
}


@cache
def register() -> Any:
    """Define the operators once in this process; returns the namespace ``torch.ops.kernelllm``."""
    # CUDA-only fake kernels are enough: graphs hold fake tensors. flexible_layout: the templates take any strides.
    for name, schema in SCHEMAS.items():
        torch.library.define(f"kernelllm::{name}", schema, tags=(torch.Tag.flexible_layout,))
        torch.library.register_fake(f"kernelllm::{name}", _FAKES[name])
    torch.library.define("kernelllm::tangent", "(Tensor result) -> Tensor")
    torch.library.register_fake("kernelllm::tangent", _same)
    for name, (_, schema) in TORCH_SCHEMAS.items():
        torch.library.define(f"kernelllm::{name}", schema, tags=(torch.Tag.flexible_layout,))
        torch.library.register_fake(f"kernelllm::{name}", _FAKES[name.removeprefix("torch_")])
    template_gradients.register()
    return torch.ops.kernelllm
