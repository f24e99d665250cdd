"""The file keeps what its first launch compiled, of a kernel that calls libdevice; pruning leaves a second configuration at large sizes."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice

PROBLEM = "relu_large"
EXPECT = "correct"
WARNS = ""


def prune(configs, named_args, **kwargs):
    return configs[:1] if named_args["n"] < 2**22 else configs


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256, "WHOLE": True}), triton.Config({"BLOCK": 512, "WHOLE": True})], key=["n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = libdevice.abs(tl.maximum(x, 0.0)) if WHOLE else x
    tl.store(y_ptr + offsets, y, mask=mask)


KEPT = []


def relu(x, y, n):
    if not KEPT:
        compiled = relu_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
        KEPT[:] = compiled, relu_kernel.best_config.kwargs
        return
    compiled, best = KEPT
    compiled[(triton.cdiv(n, best["BLOCK"]), 1, 1)](x, y, n, *best.values())


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            relu(x, y, x.numel())
        return y
