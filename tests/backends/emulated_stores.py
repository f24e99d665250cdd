"""Run with TRITON_INTERPRET=1: what is left of kernels stores where they store, and computes nothing else. One line a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from kernelllm.backends.triton.emulator import emulated_launches, functions, interpreter, store_slicing
from kernelllm.backends.triton.emulator.sampling import Sampling
from kernelllm.backends.triton.emulator.written_elements import WrittenElements

interpreter.install()


@JITFunction  # as in a worker
def keep(pointer, places, value, mask):
    value = tl.exp(value * 0.1)
    tl.store(pointer + places, value, mask=mask)


@JITFunction
def half(value):
    return value * 0.5


@JITFunction
def with_helpers(x, y, n, B: tl.constexpr, F: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, i < n, other=0.0)
    for _ in range(3):
        value = F(value) + tl.sum(value)
    keep(y, i, value, mask=i < n - 5)


@JITFunction
def with_loops(x, y, n, B: tl.constexpr, F: tl.constexpr):
    pid = tl.program_id(0)
    if pid == 3:
        return
    step = 0
    total = tl.zeros((B,), tl.float32)
    while step < 4:
        total += F(tl.load(x + step * B + tl.arange(0, B)))
        step += 1
    for part in range(pid * B, n, B * tl.num_programs(0)):
        i = part + tl.arange(0, B)
        if pid % 2 == 0:
            tl.store(y + i, total, mask=(i < n) & (i % 3 != 0))
        else:
            y += 1
            tl.store(y - 1 + i, total, mask=i < n)
            y -= 1


@JITFunction
def with_places_that_are_loaded(x, y, n, B: tl.constexpr, F: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = F(tl.load(x + i, i < n, other=0.0))
    tl.store(y + (tl.abs(tl.load(x + i, i < n, other=0.0)) * 100).to(tl.int32) % n, value, mask=i < n)


@JITFunction
def with_atomics(x, y, n, B: tl.constexpr, F: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    old = tl.atomic_add(y + i // 2, F(tl.load(x + i, i < n, other=0.0)), mask=i < n)
    old += 1


@JITFunction
def with_blocks(x, y, n, B: tl.constexpr, F: tl.constexpr):
    at = tl.make_block_ptr(y, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    tl.store(at, F(tl.load(x + tl.arange(0, B))), boundary_check=(0,))


@JITFunction
def with_descriptors(x, y, n, B: tl.constexpr, F: tl.constexpr):
    out = tl.make_tensor_descriptor(y, [n // 4, 4], [4, 1], [B, 4])
    value = F(tl.load(x + tl.arange(0, B)))
    out.store([tl.program_id(0) * B, 0], tl.zeros([B, 4], tl.float32) + value[:, None])


@JITFunction
def with_one_of_two_tensors(x, y, n, B: tl.constexpr, F: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(tl.where(tl.program_id(1) == 1, y, x) + i, F(i.to(tl.float32)), mask=i < n)


@JITFunction
def where_an_atomic_decides(x, y, n, B: tl.constexpr, F: tl.constexpr):
    if tl.atomic_add(y + n - 1, 1.0) == 2.0:
        tl.store(y + tl.arange(0, B), F(tl.load(x + tl.arange(0, B))))


@contextmanager
def marking() -> Iterator[Sampling]:
    with Sampling(0, 100.0) as run:
        yield run


def main() -> None:
    found: list[Any] = []
    cover: Callable[..., None] = emulated_launches.coverage.cover

    def both(kernel: Any, executor: Any, grid: Any, run: Sampling) -> None:
        """After a launch that was whole, its stores once more, as if programs had been left out."""
        whole, flops = run.marks, functions.Arithmetic.flops
        run.marks, run._ran = WrittenElements(), run._ran - 1
        values = [tensor.clone() for tensor in (x, y)]
        cover(kernel, executor, grid, run)
        assert all(torch.equal(*pair) for pair in zip(values, (x, y), strict=True))
        assert functions.Arithmetic.flops == flops
        found.append((whole.holes(y, y.untyped_storage().data_ptr()), run.marks.holes(y, y.untyped_storage().data_ptr())))
        run._ran += 1

    emulated_launches.coverage.cover = both
    n = 6300
    x, y = torch.randn(n), torch.zeros(n)
    for kernel in (with_helpers, with_loops, with_places_that_are_loaded, with_atomics, with_blocks, with_descriptors):
        y.zero_()
        with marking():
            kernel[(triton.cdiv(n, 2 * 64) if kernel is with_loops else triton.cdiv(n, 64),)](x, y, n, B=64, F=half)
        whole, told = found.pop()
        assert told is not None, kernel
        assert torch.equal(whole, told), kernel
        assert len(whole) < n, kernel
        print(kernel.fn.__name__)  # noqa: T201
    with marking() as run:
        with_one_of_two_tensors[(triton.cdiv(n, 64), 2)](x, y, n, B=64, F=half)
    for written in map(run.written, (x, y)):
        assert written is None or written[1] >= n, written[1]
    print(with_one_of_two_tensors.fn.__name__)  # noqa: T201
    assert store_slicing.stores_of(where_an_atomic_decides.fn, {"F": half}) is None
    print(where_an_atomic_decides.fn.__name__)  # noqa: T201


main()
