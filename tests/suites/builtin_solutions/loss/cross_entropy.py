"""A Triton solution of builtin/loss/cross_entropy."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(logits_ptr, labels_ptr, y_ptr, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * classes + offsets, mask=offsets < classes, other=float("-inf"))
    highest = tl.max(x)
    right = tl.load(logits_ptr + row * classes + tl.load(labels_ptr + row))
    tl.store(y_ptr + row, tl.log(tl.sum(tl.exp(x - highest))) + highest - right)


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        logits, labels = logits.contiguous(), labels.contiguous()
        rows, classes = logits.shape
        y = torch.empty(rows, device=logits.device)
        kernel[(rows,)](logits, labels, y, classes, BLOCK=triton.next_power_of_2(classes))
        return y
