"""A Triton solution of builtin/softmax/columns."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, classes, points, CLASSES: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    point = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    label = tl.arange(0, CLASSES)
    offsets = batch * classes * points + label[:, None] * points + point[None, :]
    mask = (label[:, None] < classes) & (point[None, :] < points)
    x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf"))
    highest = tl.max(x, axis=0)
    y = tl.exp(x - tl.where(highest > float("-inf"), highest, 0.0)[None, :])
    total = tl.sum(y, axis=0)
    tl.store(y_ptr + offsets, y / tl.where(total > 0, total, 1.0)[None, :], mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        batch, classes, points = x.shape
        y = torch.empty_like(x)
        kernel[(batch, triton.cdiv(points, 64))](x, y, classes, points, CLASSES=triton.next_power_of_2(classes), BLOCK=64)
        return y
