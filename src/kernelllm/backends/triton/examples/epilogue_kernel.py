import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_relu_residual_kernel(x_ptr, w_ptr, bias_ptr, res_ptr, out_ptr, M, N, K,
                                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        # nn.Linear keeps its weight as [out, in]: read it transposed.
        w = tl.load(w_ptr + cols[None, :] * K + k[:, None], mask=(cols[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="tf32x3")
    # The epilogue works on the accumulator, which is still in registers.
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    place = rows[:, None] * N + cols[None, :]
    residual = tl.load(res_ptr + place, mask=mask, other=0.0)
    y = tl.maximum(acc + bias[None, :], 0.0) + residual
    tl.store(out_ptr + place, y.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)  # holds the parameters; never called

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        weight, bias = self.linear.weight, self.linear.bias
        M, K = x.shape
        N = weight.shape[0]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        linear_relu_residual_kernel[grid](x, weight, bias, residual, out, M, N, K, BM=64, BN=64, BK=32)
        return out
