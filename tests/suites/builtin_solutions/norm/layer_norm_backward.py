"""A Triton solution of builtin/norm/layer_norm_backward."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows_kernel(x_ptr, grad_ptr, weight_ptr, bias_ptr, y_ptr, dx_ptr, hat_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < features
    x = tl.load(x_ptr + row * features + offsets, mask=mask, other=0.0)
    grad = tl.load(grad_ptr + row * features + offsets, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0)
    away = tl.where(mask, x - tl.sum(x) / features, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(away * away) / features + eps)
    hat = away * scale
    weighted = grad * weight
    dx = (weighted - tl.sum(weighted) / features - hat * (tl.sum(weighted * hat) / features)) * scale
    tl.store(y_ptr + row * features + offsets, hat * weight + bias, mask=mask)
    tl.store(dx_ptr + row * features + offsets, dx, mask=mask)
    tl.store(hat_ptr + row * features + offsets, hat, mask=mask)


@triton.jit
def columns_kernel(grad_ptr, hat_ptr, dweight_ptr, dbias_ptr, rows, features, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dweight = tl.zeros([ROWS, BLOCK], tl.float32)
    dbias = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        mask = (row[:, None] < rows) & (column[None, :] < features)
        offsets = row[:, None] * features + column[None, :]
        grad = tl.load(grad_ptr + offsets, mask=mask, other=0.0)
        dweight += grad * tl.load(hat_ptr + offsets, mask=mask, other=0.0)
        dbias += grad
    tl.store(dweight_ptr + column, tl.sum(dweight, axis=0), mask=column < features)
    tl.store(dbias_ptr + column, tl.sum(dbias, axis=0), mask=column < features)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        nn.init.normal_(self.norm.weight, 1.0, 0.2)
        nn.init.normal_(self.norm.bias)

    def forward(self, x, grad):
        x, grad = x.contiguous(), grad.contiguous()
        rows, features = x.shape
        weight, bias = self.norm.weight, self.norm.bias
        y, dx, hat = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
        dweight, dbias = torch.empty_like(weight), torch.empty_like(bias)
        block = triton.next_power_of_2(features)
        rows_kernel[(rows,)](x, grad, weight, bias, y, dx, hat, features, self.norm.eps, BLOCK=block)
        columns_kernel[(triton.cdiv(features, 64),)](grad, hat, dweight, dbias, rows, features, ROWS=32, BLOCK=64)
        return y, dx, dweight, dbias
