"""Parameters under other names; a hook renames those that are loaded."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


PROBLEM = "linear_relu"
EXPECT = "correct"
WARNS = ""

@triton.jit
def rows(x_ptr, w_ptr, b_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x = tl.load(x_ptr + m * K + k, mask=k < K, other=0.0)
    w = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
    y = tl.sum(w * x[None, :], 1) + tl.load(b_ptr + n, mask=n < N, other=0.0)
    tl.store(y_ptr + m * N + n, tl.where(y < 0, 0.0, y), mask=n < N)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        linear = nn.Linear(features_in, features_out)
        self.w, self.b = nn.Parameter(linear.weight.detach().clone()), nn.Parameter(linear.bias.detach().clone())
        self.register_load_state_dict_pre_hook(self._rename)

    @staticmethod
    def _rename(module, state, prefix, *rest):
        for old, new in (("linear.weight", "w"), ("linear.bias", "b")):
            if prefix + old in state:
                state[prefix + new] = state.pop(prefix + old)

    def forward(self, x):
        x, (N, K) = x.contiguous(), self.w.shape
        y = torch.empty(x.shape[0], N, device=x.device, dtype=x.dtype)
        if y.numel():
            rows[(x.shape[0], triton.cdiv(N, 16))](x, self.w, self.b, y, N, K, BN=16, BK=triton.next_power_of_2(K))
        return y
