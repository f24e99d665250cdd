"""Another library's habits: a device context, aliases of functions, keyword launches, closures as grids."""

import contextlib

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rms_gate"
EXPECT = "correct"


next_power_of_2 = triton.next_power_of_2
torch_empty = torch.empty
DEVICE_COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 1


@contextlib.contextmanager
def torch_gpu_device(device):
    if device.type == "cuda":
        with torch.cuda.device(device):
            yield
    else:
        yield


def calculate_settings(n: int) -> tuple[int, int]:
    BLOCK_SIZE: int = next_power_of_2(n)
    num_warps: int = 4
    if BLOCK_SIZE >= 32768: num_warps = 32
    elif BLOCK_SIZE >= 8192: num_warps = 16
    elif BLOCK_SIZE >= 2048: num_warps = 8
    return BLOCK_SIZE, num_warps
pass


@triton.jit
def _rms_forward(Y, Y_row_stride: tl.constexpr, X, X_row_stride: tl.constexpr, W, n_cols: tl.constexpr, eps: tl.constexpr,
                 BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    X_row = tl.load(X + row_idx * X_row_stride + col_offsets, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + col_offsets, mask=mask, other=0)
    row_var = tl.sum(X_row * X_row, axis=0) / n_cols
    normed = (X_row * tl.math.rsqrt(row_var + eps)).to(W_row.dtype)
    tl.store(Y + row_idx * Y_row_stride + col_offsets, normed * W_row, mask=mask)
pass


@triton.jit
def _fg_kernel(e, g, h, n_elements, BLOCK_SIZE: tl.constexpr):
    block_idx = tl.program_id(0)
    offsets = block_idx * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    e_row = tl.load(e + offsets, mask=mask, other=0).to(tl.float32)
    g_row = tl.load(g + offsets, mask=mask, other=0)
    f_row = e_row * tl.sigmoid(e_row)
    f_row = f_row.to(g_row.dtype)
    tl.store(h + offsets, f_row * g_row, mask=mask)
pass


def swiglu_fg_kernel(e, g):
    n_elements = e.numel()
    h = torch_empty(e.shape, dtype=e.dtype, device=e.device)
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    with torch_gpu_device(e.device):
        _fg_kernel[grid](e, g, h, n_elements, BLOCK_SIZE=1024,)
    return h
pass


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    @torch.no_grad()
    def forward(self, x, gate):
        rows, cols = x.shape
        BLOCK_SIZE, num_warps = calculate_settings(cols)
        x, gate = x.contiguous(), gate.contiguous()
        normed = torch_empty((rows, cols), dtype=x.dtype, device=x.device)
        with torch_gpu_device(x.device):
            _rms_forward[(rows,)](normed, normed.stride(0), x, x.stride(0), self.weight, cols, 1e-6, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
        return swiglu_fg_kernel(gate, normed)
