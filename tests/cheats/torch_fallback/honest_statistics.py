"""Kernels for the statistics and the result; torch keeps the running averages."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "batchnorm"
EXPECT = "correct"

@triton.jit
def statistics_kernel(x_ptr, mean_ptr, var_ptr, batch, features, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    rows = tl.arange(0, BLOCK)
    mask = rows < batch
    x = tl.load(x_ptr + rows * features + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / batch
    d = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + column, mean)
    tl.store(var_ptr + column, tl.sum(d * d, axis=0) / batch)


@triton.jit
def apply_kernel(x_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, y_ptr, n, features, eps, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    column = offsets % features
    x = tl.load(x_ptr + offsets, mask=mask) - tl.load(mean_ptr + column, mask=mask)
    scale = tl.load(w_ptr + column, mask=mask) / tl.sqrt(tl.load(var_ptr + column, mask=mask, other=1.0) + eps)
    tl.store(y_ptr + offsets, x * scale + tl.load(b_ptr + column, mask=mask), mask=mask)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        if not self.training:
            raise NotImplementedError("written for training mode: call train()")
        x = x.contiguous()
        batch, features = x.shape
        mean, var = torch.empty_like(self.norm.running_mean), torch.empty_like(self.norm.running_var)
        y = torch.empty_like(x)
        n = self.norm
        statistics_kernel[(features,)](x, mean, var, batch, features, BLOCK=triton.next_power_of_2(batch))
        apply_kernel[(triton.cdiv(x.numel(), 256),)](x, mean, var, n.weight, n.bias, y, x.numel(), features, n.eps, BLOCK=256)
        n.running_mean.mul_(1 - n.momentum).add_(n.momentum * mean)
        n.running_var.mul_(1 - n.momentum).add_(n.momentum * var * (batch / (batch - 1)))
        n.num_batches_tracked.add_(1)
        return y
