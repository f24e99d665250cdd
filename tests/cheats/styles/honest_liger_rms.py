"""A library's habits: settings by a helper, an autograd Function with a backward, ensure_contiguous, a functional form."""

import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rms_gate"
EXPECT = "correct"


MAX_FUSED_SIZE = 65536 // 2


def ensure_contiguous(fn):
    @functools.wraps(fn)
    def wrapper(ctx, *args, **kwargs):
        def maybe(value):
            return value.contiguous() if isinstance(value, torch.Tensor) else value

        return fn(ctx, *[maybe(a) for a in args], **{k: maybe(v) for k, v in kwargs.items()})

    return wrapper


def is_hip() -> bool:
    return torch.version.hip is not None


def calculate_settings(n):
    BLOCK_SIZE = triton.next_power_of_2(n)
    if BLOCK_SIZE > MAX_FUSED_SIZE:
        raise RuntimeError(f"Cannot launch Triton kernel since n = {n} exceeds the maximum of {MAX_FUSED_SIZE}.")
    num_warps = 4
    if BLOCK_SIZE >= 32768:
        num_warps = 32 if not is_hip() else 16
    elif BLOCK_SIZE >= 8192:
        num_warps = 16
    elif BLOCK_SIZE >= 2048:
        num_warps = 8
    return BLOCK_SIZE, num_warps


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def _rms_gate_forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, G_ptr, G_row_stride, W_ptr, RSTD_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr
):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    Y_ptr += row_idx * Y_row_stride
    X_ptr += row_idx * X_row_stride
    G_ptr += row_idx * G_row_stride
    X_row = tl.load(X_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    G_row = tl.load(G_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    mean_square = tl.sum(X_row * X_row, axis=0) / n_cols
    rstd = tl.math.rsqrt(mean_square + eps)
    tl.store(RSTD_ptr + row_idx, rstd)
    tl.store(Y_ptr + col_offsets, silu(G_row) * (X_row * rstd * W_row), mask=mask)


class RMSGateFunction(torch.autograd.Function):
    @staticmethod
    @ensure_contiguous
    def forward(ctx, X, G, W, eps):
        shape = X.shape
        dim = shape[-1]
        X, G = X.view(-1, dim), G.view(-1, dim)
        n_rows, n_cols = X.shape
        BLOCK_SIZE, num_warps = calculate_settings(n_cols)
        Y = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
        RSTD = torch.empty(n_rows, dtype=torch.float32, device=X.device)
        assert X.shape[1] == W.shape[0], "Incompatible hidden size dimension between tensor1.shape[1] and tensor2.shape[0]"
        _rms_gate_forward_kernel[(n_rows,)](
            Y, Y.stride(0), X, X.stride(0), G, G.stride(0), W, RSTD, n_cols, eps, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps
        )
        ctx.eps, ctx.BLOCK_SIZE, ctx.num_warps = eps, BLOCK_SIZE, num_warps
        ctx.save_for_backward(X, W, RSTD)
        return Y.view(*shape)

    @staticmethod
    def backward(ctx, dY):
        raise NotImplementedError("inference only")


class ModelNew(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.variance_epsilon = eps

    def forward(self, x, gate):
        return RMSGateFunction.apply(x, gate, self.weight, self.variance_epsilon)

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"
