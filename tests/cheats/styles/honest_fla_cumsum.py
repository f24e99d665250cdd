"""Block pointers, heuristics beside autotune, a guard around the launcher, a switch from the environment."""
import torch
import torch.nn as nn
import triton
import triton.language as tl
PROBLEM = "cumsum"
EXPECT = "correct"

import contextlib
import functools
import os
from typing import Optional

BS_LIST = [32, 64] if os.environ.get("FLA_BIG") == "1" else [16, 32]

def input_guard(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        args = tuple(i if not isinstance(i, torch.Tensor) else i.contiguous() for i in args)
        tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
        ctx = torch.cuda.device(tensor.device.index) if tensor is not None else contextlib.nullcontext()
        with ctx:
            return fn(*args, **kwargs)
    return wrapper

@triton.heuristics({"HAS_SCALE": lambda args: args["scale"] is not None})
@triton.autotune(configs=[triton.Config({"BS": BS}, num_warps=w) for BS in BS_LIST for w in [2, 4]], key=["S", "BT"])
@triton.jit(do_not_specialize=["T"])
def chunk_cumsum_kernel(s, z, scale, T, S: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, HAS_SCALE: tl.constexpr):
    i_s, i_b = tl.program_id(0), tl.program_id(1)
    b_z = tl.zeros([BS], dtype=tl.float32)
    for i_t in range(tl.cdiv(T, BT)):
        p_s = tl.make_block_ptr(s + i_b * T * S, (T, S), (S, 1), (i_t * BT, i_s * BS), (BT, BS), (1, 0))
        p_z = tl.make_block_ptr(z + i_b * T * S, (T, S), (S, 1), (i_t * BT, i_s * BS), (BT, BS), (1, 0))
        b_s = tl.load(p_s, boundary_check=(0, 1)).to(tl.float32)
        b_c = b_z[None, :] + tl.cumsum(b_s, axis=0)
        if HAS_SCALE:
            b_c *= scale
        tl.store(p_z, b_c.to(p_z.dtype.element_ty), boundary_check=(0, 1))
        b_z += tl.sum(b_s, 0)

@input_guard
def chunk_global_cumsum(s: torch.Tensor, scale: Optional[float] = None) -> torch.Tensor:
    B, T, S = s.shape
    z = torch.empty_like(s)
    grid = lambda meta: (triton.cdiv(meta["S"], meta["BS"]), B)
    chunk_cumsum_kernel[grid](s=s, z=z, scale=scale, T=T, S=S, BT=32)
    return z

class ModelNew(nn.Module):
    def forward(self, x):
        return chunk_global_cumsum(x)
