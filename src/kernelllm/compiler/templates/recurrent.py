"""Recurrent layers (tanh and ReLU RNN, LSTM, GRU) in one Triton kernel that walks over the time steps.

Programs own a block of hidden units of one layer and direction. Layer l runs one step behind layer l - 1, so all layers of a
one-directional network work side by side. Of a layer alone, and of two directions, the products with its input are computed for all steps
ahead. After each step all programs meet at a barrier in global memory, which needs them all on the
GPU at once; where that cannot be had (too many programs, or Triton's interpreter) each step is a launch of its own.
"""

import torch
import triton
import triton.language as tl

from .matmul import matmul


@triton.jit
def recurrent_tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def recurrent_sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def recurrent_dot(acc, in_ptrs, in_mask, w_ptrs, w_mask, K, stride_in, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr):
    """acc [b, n] + in [b, K] @ w[n, K]^T; in_ptrs [b, 1] and w_ptrs [1, n] point at each row's start."""
    ks = tl.arange(0, BLOCK_K)
    for k in range(0, K, BLOCK_K):
        # .cg: other programs wrote these values a moment ago, so read them from L2
        a = tl.load(in_ptrs + (k + ks)[None, :] * stride_in, mask=in_mask & (ks < K - k)[None, :], other=0.0, cache_modifier=".cg")
        w = tl.load(w_ptrs + (k + ks)[:, None], mask=w_mask & (ks < K - k)[:, None], other=0.0)
        if PRECISION == "sum":
            acc += tl.sum(a[:, :, None].to(acc.dtype) * w[None, :, :].to(acc.dtype), axis=1)
        else:
            acc = tl.dot(a, w, acc, input_precision=PRECISION)
    return acc


