"""The same with the share of the kernels reported: allowed on the track hybrid."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "conv_head"
EXPECT = "correct"
TRACK = "hybrid"


@triton.jit
def head_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, features, BLOCK: tl.constexpr):
    row, feature = tl.program_id(0), tl.program_id(1)
    total = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.maximum(tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0), 0.0)
        total += tl.sum(x * tl.load(w_ptr + feature * columns + offsets, mask=mask, other=0.0))
    tl.store(y_ptr + row * features + feature, total + tl.load(b_ptr + feature))


class ModelNew(nn.Module):
    def __init__(self, channels, height, features):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3)
        self.linear = nn.Linear(16 * (height - 2) * (height - 2), features)

    def forward(self, x):
        x = self.conv(x).flatten(1).contiguous()
        features, columns = self.linear.weight.shape
        y = torch.empty(x.shape[0], features, device=x.device)
        head_kernel[(x.shape[0], features)](x, self.linear.weight, self.linear.bias, y, columns, features, BLOCK=512)
        return y
