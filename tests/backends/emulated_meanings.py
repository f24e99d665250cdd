"""Run with TRITON_INTERPRET=1: what kernels say means in the emulator what it means to Triton's compiler. One line a case."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from kernelllm.backends.triton.emulator import interpreter

interpreter.install()

CASES: list[Callable[[], None]] = []


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


@triton.jit
def words_kernel(out, flag: tl.constexpr, absent):
    i = tl.arange(0, 8)
    low, even = i < 4, i % 2 == 0
    tl.store(out + i, (low and even).to(tl.int32))
    tl.store(out + 8 + i, (low or even).to(tl.int32))
    tl.store(out + 16 + i, (not low).to(tl.int32))
    tl.store(out + 24 + i, (low and even and not flag) + i * 0)
    tl.store(out + 32 + i, (flag or low or even) + i * 0)
    if not flag or (absent is not None and tl.load(absent) > 0):
        tl.store(out + i, i)


@case
def words_are_lane_by_lane_on_blocks_and_pythons_on_constants() -> None:
    out = torch.zeros(40, dtype=torch.int32)
    words_kernel[(1,)](out, True, None)
    i = torch.arange(8)
    low, even = i < 4, i % 2 == 0
    assert torch.equal(out.view(5, 8), torch.stack([low & even, low | even, ~low, low & False, low | True]).int())


@triton.jit
def flipped_kernel(x, out):
    i = tl.arange(0, 8)
    tl.store(out + i, ~tl.load(x + i))


@case
def bits_of_unsigned_numbers_are_flipped() -> None:
    for kind in (torch.uint8, torch.int8, torch.int32, torch.bool):
        x = torch.tensor([0, 1, 2, 3, 100, 120, 126, 127]).to(kind)
        out = torch.zeros_like(x)
        flipped_kernel[(1,)](x, out)
        assert torch.equal(out, ~x), kind


@triton.jit
def bfloat16_sums_kernel(into, places, values, found, n):
    i = tl.arange(0, 8)
    before = tl.atomic_add(into + tl.load(places + i), tl.load(values + i), i < n, sem="relaxed")
    tl.store(found + i, before, i < n)


@case
def atomic_sums_of_bfloat16_are_rounded_one_by_one() -> None:
    into, found = torch.tensor([256.0, 0.0, 3.0]).bfloat16(), torch.zeros(8).bfloat16()
    values = torch.tensor([1.0, 1.0, 1.0, 0.5, 0.25, 1.0, 9.0, 9.0]).bfloat16()
    bfloat16_sums_kernel[(1,)](into, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]), values, found, 6)
    assert into.tolist() == [256.0, 0.75, 4.0]  # 257 is no bfloat16
    assert found[:6].tolist() == [256.0, 256.0, 256.0, 0.0, 0.5, 3.0]


@triton.jit
def scalar_words_kernel(out, n, flag):
    p = tl.program_id(0)
    inside = p > 1 and p < n
    tl.store(out + p, (not inside).to(tl.int32) + 10 * (p == 0 or not flag).to(tl.int32))
    steps, done = 0, False
    while not done and steps < 5:
        done = steps == p or not (steps < n)
        steps += 1
    tl.store(out + 8 + p, steps)


@case
def words_are_decided_for_each_program() -> None:
    out = torch.zeros(16, dtype=torch.int32)
    scalar_words_kernel[(8,)](out, 4, True)
    assert out.view(2, 8).tolist() == [[11, 1, 0, 0, 1, 1, 1, 1], [1, 2, 3, 4, 5, 5, 5, 5]]


@triton.jit
def floats_kernel(out, halves, doubles, tenth, huge, exact: tl.float64, both):
    i = tl.arange(0, 4)
    tl.static_assert(tenth.dtype == tl.float32)
    tl.static_assert((tl.load(halves + i) * tenth).dtype == tl.float32)
    tl.static_assert((tl.load(halves + i) * 0.1).dtype == tl.float16)
    tl.store(out + i, tl.load(doubles + i) * tenth)
    tl.store(out + 4 + i, tl.load(doubles + i) * exact)
    tl.store(out + 8 + i, tl.load(doubles + i) * 0.1)
    tl.store(out + 12 + i, huge.to(tl.float64) + i)
    tl.store(out + 16 + i, both[1].to(tl.float64) + i * 0)


@case
def numbers_that_are_handed_over_are_single() -> None:
    out, doubles = torch.zeros(20, dtype=torch.float64), torch.arange(4, dtype=torch.float64)
    floats_kernel[(1,)](out, torch.ones(4, dtype=torch.float16), doubles, 0.1, 1e300, 0.1, (3, 0.1))
    single = float(torch.tensor(0.1))
    infinite = torch.full((4,), float("inf"), dtype=torch.float64)
    wanted = torch.stack([doubles * single, doubles * 0.1, doubles * 0.1, infinite, torch.full_like(doubles, single)])
    assert torch.equal(out.view(5, 4), wanted)


@triton.jit
def loops_kernel(out, n, far):
    for i in range(n):
        tl.static_assert(i.dtype == tl.int32)
        tl.store(out + i, i.to(tl.int64) * 2147483647)
    for i in tl.range(n - 1, -1, -1, num_stages=1):
        tl.store(out + 4 + i, (i - 2) // 2)
    for i in tl.range(far, far + 4):
        tl.static_assert(i.dtype == tl.int64)
        tl.store(out + 8 + (i - far), i)
    for i in tl.static_range(4):
        tl.static_assert(i < 4)
        tl.store(out + 12 + i, tl.program_id(i // 2).to(tl.int64) + i)


@case
def loops_count_in_scalars() -> None:
    out = torch.zeros(16, dtype=torch.int64)
    loops_kernel[(1,)](out, 4, 2**40)
    i = torch.arange(4)
    assert torch.equal(out.view(4, 4), torch.stack([i * (2**31 - 1), torch.tensor([-1, 0, 0, 0]), i + 2**40, i]))


@triton.jit
def later(a, b):
    return tl.where(b > 0, b, a)


@triton.jit
def between(a, b):
    return (a + b) * 0.5


@triton.jit
def larger(a, i, b, j):
    takes = (a > b) | ((a == b) & (i < j))
    return tl.where(takes, a, b), tl.where(takes, i, j)


@triton.jit
def exponents(m, s, n, t):
    top = tl.maximum(m, n)
    return top, s * tl.exp(m - top) + t * tl.exp(n - top)


@triton.jit
def reductions_kernel(x_ptr, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out, tl.reduce(x, 0, later))
    tl.store(out + 1, tl.reduce(x, 0, between))
    value, place = tl.reduce((x, i), 0, larger)
    tl.store(out + 2, value)
    tl.store(out + 3, place)
    top, total = tl.reduce((x, x * 0 + 1), 0, exponents)
    tl.store(out + 4, top + tl.log(total))


@case
def reductions_have_no_order() -> None:
    for n in (4, 8, 64):
        x, out = torch.arange(n, dtype=torch.float32).remainder(n - 1).neg(), torch.zeros(5)
        x[n // 4], x[n // 2] = 2.0, 3.0
        x[n // 2 - 1] = 3.0
        reductions_kernel[(1,)](x, out, n)
        assert out[2:4].tolist() == [3.0, n // 2 - 1]
        torch.testing.assert_close(out[4], torch.logsumexp(x, 0))
        rising = torch.arange(1.0, n + 1)
        reductions_kernel[(1,)](rising, out, n)
        assert out[0] == n  # the last is the last in any tree
        x[:] = 0
        x[1], x[n // 2] = 1.0, 2.0
        reductions_kernel[(1,)](x, out, n)
        assert out[0] == 1.0
        assert n < 8 or out[1] != x.mean()


@triton.jit
def hints_kernel(x_ptr, out, n, start, GROUP: tl.constexpr, KIND: tl.constexpr):
    i = start + tl.arange(0, 32)
    if KIND == "wraps":
        i = tl.max_contiguous(tl.multiple_of(i % n, 32), 32)
    elif KIND == "clamps":
        i = tl.max_contiguous(tl.multiple_of(tl.where(i < n, i, 0), 32), 32)
    elif KIND == "stays":
        i = tl.max_contiguous(tl.multiple_of(tl.minimum(i, n - 1), 32), 32)
    elif KIND == "scalar":
        tl.multiple_of(n, GROUP)
    elif KIND == "multiple":
        tl.multiple_of(i, GROUP)
    elif KIND == "strided":
        tl.max_contiguous(i * 2, GROUP)
    elif KIND == "backwards":
        tl.max_contiguous(n - i, GROUP)
    elif KIND == "repeated":
        tl.max_contiguous(i // 4, GROUP)
    elif KIND == "pointer":
        tl.multiple_of(x_ptr + i[None, :], (1, GROUP))
    elif KIND == "constant":
        tl.max_constancy(i // 4, GROUP)
    else:
        tl.assume(n >= GROUP)
    tl.store(out + tl.arange(0, 32), i)


@case
def hints_must_hold() -> None:
    x, out = torch.zeros(64), torch.zeros(32, dtype=torch.int32)
    cases = [
        ("wraps", 50, 32, 1, True), ("clamps", 50, 32, 1, True), ("stays", 50, 32, 1, True), ("wraps", 50, 8, 1, False),
        ("scalar", 48, 0, 16, True), ("scalar", 50, 0, 16, False), ("scalar", 50, 0, 2, True), ("scalar", 48, 0, 128, True),
        ("multiple", 0, 16, 16, True), ("multiple", 0, 8, 16, False), ("strided", 0, 0, 4, False), ("strided", 0, 0, 1, True),
        ("backwards", 31, 0, 8, False), ("repeated", 0, 0, 8, False), ("pointer", 0, 4, 16, True), ("pointer", 0, 1, 16, False),
        ("constant", 0, 0, 4, True), ("constant", 0, 0, 8, False), ("assume", 3, 0, 4, False), ("assume", 4, 0, 4, True),
    ]  # fmt: skip
    for kind, n, start, number, holds in cases:
        told = ""
        try:
            hints_kernel[(2,)](x, out, n, start, number, kind)
        except Exception as error:  # noqa: BLE001 - looked at below
            told = str(error)
        assert ("a false hint" in told) is not holds, (kind, n, start, number, told)


def main() -> None:
    for function in CASES:
        function()
        print(function.__name__)  # noqa: T201


if __name__ == "__main__":
    main()
