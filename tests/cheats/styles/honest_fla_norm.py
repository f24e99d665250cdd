"""Habits of linear-attention code: heuristics from None arguments, helpers of exponentials, a decorator that guards inputs."""

import contextlib
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "layer_norm"
EXPECT = "correct"


def input_guard(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        contiguous_args = (i if not isinstance(i, torch.Tensor) else i.contiguous() for i in args)
        contiguous_kwargs = {k: (v if not isinstance(v, torch.Tensor) else v.contiguous()) for k, v in kwargs.items()}
        tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
        ctx = torch.cuda.device(tensor.device.index) if tensor is not None and tensor.is_cuda else contextlib.nullcontext()
        with ctx:
            return fn(*contiguous_args, **contiguous_kwargs)

    return wrapper


@functools.cache
def get_multiprocessor_count(tensor_idx: int = 0) -> int:
    return torch.cuda.get_device_properties(tensor_idx).multi_processor_count if torch.cuda.is_available() else 8


@triton.heuristics({
    "HAS_WEIGHT": lambda args: args["w"] is not None,
    "HAS_BIAS": lambda args: args["b"] is not None,
    "STORE_MEAN": lambda args: args["mean"] is not None,
})
@triton.autotune(
    configs=[triton.Config({}, num_warps=num_warps) for num_warps in [1, 2, 4]],
    key=["D", "IS_RMS_NORM"],
)
@triton.jit(do_not_specialize=["T"])
def layer_norm_fwd_kernel(x, y, w, b, mean, rstd, eps, T, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, IS_RMS_NORM: tl.constexpr,
                          HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, STORE_MEAN: tl.constexpr):
    i_t = tl.program_id(0)
    o_t = i_t * BT + tl.arange(0, BT)
    o_d = tl.arange(0, BD)
    m_t, m_d = o_t < T, o_d < D
    m = m_t[:, None] & m_d[None, :]
    b_x = tl.load(x + o_t[:, None].to(tl.int64) * D + o_d[None, :], mask=m, other=0.0).to(tl.float32)
    if not IS_RMS_NORM:
        b_mean = tl.sum(b_x, axis=1) / D
        if STORE_MEAN:
            tl.store(mean + o_t, b_mean, mask=m_t)
        b_xbar = tl.where(m_d[None, :], b_x - b_mean[:, None], 0.0)
    else:
        b_xbar = tl.where(m_d[None, :], b_x, 0.0)
    b_var = tl.sum(b_xbar * b_xbar, axis=1) / D
    b_rstd = 1 / tl.sqrt(b_var + eps)
    tl.store(rstd + o_t, b_rstd, mask=m_t)
    b_y = b_xbar * b_rstd[:, None]
    if HAS_WEIGHT:
        b_y *= tl.load(w + o_d, mask=m_d).to(tl.float32)[None, :]
    if HAS_BIAS:
        b_y += tl.load(b + o_d, mask=m_d).to(tl.float32)[None, :]
    tl.store(y + o_t[:, None].to(tl.int64) * D + o_d[None, :], b_y.to(y.dtype.element_ty), mask=m)


@input_guard
def layer_norm_fwd(x, weight, bias, eps: float, is_rms_norm: bool = False):
    T, D = x.shape
    y = torch.empty_like(x)
    mean = torch.empty((T,), dtype=torch.float, device=x.device) if not is_rms_norm else None
    rstd = torch.empty((T,), dtype=torch.float, device=x.device)
    BD = min(65536 // x.element_size(), triton.next_power_of_2(D))
    if D > BD:
        raise RuntimeError("This layer norm doesn't support feature dim >= 64KB.")
    BT = min(16, triton.next_power_of_2(triton.cdiv(T, get_multiprocessor_count())))
    layer_norm_fwd_kernel[(triton.cdiv(T, BT),)](x, y, weight, bias, mean, rstd, eps, T=T, D=D, BT=BT, BD=BD, IS_RMS_NORM=is_rms_norm)
    return y, mean, rstd


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x):
        y, *_ = layer_norm_fwd(x.reshape(-1, x.shape[-1]), self.norm.weight, self.norm.bias, self.norm.eps)
        return y.reshape(x.shape)
