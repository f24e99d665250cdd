"""The backward takes the incoming gradient to be contiguous."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "scaled_silu"
EXPECT = "incorrect"
BACKWARD = True

@triton.jit
def forward_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n, hidden, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    weight, bias = tl.load(weight_ptr + i % hidden, mask=i < n), tl.load(bias_ptr + i % hidden, mask=i < n)
    tl.store(y_ptr + i, x * tl.sigmoid(x) * weight + bias, mask=i < n)

@triton.jit
def backward_kernel(grad_ptr, x_ptr, weight_ptr, grad_x_ptr, grad_weight_ptr, grad_bias_ptr, rows, hidden, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = column < hidden
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    grad_weight, grad_bias = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        grad = tl.load(grad_ptr + row * hidden + column, mask=mask, other=0.0)
        x = tl.load(x_ptr + row * hidden + column, mask=mask, other=0.0)
        gate = tl.sigmoid(x)
        tl.store(grad_x_ptr + row * hidden + column, grad * weight * gate * (1 + x * (1 - gate)), mask=mask)
        grad_weight += grad * x * gate
        grad_bias += grad
    tl.store(grad_weight_ptr + column, grad_weight, mask=mask)
    tl.store(grad_bias_ptr + column, grad_bias, mask=mask)

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight, bias)
        y = torch.empty_like(x)
        forward_kernel[(triton.cdiv(x.numel(), 256),)](x, weight, bias, y, x.numel(), x.shape[1], BLOCK=256)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias = ctx.saved_tensors
        grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        backward_kernel[(triton.cdiv(x.shape[1], 32),)](
            grad, x, weight, grad_x, grad_weight, grad_bias, x.shape[0], x.shape[1], BLOCK=32
        )
        return grad_x, grad_weight, grad_bias

class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)
        self.bias = nn.Parameter(torch.rand(hidden))

    def forward(self, x):
        return Scaled.apply(x, self.weight, self.bias)
