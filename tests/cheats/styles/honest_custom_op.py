"""A custom operator with a fake kernel, built by functions."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "softmax"
EXPECT = "correct"
WARNS = ""

@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * n + at, e / tl.sum(e, 0), mask=at < n)


@torch.library.custom_op("jchon::softmax_rows", mutates_args=())
def softmax_rows(x: torch.Tensor) -> torch.Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        softmax_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@softmax_rows.register_fake
def _(x):
    return x.new_empty(x.shape)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.jchon.softmax_rows(x)
