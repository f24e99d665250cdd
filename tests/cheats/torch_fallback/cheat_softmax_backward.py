"""The product as the sums over rows that the gradient of a softmax subtracts."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "matmul"
EXPECT = "torch_fallback"


@triton.jit
def half_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 0.5 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def halved(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    half_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        one = torch.ones(M, N, 1, device=a.device)
        outputs = torch.cat([a[:, None].expand(M, N, K), one], -1)
        gradients = torch.cat([b.t()[None].expand(M, N, K), 0 * one], -1)
        z = torch._softmax_backward_data(gradients, outputs, -1, torch.float32)[..., -1]
        return halved(-2 * z)
