"""A backward by hand: one kernel for the input's gradient, which sums up the weight's on the way."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "rms_norm"
EXPECT = "correct"
BACKWARD = True

@triton.jit
def forward_kernel(x_ptr, weight_ptr, y_ptr, scale_ptr, hidden, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < hidden
    x = tl.load(x_ptr + row * hidden + columns, mask=mask, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x) / hidden + 1e-6)
    tl.store(scale_ptr + row, scale)
    tl.store(y_ptr + row * hidden + columns, x * scale * tl.load(weight_ptr + columns, mask=mask), mask=mask)

@triton.jit
def backward_kernel(grad_ptr, x_ptr, weight_ptr, scale_ptr, grad_x_ptr, grad_weight_ptr, hidden, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < hidden
    grad = tl.load(grad_ptr + row * hidden + columns, mask=mask, other=0.0)
    x = tl.load(x_ptr + row * hidden + columns, mask=mask, other=0.0)
    scale = tl.load(scale_ptr + row)
    scaled = grad * tl.load(weight_ptr + columns, mask=mask, other=0.0)
    along = tl.sum(scaled * x) * scale * scale / hidden
    tl.store(grad_x_ptr + row * hidden + columns, (scaled - x * along) * scale, mask=mask)
    tl.atomic_add(grad_weight_ptr + columns, grad * x * scale, mask=mask)

class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x = x.contiguous()
        y, scale = torch.empty_like(x), x.new_empty(x.numel() // x.shape[-1])
        block = triton.next_power_of_2(x.shape[-1])
        forward_kernel[(scale.numel(),)](x, weight, y, scale, x.shape[-1], BLOCK=block)
        ctx.save_for_backward(x, weight, scale)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, scale = ctx.saved_tensors
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        block = triton.next_power_of_2(x.shape[-1])
        backward_kernel[(scale.numel(),)](grad.contiguous(), x, weight, scale, grad_x, grad_weight, x.shape[-1], BLOCK=block)
        return grad_x, grad_weight

class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x):
        return RMSNorm.apply(x, self.weight)
