"""Pairs again under other names, in the module and in its kernel alike: names are to be copied, not known by heart."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from kernelllm.core.text import parse
from kernelllm.train.parallel import mapped

if TYPE_CHECKING:
    from kernelllm.pairs.row import Pair

_TENSORS: Final = (
    "x", "y", "z", "a", "b", "A", "B", "X", "t", "inp", "inputs", "data", "feats", "hidden", "tensor", "src", "left", "right",
    "first", "second", "values", "scores", "target", "targets", "preds", "mask", "query", "key", "value", "input_tensor", "hidden_states",
)  # fmt: skip
_NUMBERS: Final = (
    "batch", "batch_size", "bs", "n", "m", "k", "N", "M", "K", "L", "rows", "cols", "dim", "dim1", "dim2", "features", "num_features",
    "channels", "width", "height", "depth", "length", "seq_len", "hidden_size", "size", "n_items", "in_features", "out_features", "steps",
)  # fmt: skip
_GAP: Final = "\n\n\n"
"""Between the functions and classes of a file."""


def renamed_copies(rows: Sequence[Pair], times: int, seed: int = 0) -> list[Pair]:
    """Up to ``times`` copies of each pair that differ from it and from each other."""
    plain = [row for row in rows if row.kind == "pair"] if times else []
    found = mapped(partial(_copies, times, seed), [(row.uuid, row.python_code, row.triton_code) for row in plain])
    return [
        msgspec.structs.replace(row, python_code=module, triton_code=kernel)
        for row, texts in zip(plain, found, strict=True)
        for module, kernel in texts
    ]


def _copies(times: int, seed: int, row: tuple[str, str, str]) -> list[tuple[str, str]]:
    uuid, module, kernel = row
    rng = random.Random(f"{seed}/{uuid}")
    return list({made[0]: made for made in (renamed(module, kernel, rng) for _ in range(times)) if made[0] != module}.values())


def renamed(module: str, kernel: str, rng: random.Random) -> tuple[str, str]:
    """Arguments of the forward and the file's constants under other names, in the module and where the kernel's file follows them.

    That is its class, for arguments also the kernels that the class starts: what other functions start are templates, the same in many
    files. A name stays where one of these texts has it as an attribute, a keyword, or as something of the file's own.
    """
    parts = kernel.split(_GAP)
    model = [i for i, part in enumerate(parts) if part.startswith("class ModelNew")]
    started = set(re.findall(r"\b(\w+)\[", parts[model[0]])) if model else set()
    named = {i: re.search(r"^def (\w+)", part, re.MULTILINE) for i, part in enumerate(parts) if part.startswith("@triton.jit")}
    kernels = [i for i, name in named.items() if name is not None and name[1] in started]
    taken = set(re.findall(r"[A-Za-z_]\w*", module + kernel))
    for name, pool in _names(module):
        own = [*model, *kernels] if pool is _TENSORS else model
        follows = _GAP.join(parts[i] for i in own)
        free = [other for other in pool if other not in taken]
        used_otherwise = re.compile(rf"\.{name}\b|[(,]\s*{name}=(?!=)|^(def|class) {name}\b", re.MULTILINE)
        if not free or rng.random() < 0.3 or used_otherwise.search(module) or used_otherwise.search(follows):
            continue
        if re.search(rf"^(def|class) {name}\b|^(import|from) .*\b{name}\b|^{name}\b", kernel, re.MULTILINE):
            continue
        new = rng.choice(free)
        taken.add(new)
        everywhere = re.compile(rf"\b{name}(?=\b|_ptr\b|_size\d|_dim\d)")
        module = everywhere.sub(new, module)
        for i in own:
            parts[i] = everywhere.sub(new, parts[i])
    return module, _GAP.join(parts)


def _names(module: str) -> Iterator[tuple[str, Sequence[str]]]:
    """(name, names that people give to such a thing)."""
    tree = parse(module)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant):
            yield node.targets[0].id, _NUMBERS
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            forwards = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "forward"]
            yield from ((a.arg, _TENSORS) for f in forwards for a in f.args.args[1:])