@triton.jit(do_not_specialize=["first", "last", "first_layer"])
def recurrent_kernel(x_ptr, given_ptr, w_in_ptr, w_rec_ptr, bias_ptr, h0_ptr, c_ptr, y_ptr, hn_ptr, barrier_ptr,
                     first, last, first_layer, T, B, I, H, w_in_row, stride_xt, stride_xb, stride_xi,
                     KIND: tl.constexpr, DIRS: tl.constexpr, AHEAD: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
                     BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr):
    """Steps ``first`` to ``last`` for BLOCK_H units of one (layer, direction), the layers each one step behind the other.

    x [T,B,I]; w_in [layers*DIRS, 4 or 1, H, w_in_row] and w_rec [.., H, H] hold four groups of rows (one for RNNs): LSTM i, f, g, o;
    GRU r, z, n of the input, n of the state. bias [.., 2, 4 or 1, H]: the two are added. y [layers, T, B, DIRS*H]; h0, c, hn
    [layers*DIRS, B, H].
    AHEAD: given [T, B, DIRS, 4 or 1, H] is what the input gives.
    """
    GROUPS: tl.constexpr = 1 if KIND == "tanh" or KIND == "relu" else 4
    pid = tl.program_id(0)
    h_tiles = tl.cdiv(H, BLOCK_H)
    b_tiles = tl.cdiv(B, BLOCK_B)
    units = pid % h_tiles * BLOCK_H + tl.arange(0, BLOCK_H)
    b = (pid // h_tiles % b_tiles * BLOCK_B + tl.arange(0, BLOCK_B)).to(tl.int64)
    slot = pid // h_tiles // b_tiles
    layer = first_layer + slot // DIRS
    direction = slot % DIRS
    part = (layer * DIRS + direction).to(tl.int64)
    b_mask = b < B
    state_at = (part * B + b)[:, None] * H + units[None, :]
    state_mask = b_mask[:, None] & (units < H)[None, :]
    n = tl.arange(0, GROUPS * BLOCK_H)
    row_group = n // BLOCK_H
    row_unit = pid % h_tiles * BLOCK_H + n % BLOCK_H
    w_rows = part * GROUPS * H + row_group * H + row_unit
    w_mask = (row_unit < H)[None, :]
    w_in = w_in_ptr + w_rows[None, :] * w_in_row
    w_rec = w_rec_ptr + w_rows[None, :] * H
    biases = bias_ptr + part * GROUPS * H + w_rows
    bias = tl.load(biases, mask=row_unit < H, other=0.0).to(ACC) + tl.load(biases + GROUPS * H, mask=row_unit < H, other=0.0).to(ACC)
    # GRU: the third group sees the input only, the fourth the state only.
    in_mask = w_mask & (row_group != 3)[None, :] if KIND == "gru" else w_mask
    rec_mask = w_mask & (row_group != 2)[None, :] if KIND == "gru" else w_mask

    for turn in range(first, last):
        step = turn - slot // DIRS
        if (step >= 0) & (step < T):
            t = (T - 1 - step if direction == 1 else step).to(tl.int64)
            acc = tl.zeros((BLOCK_B, GROUPS * BLOCK_H), dtype=ACC) + bias[None, :]
            if AHEAD:
                given_ptrs = given_ptr + ((t * B + b[:, None]) * DIRS + direction) * (GROUPS * H) + (row_group * H + row_unit)[None, :]
                acc += tl.load(given_ptrs, mask=b_mask[:, None] & w_mask, other=0.0).to(ACC)
            elif layer == 0:
                rows = x_ptr + t * stride_xt + b[:, None] * stride_xb
                acc = recurrent_dot(acc, rows, b_mask[:, None], w_in, in_mask, I, stride_xi, PRECISION, BLOCK_K)
            else:
                rows = y_ptr + (((layer - 1) * T + t) * B + b[:, None]) * (DIRS * H)
                acc = recurrent_dot(acc, rows, b_mask[:, None], w_in, in_mask, DIRS * H, 1, PRECISION, BLOCK_K)
            t_before = t + 1 if direction == 1 else t - 1
            y_before = y_ptr + ((layer * T + t_before) * B + b[:, None]) * (DIRS * H) + direction * H
            before = h0_ptr + (part * B + b[:, None]) * H
            if step > 0:
                before = y_before
            acc = recurrent_dot(acc, before, b_mask[:, None], w_rec, rec_mask, H, 1, PRECISION, BLOCK_K)
            if KIND == "tanh":
                h = recurrent_tanh(acc)
            elif KIND == "relu":
                h = tl.where(acc < 0, 0.0, acc)
            else:
                groups = acc.reshape(BLOCK_B, 2, 2, BLOCK_H).permute(0, 3, 1, 2)
                even, odd = tl.split(groups)  # groups 0 and 2, groups 1 and 3
                g0, g2 = tl.split(even)
                g1, g3 = tl.split(odd)
                if KIND == "lstm":
                    c = tl.load(c_ptr + state_at, mask=state_mask, other=0.0).to(ACC)
                    c = recurrent_sigmoid(g1) * c + recurrent_sigmoid(g0) * recurrent_tanh(g2)
                    tl.store(c_ptr + state_at, c.to(c_ptr.dtype.element_ty), mask=state_mask)
                    h = recurrent_sigmoid(g3) * recurrent_tanh(c)
                else:
                    old = tl.load(before + units[None, :], mask=state_mask, other=0.0, cache_modifier=".cg").to(ACC)
                    z = recurrent_sigmoid(g1)
                    h = (1.0 - z) * recurrent_tanh(g2 + recurrent_sigmoid(g0) * g3) + z * old
            h = h.to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + ((layer * T + t) * B + b[:, None]) * (DIRS * H) + direction * H + units[None, :], h, mask=state_mask)
            if step == T - 1:
                tl.store(hn_ptr + state_at, h, mask=state_mask)
        if turn + 1 < last:  # all programs meet here before the next step
            tl.debug_barrier()
            tl.atomic_add(barrier_ptr, 1, sem="release", scope="gpu")
            while tl.atomic_add(barrier_ptr, 0, sem="acquire", scope="gpu") < (turn + 1 - first) * tl.num_programs(0):
                pass
            tl.debug_barrier()


def recurrent_given(rows, w_in, allow_tf32):
    """What rows [T, B, K] give to all groups of units: [T*B, parts*groups*H]."""
    weights = w_in.reshape(-1, w_in.shape[-1])[:, : rows.shape[-1]]
    return matmul(rows.reshape(-1, rows.shape[-1]), weights.t(), None, allow_tf32)


def recurrent_pack(params, has_biases, parts, kind, hidden, width):
    """torch's flat parameter list -> w_in [parts, groups, H, width], w_rec [parts, groups, H, H], bias [parts, 2, groups, H]."""
    groups = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 4}[kind]
    w_in = params[0].new_zeros((parts, groups, hidden, width))
    w_rec = params[0].new_zeros((parts, groups, hidden, hidden))
    bias = params[0].new_zeros((parts, 2, groups, hidden), dtype=torch.promote_types(params[0].dtype, torch.float32))
    each = 4 if has_biases else 2
    for part in range(parts):
        w_ih, w_hh = params[part * each], params[part * each + 1]
        if w_hh.shape[1] != hidden:
            raise ValueError("projected LSTMs (proj_size > 0) are not supported")
        w_ih, w_hh = w_ih.unflatten(0, (-1, hidden)), w_hh.unflatten(0, (-1, hidden))
        w_in[part, : w_ih.shape[0], :, : w_ih.shape[2]] = w_ih
        w_rec[part, : w_hh.shape[0]] = w_hh
        if kind == "gru":  # n's two halves stay apart: r is multiplied onto the state's half only
            w_rec[part, 3] = w_hh[2]
        if has_biases:
            b_ih, b_hh = params[part * each + 2].unflatten(0, (-1, hidden)), params[part * each + 3].unflatten(0, (-1, hidden))
            bias[part, 0, : b_ih.shape[0]] = b_ih
            if kind == "gru":
                bias[part, 1, :2] = b_hh[:2]
                bias[part, 1, 3] = b_hh[2]
            else:
                bias[part, 1] = b_hh
    return w_in, w_rec, bias


