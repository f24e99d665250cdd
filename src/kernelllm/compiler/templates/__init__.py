"""Hand-written Triton kernels for what Inductor leaves to a library: products, convolutions, attention, recurrent layers, pools, scans.

Each file here is an ordinary importable module and, at the same time, the text that the emitter copies into a written file. So each
imports ``math``, ``torch``, ``triton``, ``triton.language as tl`` and its sibling templates only, runs nothing on import, and every
top-level name (a function, a kernel or a plain constant) is unique over all files here: any set of them can be pasted into one module,
and what is not reached from the host functions in use can be dropped (top-level functions and constants only, no classes).

Start with ``rows.py``, a short one. The table is the contract with ``compiler/template_ops.py`` (custom ops with these names and
signatures) and with the emitter:

================================ ============ ====================================================================================
host function                    file         semantics (``T`` is a tensor; every output is a new contiguous tensor)
================================ ============ ====================================================================================
``matmul(a, b, bias=None,        matmul       ``a [M,K] @ b [K,N] (+ bias)``; ``bias`` broadcasts to ``[M,N]`` (``[N]``,
allow_tf32=False,                             ``[M,1]``, ``[M,N]``, ``[]``...); then ``activation``: ``""``, ``"relu"``,
activation="") -> T                           ``"gelu"``, ``"gelu_tanh"``, ``"sigmoid"``, ``"tanh"``, ``"silu"``
``half_matmul(...)``,            matmul_half  as ``matmul``, ``batched_matmul`` and ``attention``, in fp16 and bf16
``half_batched_matmul(...)``     and
``half_attention(...)``          attention_half
``padded_mm(a, b) -> T``         by_library   ``a [M,K] @ b [K,N]`` by torch, with aligned rows
``conv_relu(x, weight, bias,     by_library   ``relu(conv2d(x, weight, bias, ...) + other)`` by cuDNN, channels last
other, stride, padding,
dilation) -> T``
``gated_matmul(a, b, gate,       matmul_half  ``activation(a @ gate + gate_bias) * (a @ b + b_bias)``, biases ``[N]`` or None,
activation, b_bias=None,                      in fp16 and bf16
gate_bias=None,
allow_tf32=False) -> T``
``quantized_matmul(a, b,         quantized    ``a [M,K] @ ((b [K,N] - offset - zero) * scale) + bias [N]``, ``a`` in fp16 or bf16,
scale=None, bias=None,                        ``b`` of any type of one byte, or of two numbers a byte (``nibbles``, ``[K/2,N]``);
zero=None, offset=0.0,                        ``scale`` ``[N]``, or ``[N,G]`` as ``zero``, for groups of neighbours along K; for
nibbles=False) -> T``                         few rows
``addmm(c, a, b, beta=1.0,       matmul       ``beta * c + alpha * (a @ b)``, ``c`` broadcasts to ``[M,N]``; ``c`` unread where
alpha=1.0, allow_tf32=False)                  ``beta == 0``
-> T
``batched_matmul(a, b,           matmul       ``a [B,M,K] @ b [B,K,N] (+ bias)``; ``bias`` broadcasts to ``[B,M,N]``; batch
bias=None, allow_tf32=False)                  strides may be 0
-> T
``baddbmm(c, a, b, beta=1.0,     matmul       ``beta * c + alpha * (a @ b)`` over batches
alpha=1.0, allow_tf32=False)
-> T
``matvec(a, x) -> T``            matmul       ``a [M,K] @ x [K]`` -> ``[M]`` (aten.mv; aten.dot: ``matvec(x[None], y)[0]``)
``conv(x, weight, bias, stride,  conv         aten.convolution with transposed=False: x ``[N,C,*S]``, weight ``[O,C/groups,*k]``,
padding, dilation, groups,                    bias ``[O]`` or None, 1 to 3 spatial dims, lists of ints (one element a spatial dim)
allow_tf32=False) -> T
``conv_transpose(x, weight,      conv         aten.convolution with transposed=True: weight ``[C,O/groups,*k]``
bias, stride, padding,
output_padding, dilation,
groups, allow_tf32=False) -> T
``attention(q, k, v, mask=None,  attention    scaled_dot_product_attention without dropout: q ``[B,H,T,D]``, k ``[B,Hk,S,D]``,
is_causal=False, scale=None,                  v ``[B,Hk,S,Dv]``, Hk divides H; mask bool (True: attend) or additive, broadcasts
allow_tf32=False) -> T                        to ``[B,H,T,S]``; causal is top-left aligned as in torch; scale default ``1/sqrt(D)``;
                                              the result lies in memory as ``[B,T,H,Dv]``
``sink_attention(q, k, v, mask,  attention_   half_attention() whose softmax has one more score for each head, ``sinks`` ``[H]``,
sinks, scale=None) -> T``        sinks        without a value; scale above 0
``half_attention_backward(q, k,   attention_   gradients of q, k and v without a mask, in fp16 and bf16, widths up to 256
v, out, grad, is_causal=False,   half_
scale=None) -> (T, T, T)``       backward
``attention_with_sums(q, k, v,   attention_   half_attention() without a mask in q's layout, and the logarithm of each query's sum
is_causal=False, scale=None)     kept         ``[B,H,T,1]``; q, k and v have one width
-> (T, T)``
``attention_gradients(grad, q,   attention_   gradients of q, k and v from those, each in the layout of what it belongs to
k, v, out, sums,                 kept
is_causal=False, scale=None)
-> (T, T, T)``
``rnn_tanh(x, hx, params,        recurrent    as aten.rnn_tanh.input: -> (output, h_n); ``params`` flat, torch's order. x
has_biases, num_layers, dropout,              ``[T,B,I]`` (``[B,T,I]`` if batch_first), hx ``[layers*dirs,B,H]``. ``dropout > 0``
train, bidirectional,                         with ``train`` and several layers raises ValueError (a random stream)
batch_first, allow_tf32=False)
-> (T, T)
``rnn_relu(...) -> (T, T)``      recurrent    the same with ReLU
``gru(...) -> (T, T)``           recurrent    the same, as aten.gru.input
``lstm(x, hx, params, ...)       recurrent    as aten.lstm.input: ``hx`` is the list ``[h0, c0]``; -> (output, h_n, c_n)
-> (T, T, T)``
``max_pool(x, kernel_size,       pooling      x ``[N,C,*S]`` or ``[C,*S]``, 1 to 3 spatial dims = ``len(kernel_size)``; lists of
stride, padding, dilation,                    ints, one element a dim (``stride`` never empty: the caller fills in kernel_size)
ceil_mode) -> T
``max_pool_with_indices(same)    pooling      indices int64, flat over the input's spatial dims as torch's
-> (T, T)``
``avg_pool(x, kernel_size,       pooling      as aten.avg_pool{1,2,3}d; ``divisor_override`` int or None
stride, padding, ceil_mode,
count_include_pad,
divisor_override=None) -> T
``adaptive_avg_pool(x,           pooling      ``output_size`` list of ints, one a spatial dim
output_size) -> T``
``adaptive_max_pool(x,           pooling      values and int64 indices
output_size) -> (T, T)``
``cumsum(x, dim) -> T``          scan         as torch.cumsum / cumprod in x's dtype (int types: the caller casts to int64 first)
``cumprod(x, dim) -> T``         scan
``cummax(x, dim) -> (T, T)``     scan         values and int64 indices (last among equals, as torch), NaN wins
``cummin(x, dim) -> (T, T)``     scan
``logcumsumexp(x, dim) -> T``    scan
``row_softmax(x, scale) -> T``   rows         softmax of ``x * scale`` over the last dim
``row_logsumexp(x, scale) -> T`` rows         logsumexp over the last dim: fp32 ``x.shape[:-1]`` (of fp64: fp64)
``sort(x, dim, descending)       sorting      stable; values and int64 indices; rows of up to 4096 elements (ValueError beyond)
-> (T, T)``
``window_gradient(grad, x,       window_      gradient of the weight ``[C,1,*k]`` of a convolution of C groups at stride 1 over one or
kernel_size, padding, dilation)  gradients    two dimensions: grad ``[N,C,*out]``, x ``[N,C,*S]``
-> T``
``concat(a, b, dim) -> T``       joining      ``torch.cat((a, b), dim)`` of two tensors of one dtype
``topk(x, k, dim, largest)       sorting      sorted values and int64 indices; ties by the lower index; rows as for sort
-> (T, T)``
``topk_long(x, k, dim, largest)  sorting      as topk, of rows of any length; k up to 1024 (ValueError beyond)
-> (T, T)``
``scatter_extreme(x, dim,        scattering   ``x.scatter_reduce(dim, index, src, "amax" or "amin")`` of floats up to 32 bits; ``index``
index, src, largest,                          and ``src`` have one shape (ValueError else), which is that of ``x`` but for ``dim``
include_self) -> T``
``bincount(x, weights, size)     scattering   ``torch.bincount(x, weights, minlength=size)`` of exactly ``size`` counts (ValueError where
-> T``                                        a number is larger); ``weights`` may be None
``bag_rows(weight, indices,      bags         ``torch.embedding_bag(weight, indices, offsets)[0]``; ``mode`` is sum, mean or max;
offsets, scales, mode, last,                  ``scales`` are per_sample_weights or None; ``last``: the last offset is that of the end;
padding) -> T``                               ``padding`` is padding_idx, or negative
``grid_sample(x, grid, mode,     image_       ``torch.nn.functional.grid_sample`` of images ``[N,C,H,W]``; ``mode`` is bilinear or
padding_mode,                    samples      nearest; the padding any
align_corners) -> T``
``grouped_matmul(a, b, ends,     grouped      ``a [M,K]``'s rows up to ``ends[g]`` times ``b[g]`` of ``b [G,K,N]``; zeros behind the
allow_tf32=False) -> T``                      last end
``matrix_states(first, gate, k,  states       all ``S`` from ``first [B,K,V]`` on, where ``S = gate[t][:, :, None] * S + k[t].mT @
v, w) -> T``                                  (v[t] + w[t] @ S)``: ``[N+1,B,K,V]``; gate ``[N,B,K]`` or ``[N,B,1]`` or None, k and w
                                              ``[N,B,C,K]``, w or None, v ``[N,B,C,V]``; C up to 128, K up to 256
``lu_factor(a, pivot)            factorize    LU and int32 pivots as torch.linalg.lu_factor; batches, any shape
-> (T, T)``
``ldl_factor(a) -> (T, T)``      factorize    LD and int32 pivots as torch.linalg.ldl_factor; batches; the lower half of a is read
``permutation(pivots, m) -> T``  factorize    the order of m rows, int64, that pivots stand for
``triangular_solve(a, b, upper,  factorize    ``x`` where ``a [B,n,n] x = b [B,n,k]``; one triangle of a is read, not its diagonal
unit) -> T``                                  where ``unit``
``qr(a, complete) -> (T, T)``    factorize    Q (``[m, min(m, n)]``, complete ``[m, m]``) and a matrix whose upper triangle is R
================================ ============ ====================================================================================

Precision: fp32 inputs keep fp32's accuracy unless ``allow_tf32``: as ``tf32x3`` (three TF32 products) or, for large work, as sums of two
fp16 halves (three fp16 products; see matmul.py). With ``allow_tf32`` they are one TF32 product. fp16 and bf16 natively with fp32 sums, by
tensor descriptors where the GPU has them and strides allow (matmul_half.py, attention_half.py); fp64 and integers by plain sums (slow).
A function whose name ends in ``_tiles`` or holds ``_should_`` or ``_needs_`` decides what is fast, never what is right: its answer for the
problem's own sizes is written into the file. Decisions of which results depend are made where the file runs.
Any sizes and strides are right, zero-size included; offsets are 64 bit where a tensor may exceed 2**31 elements.
"""
