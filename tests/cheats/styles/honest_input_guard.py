"""Makes inputs contiguous in a decorator, on their device."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
import contextlib
import functools
PROBLEM = "softmax"
EXPECT = "correct"

def input_guard(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        args = [a if not isinstance(a, torch.Tensor) else a.contiguous() for a in args]
        kwargs = {k: (v if not isinstance(v, torch.Tensor) else v.contiguous()) for k, v in kwargs.items()}
        tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
        ctx = torch.cuda.device(tensor.device.index) if tensor is not None else contextlib.nullcontext()
        with ctx:
            return fn(*args, **kwargs)
    return wrapper
@triton.jit
def sm(x, y, s, n, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    v = tl.load(x + r * s + o, mask=o < n, other=-float("inf"))
    v = v - tl.max(v, axis=0)
    e = tl.exp(v)
    tl.store(y + r * s + o, e / tl.sum(e, axis=0), mask=o < n)
@input_guard
def softmax(x):
    y = torch.empty_like(x)
    n = x.shape[-1]
    B = triton.next_power_of_2(n)
    num_warps = 4 if B < 2048 else 8 if B < 4096 else 16
    sm[(x.numel() // n,)](x, y, x.stride(-2), n, B=B, num_warps=num_warps)
    return y
class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)

