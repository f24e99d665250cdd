"""The strides at which a reduction reads memory, from the addresses of a few elements, where Inductor's hints leave it open."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from kernelllm.compiler.inductor.kernel_source import Kernel

_NEAR = 16
"""Bytes between neighbours that one thread or the next reads with one access."""
_PROBES = ((0, 0), (3, 8), (10, 33))


def reads_along_rows(kernel: Kernel) -> bool:
    """Whether most bytes that depend on row and column lie side by side along the reduction."""
    along = across = 0  # bytes
    for x, r in _PROBES:
        here, right, below = (_addresses(kernel, *at) for at in ((x, r), (x, r + 1), (x + 1, r)))
        for pointer, address in here.items():
            size = _bytes(kernel.signature.get(pointer[0], ""))
            if address is None:
                continue
            step, stride = (abs((other.get(pointer) or 0) - address) * size for other in (right, below))
            along += size * (0 < step <= _NEAR < stride)
            across += size * (0 < stride <= _NEAR < step)
    return along > across


def gathers(kernel: Kernel) -> bool:
    """Whether an address depends on what another load has brought."""
    return None in _addresses(kernel, 0, 0).values()


def _addresses(kernel: Kernel, x: int, r: int) -> dict[tuple[str, int], int | None]:
    """The element that each load reads for row x and column r, by pointer and place in the kernel; None where other data tell.

    Sizes that vary are taken for 1,024.
    """
    values: dict[str, Any] = {p: 0 if "_ptr" in p else 1024 for p in kernel.params}
    values |= {f"{axis}numel": size for axis, size in kernel.hints.items()}
    given = {"xindex": x, "r0_index": r, "rindex": r}
    found: dict[tuple[str, int], int | None] = {}
    brought: set[str] = set()
    """Variables that hold what a load has brought, or follow from it."""
    for place, node in enumerate(_statements(kernel.function.body)):
        loads = [n for n in ast.walk(node.value) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.load"]
        for load in loads:
            names, address = _names(load.args[0]), _value(load.args[0], values | given)
            pointer = next((n for n in names if "_ptr" in n), "")
            if brought & names or isinstance(address, int):
                found[pointer, place] = None if brought & names else address
        if isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = _value(node.value, values | given)
            brought |= {node.targets[0].id} if loads or brought & _names(node.value) else set()
    return found


def _names(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.Assign]:
    for node in body:
        if isinstance(node, ast.Assign):
            yield node
        elif isinstance(node, ast.For):
            yield from _statements(node.body)


def _value(node: ast.expr, values: dict[str, Any]) -> Any:
    """What an expression of indices comes to; None where it holds anything else."""
    if isinstance(node, ast.Call):
        return None
    try:
        return eval(compile(ast.Expression(node), "index", "eval"), {"__builtins__": {}}, values)
    except (NameError, TypeError, AttributeError, ZeroDivisionError):
        return None


def _bytes(kind: str) -> int:
    return {"8": 1, "6": 2, "2": 4, "4": 8}.get(kind[-1:], 1)


__all__ = ["gathers", "reads_along_rows"]
