"""Elementwise functions in Triton, for kernels with one step a line."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def relu(x):
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def leaky_relu(x, slope):
    return tl.where(x > 0, x, x * slope)


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def tanh(x):
    return libdevice.tanh(x)


@triton.jit
def gelu_tanh(x):
    return 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def sigmoid(x):
    return tl.sigmoid(x)


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def softplus(x, beta, threshold):
    scaled = x * beta
    return tl.where(scaled > threshold, x, libdevice.log1p(tl.exp(scaled)) / beta)


@triton.jit
def mish(x):
    return x * libdevice.tanh(tl.where(x > 20.0, x, libdevice.log1p(tl.exp(x))))


@triton.jit
def elu(x, alpha):
    return tl.where(x > 0, x, alpha * libdevice.expm1(x))


@triton.jit
def selu(x):
    return 1.0507009873554805 * tl.where(x > 0, x, 1.6732632423543772 * libdevice.expm1(x))


@triton.jit
def celu(x, alpha):
    return tl.where(x > 0, x, alpha * libdevice.expm1(x / alpha))


@triton.jit
def softsign(x):
    return x / (1.0 + tl.abs(x))


@triton.jit
def at_least(x, lower):
    return tl.where(x < lower, lower, x)


@triton.jit
def at_most(x, upper):
    return tl.where(x > upper, upper, x)


@triton.jit
def clamp(x, lower, upper):
    return tl.where(x > upper, upper, tl.where(x < lower, lower, x))


@triton.jit
def hardsigmoid(x):
    shifted = x + 3.0
    return tl.where(shifted > 6.0, 6.0, tl.where(shifted < 0.0, 0.0, shifted)) / 6.0


@triton.jit
def hardswish(x):
    shifted = x + 3.0
    return x * tl.where(shifted > 6.0, 6.0, tl.where(shifted < 0.0, 0.0, shifted)) / 6.0


@triton.jit
def logsigmoid(x):
    return tl.where(x < 0, x, 0.0) - libdevice.log1p(tl.exp(-tl.abs(x))) + (x - x)


@triton.jit
def tanhshrink(x):
    return x - libdevice.tanh(x)


@triton.jit
def softshrink(x, lambd):
    return tl.where(x > lambd, x - lambd, tl.where(x < -lambd, x + lambd, x * 0.0))


@triton.jit
def hardshrink(x, lambd):
    return tl.where((x >= -lambd) & (x <= lambd), 0.0, x)


@triton.jit
def threshold(x, limit, value):
    return tl.where(x <= limit, value, x)


@triton.jit
def square(x):
    return x * x


@triton.jit
def cube(x):
    return x * x * x


@triton.jit
def sign(x):
    return tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x))


@triton.jit
def log1p(x):
    return libdevice.log1p(x)


@triton.jit
def expm1(x):
    return libdevice.expm1(x)


@triton.jit
def atan(x):
    return libdevice.atan(x)


@triton.jit
def cosh(x):
    return 0.5 * (tl.exp(x) + tl.exp(-x))


@triton.jit
def bce(x, y):
    log_x, log_rest = tl.log(x), libdevice.log1p(-x)
    return -y * tl.where(log_x < -100.0, -100.0, log_x) - (1.0 - y) * tl.where(log_rest < -100.0, -100.0, log_rest)


@triton.jit
def larger(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def bce_with_logits(x, y):
    return tl.where(x < 0, 0.0, x) - x * y + libdevice.log1p(tl.exp(-tl.abs(x)))


@triton.jit
def smooth_l1(x, beta):
    return tl.where(tl.abs(x) < beta, 0.5 * x * x / beta, tl.abs(x) - 0.5 * beta)


@triton.jit
def huber(x, delta):
    return tl.where(tl.abs(x) <= delta, 0.5 * x * x, delta * (tl.abs(x) - 0.5 * delta))


@triton.jit
def kl_term(x, y):
    return tl.where(y == 0, 0.0, y * (tl.log(y) - x))
