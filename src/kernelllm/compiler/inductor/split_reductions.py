"""Split reductions whose number of parts follows the sizes.

Inductor splits a long reduction into a fixed number of parts, chosen for the sizes it sees. That number then sits in
shapes, strides and index arithmetic, so at other sizes most parts are empty or each is far too long. Here the number is
marked while Inductor writes (a prime that means nothing else), and the emitter puts a variable in its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.capture.staged_reductions import LONG

SMALLEST = 64
"""Splits into fewer parts stay plain numbers: a small prime could mean something else."""


_LENGTHS: dict[int, Any] = {}


def mark(parts: int, length: Any = None) -> int:
    """The largest prime at most 31/32 of ``parts`` that marks no other length: no multiple of a tile, nor one beside a power of two."""
    candidate = parts * 31 // 32
    while not is_prime(candidate) or _LENGTHS.get(candidate, length) != length:
        candidate -= 1
    return candidate


def lengths() -> dict[int, Any]:
    """Marks given out since :func:`marked` was opened, with the length that each splits."""
    return _LENGTHS


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


@contextmanager
def marked(*, marks: bool = True) -> Iterator[None]:
    """While open, Inductor's split reductions of symbolic length have a marked number of parts (unless sizes are fixed); running sums
    are not split."""
    from torch._inductor.ir import Reduction, Scan
    from torch._inductor.virtualized import V

    plain, scan = Reduction.num_splits, Scan.num_splits
    names = list(inspect.signature(plain).parameters)
    _LENGTHS.clear()

    def num_splits(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        given = dict(zip(names, args, strict=False)) | kwargs
        hint, parts = plain(*args, **kwargs)
        length = given["reduction_numel"]
        if parts != 1 and (V.graph.sizevars.optimization_hint(length) <= LONG or set(given["ranges"]) & set(_LENGTHS)):
            return hint, 1  # one program does it, or it is a part already
        if isinstance(parts, int) and parts >= SMALLEST:
            made = mark(parts, length)
            if made >= SMALLEST // 2:
                _LENGTHS[made] = length
                return hint, made
        return hint, parts

    def in_one(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return scan(*args, **kwargs)[0], 1  # a split scan needs Inductor's runtime: its programs hand results on through memory

    with ExitStack() as stack:
        if marks:
            patch(stack, Reduction, "num_splits", staticmethod(num_splits))
        patch(stack, Scan, "num_splits", staticmethod(in_one))
        yield
