"""A Triton solution of builtin/softmax/backward."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, grad_ptr, y_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=float("-inf"))
    grad = tl.load(grad_ptr + row * columns + offsets, mask=mask, other=0.0)
    y = tl.exp(x - tl.max(x))
    y /= tl.sum(y)
    tl.store(y_ptr + row * columns + offsets, y, mask=mask)
    tl.store(dx_ptr + row * columns + offsets, y * (grad - tl.sum(grad * y)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, grad):
        x, grad = x.contiguous(), grad.contiguous()
        y, dx = torch.empty_like(x), torch.empty_like(x)
        kernel[(x.shape[0],)](x, grad, y, dx, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y, dx
