"""A process that asks for the interpreter often, as one does that optimizes many live modules."""

import os
import sys

import torch

from kernelllm.backends.base import open_backend

os.environ["TRITON_INTERPRET"] = "1"
for _ in range(500):
    assert open_backend("triton").runs_here()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402


@triton.jit
def double(x):
    at = tl.arange(0, 2)
    tl.store(x + at, tl.load(x + at) * at)


given = torch.full((2,), 5.0)
double[(1,)](given)
sys.stdout.write(str(given.sum().item()))
