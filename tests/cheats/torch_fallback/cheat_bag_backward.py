"""The product as gradients of the weights in a bag: each is a row's product with a gradient."""

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
        ids = torch.arange(N, device=a.device).repeat(M)
        bags = torch.arange(M, device=a.device).repeat_interleave(N)
        starts = torch.arange(M, device=a.device) * N
        rows = b.t().contiguous()
        z = torch.ops.aten._embedding_bag_per_sample_weights_backward(a + a, rows, ids, starts, bags, 0)
        return halved(z.view(M, N))
