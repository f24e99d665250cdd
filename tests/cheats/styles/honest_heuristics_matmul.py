"""Autotuned, with heuristics and tensor descriptors of the host."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

PROBLEM = "linear_relu"
EXPECT = "correct"
WARNS = ""



def _hook(nargs):
    nargs["x"].block_shape = [nargs["BM"], nargs["BK"]]
    nargs["w"].block_shape = [nargs["BN"], nargs["BK"]]
    nargs["y"].block_shape = [nargs["BM"], nargs["BN"]]


@triton.autotune(configs=[triton.Config({"BM": 16, "BN": 32, "BK": 16}, num_warps=w, num_stages=s, pre_hook=_hook) for w in (2, 4) for s in (2, 3)], key=["M", "N", "K"])
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BK"] == 0, "GROUP": lambda args: 8 if args["M"] > 64 else 1})
@triton.jit
def gemm(x, w, b_ptr, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr, GROUP: tl.constexpr, SMS: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, SMS, flatten=True):
        width = GROUP * tiles_n
        first = tile // width * GROUP
        size = min(tiles_m - first, GROUP)
        m = first + tile % width % size
        n = tile % width // size
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            a = x.load([m * BM, k * BK])
            b = w.load([n * BN, k * BK])
            acc = tl.dot(a, b.T, acc, input_precision="ieee")
        cols = n * BN + tl.arange(0, BN)
        acc += tl.load(b_ptr + cols, mask=cols < N, other=0.0)[None, :]
        y.store([m * BM, n * BN], tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL))


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        x, w = x.contiguous(), self.linear.weight
        if x.shape[1] * 4 % 16 or w.shape[0] * 4 % 16:
            raise NotImplementedError("rows must be multiples of 16 bytes")
        y = torch.empty(x.shape[0], w.shape[0], device=x.device, dtype=x.dtype)
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        d = [TensorDescriptor.from_tensor(t, [1, 1]) for t in (x, w, y)]
        gemm[lambda meta: (min(sms, triton.cdiv(x.shape[0], meta["BM"]) * triton.cdiv(w.shape[0], meta["BN"])),)](
            d[0], d[1], self.linear.bias, d[2], x.shape[0], w.shape[0], x.shape[1], SMS=sms)
        return y