def recurrent_run(kind, x, h0, c0, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32):
    """All layers and directions: (output, h_n, c_n or None), as torch's rnn_tanh, rnn_relu, lstm and gru."""
    if dropout > 0 and train and num_layers > 1:
        raise ValueError("dropout between recurrent layers in training is random and not supported here")
    if batch_first:
        x = x.transpose(0, 1)
    steps, batch, inputs = x.shape
    dirs, hidden = 2 if bidirectional else 1, h0.shape[2]
    parts = num_layers * dirs
    width = triton.cdiv(max(inputs, dirs * hidden if num_layers > 1 else 0), 16) * 16
    w_in, w_rec, bias = recurrent_pack(params, has_biases, parts, kind, hidden, width)
    y = torch.empty((num_layers, steps, batch, dirs * hidden), device=x.device, dtype=x.dtype)
    h0 = h0.contiguous()
    hn = torch.empty_like(h0)
    c = torch.empty_like(h0) if c0 is None else c0.clone(memory_format=torch.contiguous_format)
    precision, acc = ("tf32" if allow_tf32 else "tf32x3") if x.dtype == torch.float32 else "ieee", tl.float32
    if x.dtype == torch.float64:
        precision, acc = "sum", tl.float64
    block_b = min(64, max(16, triton.next_power_of_2(batch)))
    block_k = 16 if precision == "sum" else min(64, max(16, triton.next_power_of_2(max(hidden, inputs))))
    compiled = x.is_cuda  # elsewhere Triton's interpreter runs one program after the other
    cores = torch.cuda.get_device_properties(x.device).multi_processor_count if compiled else 0
    slots_at_once = num_layers if dirs == 1 else 2
    block_h = 16
    while compiled and block_h < 64 and slots_at_once * triton.cdiv(batch, block_b) * triton.cdiv(hidden, block_h) > cores:
        block_h *= 2
    if not compiled:
        block_h = min(64, max(16, triton.next_power_of_2(hidden)))
    wide = block_h == 64 and kind in ("lstm", "gru")  # rows of 256 weights
    if wide:
        block_k = min(32, block_k)
    programs = slots_at_once * triton.cdiv(batch, block_b) * triton.cdiv(hidden, block_h)
    together = programs <= cores
    extra = {"launch_cooperative_grid": True} if together else {}
    turns = steps + (num_layers - 1 if dirs == 1 else 0)
    ahead = dirs == 2 or num_layers == 1
    given = x
    for layer in range(0, num_layers, num_layers if dirs == 1 else 1):
        if ahead:
            own = slice(layer * dirs, layer * dirs + dirs)
            given = recurrent_given(x if layer == 0 else y[layer - 1], w_in[own], allow_tf32)
        spans = [(0, turns)] if together else [(turn, turn + 1) for turn in range(turns)]
        barrier = torch.zeros((1,), device=x.device, dtype=torch.int32)
        for first, last in spans:
            recurrent_kernel[(programs,)](
                x, given, w_in, w_rec, bias, h0, c, y, hn, barrier, first, last, layer, steps, batch, inputs, hidden, width, *x.stride(),
                kind, dirs, ahead, precision, acc, block_b, block_h, block_k, num_warps=8 if wide else 4, num_stages=3, **extra,
            )
    output = y[-1].transpose(0, 1) if batch_first else y[-1]
    if batch_first or num_layers > 1:  # memory of its own, for one sequence as well
        output = output.clone(memory_format=torch.contiguous_format)
    return output, hn, c


def rnn_tanh(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32=False):
    """x [T,B,I] ([B,T,I] if batch_first), hx [layers*dirs,B,H], params torch's flat list -> (output, h_n), as aten.rnn_tanh.input."""
    return recurrent_run("tanh", x, hx, None, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32)[:2]


def rnn_relu(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32=False):
    """As rnn_tanh, with ReLU."""
    return recurrent_run("relu", x, hx, None, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32)[:2]


def gru(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32=False):
    """As rnn_tanh, with gates r, z, n: as aten.gru.input."""
    return recurrent_run("gru", x, hx, None, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32)[:2]


def lstm(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32=False):
    """hx is [h0, c0] -> (output, h_n, c_n), as aten.lstm.input."""
    return recurrent_run("lstm", x, hx[0], hx[1], params, has_biases, num_layers, dropout, train, bidirectional, batch_first, allow_tf32)
