"""An operator with another function for tensors of the CPU, which no GPU runs."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


@torch.library.custom_op("honest_operators::relu", mutates_args=(), device_types="cuda")
def relu_operator(x: torch.Tensor) -> torch.Tensor:
    return relu(x)


@relu_operator.register_kernel("cpu")
def _(x):
    return torch.relu(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return relu_operator(x)
