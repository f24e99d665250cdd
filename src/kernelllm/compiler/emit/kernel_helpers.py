"""Small Triton functions that a written file may carry. The emitter copies their text; nothing here is imported.

A reduction goes over its values once: to look for NaN by itself took a softmax over 64 channels 1.4 times as long on an H200.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def maximum(a, b):
    """The larger value; NaN where either is NaN, as torch.maximum."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """The smaller value; NaN where either is NaN, as torch.minimum."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_along(x, axis: tl.constexpr):
    """The largest value along an axis; NaN if there is any, as torch.amax."""
    return tl.reduce(x, axis, maximum)


@triton.jit
def min_along(x, axis: tl.constexpr):
    """The smallest value along an axis; NaN if there is any, as torch.amin."""
    return tl.reduce(x, axis, minimum)


@triton.jit
def any_along(x, axis: tl.constexpr):
    """Whether any value along an axis is true."""
    return tl.max((x != 0).to(tl.int32), axis) > 0


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def prod_along(x, axis: tl.constexpr):
    """The product along an axis."""
    return tl.reduce(x, axis, _multiply)


@triton.jit
def keep_larger(value, index, new_value, new_index):
    """Running argmax: the larger value with its index, the lower index on a tie; NaN counts as largest."""
    take = (new_value > value) | ((new_value == value) & (new_index < index))
    if value.dtype.is_floating():
        take |= (new_value != new_value) & ((value == value) | (new_index < index))
        take &= (value == value) | (new_value != new_value)
    return tl.where(take, new_value, value), tl.where(take, new_index, index)


@triton.jit
def keep_smaller(value, index, new_value, new_index):
    """Running argmin: the smaller value with its index, the lower index on a tie; NaN counts as smallest."""
    take = (new_value < value) | ((new_value == value) & (new_index < index))
    if value.dtype.is_floating():
        take |= (new_value != new_value) & ((value == value) | (new_index < index))
        take &= (value == value) | (new_value != new_value)
    return tl.where(take, new_value, value), tl.where(take, new_index, index)


@triton.jit
def argmax_along(value, index, axis: tl.constexpr):
    """The largest value along an axis and the lowest index that holds it; NaN counts as largest."""
    best = max_along(value, axis)
    spread = tl.expand_dims(best, axis)
    found = (value == spread) | ((value != value) & (spread != spread))
    return best, tl.min(tl.where(found, index, 2147483647), axis)


@triton.jit
def argmin_along(value, index, axis: tl.constexpr):
    """The smallest value along an axis and the lowest index that holds it; NaN counts as smallest."""
    best = min_along(value, axis)
    spread = tl.expand_dims(best, axis)
    found = (value == spread) | ((value != value) & (spread != spread))
    return best, tl.min(tl.where(found, index, 2147483647), axis)


@triton.jit
def welford_update(value, mean, m2, count):
    """One more value into a running mean, sum of squared deviations (m2) and count."""
    count = count + 1
    delta = value - mean
    mean = tl.where(count == 1, value, mean + delta / count)  # a quotient is not exact, and the spread may be no larger than its error
    return mean, m2 + delta * (value - mean), count


@triton.jit
def welford_merge(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    """Two running statistics into one."""
    delta = mean_b - mean_a
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@triton.jit
def welford_along(mean, m2, count, axis: tl.constexpr):
    """Running statistics merged along an axis."""
    total = tl.sum(count, axis)
    center = tl.sum(mean * count, axis) / tl.where(total == 0, 1, total)
    delta = mean - tl.expand_dims(center, axis)
    return center, tl.sum(m2 + delta * delta * count, axis), total


@triton.jit
def softmax_update(largest, total, x):
    """One more value into a running maximum and the sum of exp(value - maximum) so far."""
    new_largest = maximum(largest, x)
    old_scale = tl.where(new_largest == float("-inf"), 1.0, tl.exp(largest - new_largest))
    new_scale = tl.where(new_largest == float("-inf"), 1.0, tl.exp(x - new_largest))
    return new_largest, total * old_scale + new_scale


@triton.jit
def softmax_along(largest, total, axis: tl.constexpr):
    """Running maxima and sums of exp(value - maximum) merged along an axis."""
    top = max_along(largest, axis)
    spread = tl.expand_dims(top, axis)
    scale = tl.where(spread == float("-inf"), 1.0, tl.exp(largest - spread))
    return top, tl.sum(total * scale, axis)


@triton.jit
def softmax_merge(largest_a, total_a, largest_b, total_b):
    """Two running maxima with their sums of exp(value - maximum) into one."""
    largest = maximum(largest_a, largest_b)
    scale_a = tl.where(largest == float("-inf"), 1.0, tl.exp(largest_a - largest))
    scale_b = tl.where(largest == float("-inf"), 1.0, tl.exp(largest_b - largest))
    return largest, total_a * scale_a + total_b * scale_b


@triton.jit
def log_add_exp(a, b):
    """log(exp(a) + exp(b)), of infinities too."""
    low, high = minimum(a, b), maximum(a, b)
    return tl.where((low != high) | (tl.abs(low) != float("inf")), high + libdevice.log1p(tl.exp(low - high)), a)


@triton.jit
def last_along(x, chosen, axis: tl.constexpr):
    """The one value along an axis where ``chosen`` is true."""
    return tl.sum(tl.where(chosen, x, 0), axis)


@triton.jit
def floor_div(a, b):
    """Integer division that rounds down; Triton's own rounds towards zero."""
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def floor_mod(a, b):
    """Remainder with the sign of the divisor, as torch.remainder."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def count_below(values, boundaries_ptr, size, total, stride, start, index_type: tl.constexpr, right: tl.constexpr):
    """How many of the sorted boundaries from ``start`` on are below each value; with ``right``, how many are not above it."""
    values += tl.zeros([], tl.int32) * start  # a block, though it may be a number
    low = tl.zeros(values.shape, index_type)
    high = low + size
    span = tl.full([], 1, tl.int32) + size
    while span > 1:
        middle = (low + high) // 2
        at = start + middle * stride
        boundary = tl.load(boundaries_ptr + at, (middle < size) & (at < total), other=0)
        beyond = (boundary > values) if right else (boundary >= values)  # false where either is NaN, as in torch
        low = tl.where(beyond | (middle >= size), low, middle + 1)
        high = tl.where(beyond, middle, high)
        span = (span + 1) // 2
    return low
