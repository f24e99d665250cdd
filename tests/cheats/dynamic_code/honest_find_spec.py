"""Looks whether Triton is there; a block for running the file as a program; imports that nothing uses."""

import importlib.util
import subprocess
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "relu"
EXPECT = "correct"


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


HAS_TRITON = importlib.util.find_spec("triton") is not None


class ModelNew(nn.Module):
    def forward(self, x):
        assert HAS_TRITON
        return relu(x)


if __name__ == "__main__":
    import time

    start = time.perf_counter()
    example = torch.randn(4096)
    torch.testing.assert_close(ModelNew()(example), torch.compile(torch.relu)(example))
    print(time.perf_counter() - start)
    sys.exit(subprocess.call(["nvidia-smi"]))
