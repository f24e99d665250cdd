"""A frozen configuration, getattr with names that begin with a text, and its own __getattr__."""

import dataclasses

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "correct"


@dataclasses.dataclass(frozen=True)
class Tiles:
    rows: int = 16
    columns: int = 32
    inner: int = 32

    def __post_init__(self):
        object.__setattr__(self, "columns", max(16, self.columns))

    def as_arguments(self):
        return {"BM": self.rows, "BN": self.columns, "BK": self.inner}


@triton.jit
def linear_relu_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        w = tl.load(w_ptr + columns[None, :] * K + inner[:, None], mask=(columns[None, :] < N) & (inner[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc += tl.load(b_ptr + columns, mask=columns < N, other=0.0)[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], tl.maximum(acc, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self.tiles = Tiles()
        for index, rows in enumerate((16, 32)):
            setattr(self, f"tiles_{index}", Tiles(rows=rows))

    def __getattr__(self, name):
        return super().__getattr__(name)

    def forward(self, x):
        M, K = x.shape
        tiles = getattr(self, f"tiles_{int(M > 64)}")
        weight, bias = (getattr(self.linear, name) for name in ("weight", "bias"))
        y = torch.empty((M, weight.shape[0]), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, tiles.rows), triton.cdiv(y.shape[1], tiles.columns))
        linear_relu_kernel[grid](x.contiguous(), weight, bias, y, M, y.shape[1], K, **tiles.as_arguments())
        return y

    def extra_repr(self):
        return f"{self.__class__.__name__}: {dataclasses.asdict(self.tiles)}"
