"""A kernel made by a factory for each activation, kept in a dictionary by name, with an enumeration."""

import enum
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "linear_relu"
EXPECT = "correct"


class Activation(enum.Enum):
    NONE = "none"
    RELU = "relu"


@triton.jit
def relu(x):
    return tl.where(x > 0, x, 0.0)


@triton.jit
def identity(x):
    return x


@triton.jit
def linear_kernel(X, W, B, Y, M, N, K, ACT: tl.constexpr, HAS_BIAS: tl.constexpr, TILE: tl.constexpr = 16):
    m = tl.program_id(1) * TILE + tl.arange(0, TILE)
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for k0 in range(0, K, TILE):
        k = k0 + tl.arange(0, TILE)
        x = tl.load(X + m[:, None] * K + k, (m[:, None] < M) & (k < K), 0.0)
        w = tl.load(W + n[:, None] * K + k, (n[:, None] < N) & (k < K), 0.0)
        acc += tl.dot(x, w.T, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(B + n, n < N, 0.0)
    if ACT == "relu":
        acc = relu(acc)
    else:
        acc = identity(acc)
    tl.store(Y + m[:, None] * N + n, acc, (m[:, None] < M) & (n < N))


def make_linear(activation):
    launchers = {
        Activation.RELU: functools.partial(_launch, act="relu"),
        Activation.NONE: functools.partial(_launch, act="none"),
    }
    return launchers[activation]


def _launch(x, weight, bias, act):
    *lead, K = x.shape
    x = x.reshape(-1, K).contiguous()
    M, N = x.shape[0], weight.shape[0]
    y = x.new_empty(M, N)
    linear_kernel[triton.cdiv(N, 16), triton.cdiv(M, 16)](x, weight, bias, y, M, N, K, ACT=act, HAS_BIAS=bias is not None)
    return y.reshape(*lead, N)


class FusedLinear(nn.Linear):
    def __init__(self, *args, activation=Activation.NONE, **kwargs):
        super().__init__(*args, **kwargs)
        self.run = make_linear(activation)

    def forward(self, input):
        return self.run(input, self.weight, self.bias)


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super(ModelNew, self).__init__()
        self.linear = FusedLinear(features_in, features_out, activation=Activation.RELU)

    def forward(self, x):
        return self.linear(x)
