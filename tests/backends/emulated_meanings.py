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


def main() -> None:
    for function in CASES:
        function()
        print(function.__name__)  # noqa: T201


if __name__ == "__main__":
    main()
