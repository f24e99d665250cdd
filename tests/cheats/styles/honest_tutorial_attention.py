"""Triton's tutorial of fused attention: an inner function, two stages, configurations pruned, block pointers left out."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "attention"
EXPECT = "correct"


def is_cuda():
    return triton.runtime.driver.active.get_current_target().backend == "cuda"


configs = [
    triton.Config({"BLOCK_M": BM, "BLOCK_N": BN}, num_stages=s, num_warps=w)
    for BM in [16, 32]
    for BN in [16]
    for s in [2]
    for w in [4]
]


def keep(conf):
    BLOCK_M = conf.kwargs["BLOCK_M"]
    BLOCK_N = conf.kwargs["BLOCK_N"]
    return not (BLOCK_M * BLOCK_N < 16 * 16 and conf.num_warps == 8)


def prune_invalid_configs(configs, named_args, **kwargs):
    N_CTX = kwargs["N_CTX"]
    return [conf for conf in configs if conf.kwargs.get("BLOCK_M", 0) <= max(N_CTX, 16)]


@triton.jit
def _attn_fwd_inner(acc, l_i, m_i, q, K, V, stride_kn, stride_vn, start_m, qk_scale, BLOCK_M: tl.constexpr, HEAD_DIM: tl.constexpr,
                    BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr, offs_m: tl.constexpr, offs_n: tl.constexpr, N_CTX: tl.constexpr):
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    else:
        lo, hi = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        lo = tl.multiple_of(lo, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    for start_n in range(lo, hi, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        n = start_n + offs_n
        k = tl.load(K + n[None, :] * stride_kn + offs_d[:, None], mask=(n[None, :] < N_CTX) & (offs_d[:, None] < HEAD_DIM), other=0.0)
        qk = tl.dot(q, k, input_precision="ieee") * qk_scale
        visible = n[None, :] < N_CTX
        if STAGE == 2:
            visible = visible & (offs_m[:, None] >= n[None, :])
        qk = tl.where(visible, qk, -1.0e6)
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + n[:, None] * stride_vn + offs_d[None, :], mask=(n[:, None] < N_CTX) & (offs_d[None, :] < HEAD_DIM), other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        m_i = m_ij
    return acc, l_i, m_i


@triton.autotune(list(filter(keep, configs)), key=["N_CTX", "HEAD_DIM"], prune_configs_by={"early_config_prune": prune_invalid_configs})
@triton.jit
def _attn_fwd(Q, K, V, sm_scale, Out, stride_z, stride_h, stride_n, H, N_CTX, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
              BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    tl.static_assert(HEAD_DIM <= BLOCK_D)
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    base = (off_hz // H).to(tl.int64) * stride_z + (off_hz % H).to(tl.int64) * stride_h
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504
    q = tl.load(Q + base + offs_m[:, None] * stride_n + offs_d[None, :], mask=(offs_m[:, None] < N_CTX) & (offs_d[None, :] < HEAD_DIM), other=0.0)
    acc, l_i, m_i = _attn_fwd_inner(acc, l_i, m_i, q, K + base, V + base, stride_n, stride_n, start_m, qk_scale, BLOCK_M, HEAD_DIM, BLOCK_D, BLOCK_N,
                                    1, offs_m, offs_n, N_CTX)
    acc, l_i, m_i = _attn_fwd_inner(acc, l_i, m_i, q, K + base, V + base, stride_n, stride_n, start_m, qk_scale, BLOCK_M, HEAD_DIM, BLOCK_D, BLOCK_N,
                                    2, offs_m, offs_n, N_CTX)
    acc = acc / l_i[:, None]
    tl.store(Out + base + offs_m[:, None] * stride_n + offs_d[None, :], acc.to(Out.type.element_ty), mask=(offs_m[:, None] < N_CTX) & (offs_d[None, :] < HEAD_DIM))


class _attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sm_scale):
        HEAD_DIM_Q, HEAD_DIM_K = q.shape[-1], k.shape[-1]
        assert HEAD_DIM_Q == HEAD_DIM_K
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        o = torch.empty_like(q)
        grid = lambda args: (triton.cdiv(q.shape[2], args["BLOCK_M"]), q.shape[0] * q.shape[1], 1)
        _attn_fwd[grid](q, k, v, sm_scale, o, q.stride(0), q.stride(1), q.stride(2), q.shape[1], N_CTX=q.shape[2], HEAD_DIM=HEAD_DIM_K,
                        BLOCK_D=max(16, triton.next_power_of_2(HEAD_DIM_K)))
        ctx.sm_scale, ctx.HEAD_DIM = sm_scale, HEAD_DIM_K
        return o


attention = _attention.apply


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v, q.shape[-1] ** -0.5)
