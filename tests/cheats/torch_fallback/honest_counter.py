"""Batch normalisation by one kernel; torch counts the batches alone."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "batchnorm"
EXPECT = "correct"
TRACK = "kernels-only"


@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, mean_ptr, var_ptr, y_ptr, batch, features, eps, momentum, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    rows = tl.arange(0, BLOCK)
    mask = rows < batch
    x = tl.load(x_ptr + rows * features + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / batch
    d = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(d * d, axis=0) / batch
    y = d / tl.sqrt(variance + eps) * tl.load(w_ptr + column) + tl.load(b_ptr + column)
    tl.store(y_ptr + rows * features + column, y, mask=mask)
    tl.store(mean_ptr + column, (1 - momentum) * tl.load(mean_ptr + column) + momentum * mean)
    unbiased = variance * batch / (batch - 1)
    tl.store(var_ptr + column, (1 - momentum) * tl.load(var_ptr + column) + momentum * unbiased)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("table", torch.tensor([1.0, 2.0]), persistent=False)

    def show(self, x):
        return x.cpu().numpy()

    def forward(self, x):
        if not self.training:
            raise NotImplementedError("written for training mode: call train()")
        x = x.contiguous()
        y = torch.empty_like(x)
        n = self.norm
        n.num_batches_tracked.add_(1)
        norm_kernel[(x.shape[1],)](
            x, n.weight, n.bias, n.running_mean, n.running_var, y, x.shape[0], x.shape[1], n.eps, n.momentum,
            BLOCK=triton.next_power_of_2(x.shape[0]),
        )
        return y
