"""How much memory a program of a compiled kernel can write at most, read from Triton's intermediate representation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(r"%[\w$.-]+")
_ITERATED = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+)")
_BLOCK = re.compile(r"tensor<((?:\d+x)+)")
_STORES = ("tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce",
           "tt.experimental_descriptor_store", "ttng.")  # fmt: skip


@dataclass(frozen=True)
class StoreInstruction:
    """One instruction that writes. ``parameter``: the kernel's that its pointers are made of, None where that cannot be told;
    ``elements``: how many a program writes at most, infinite in a loop."""

    parameter: str | None
    elements: float


def stores(ttir: str) -> list[StoreInstruction]:
    """All that a kernel stores to, its helpers inlined."""
    return list(_stores(ttir.splitlines()))


def _stores(lines: list[str]) -> Iterator[StoreInstruction]:
    origin: dict[str, set[str]] = {}
    loops: list[int] = []
    for line in lines:
        text = line.split(" loc(")[0] if "tt.func" not in line else line
        code, indent = text.strip(), len(text) - len(text.lstrip())
        if code.startswith("tt.func"):
            origin.update({name: {name[1:]} for name in re.findall(r"(%[\w$.-]+): !tt\.(?:ptr|tensordesc)", code)})
            continue
        if code.startswith("}") and loops and indent <= loops[-1]:
            loops.pop()
        target, _, right = code.partition(" = ") if code.startswith("%") else ("", "", code)
        if right.startswith(("scf.for", "scf.while")):
            loops.append(indent)
            for inner, outer in _ITERATED.findall(right):
                origin.setdefault(inner, set()).update(origin.get(outer, ()))
        if right.startswith(_STORES):
            where = _NAME.search(right)
            known = origin.get(where[0], set()) if where else set()
            yield StoreInstruction(next(iter(known)) if len(known) == 1 else None, math.inf if loops else _elements(right))
        elif right.startswith(("tt.call", "scf.while")):
            yield StoreInstruction(None, math.inf)
        if target and not right.startswith("tt.load"):
            made = set().union(*(origin.get(name, set()) for name in _NAME.findall(right)))
            if made:
                origin[target.split(":")[0]] = made


def _elements(code: str) -> float:
    blocks = _BLOCK.findall(code.rpartition(" : ")[2] if " : " in code else code)
    return float(max((math.prod(int(size) for size in shape.split("x") if size) for shape in blocks), default=1))
