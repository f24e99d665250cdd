"""More ways of writing the same module: other names, another order of independent lines, other habits. The computation stays as it is."""

from __future__ import annotations

import ast
import builtins
import random
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from kernelllm.core.errors import UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.pairs.canonical import canonical
from kernelllm.pairs.row import Pair

_INPUTS: Final = ("x", "input", "inputs", "inp", "input_tensor", "tensor", "features", "data", "hidden_states", "a", "b", "y", "other", "t")
_LOCALS: Final = ("out", "output", "h", "z", "result", "hidden", "res", "tmp", "feat", "value", "y", "o")
_SIZES: Final = tuple(
    frozenset(group.split())
    for group in (
        "batch_size batch N B bs n_batch", "in_features dim input_size features d_in", "hidden_dim embed_dim d_model hidden_size",
        "out_features output_size d_out dim_out", "seq_len length T sequence_length n_tokens", "in_channels channels_in c_in C_in",
        "out_channels channels_out c_out C_out filters", "kernel_size k ksize kernel", "height H h img_h", "width W w img_w", "depth D d",
        "num_groups groups n_groups", "num_heads heads n_heads",
    )
)  # fmt: skip
"""Names that people give to the same thing."""
_FIXED: Final = frozenset(dir(builtins)) | {"self", "Model", "get_inputs", "get_init_inputs"}


def augmented(rows: Sequence[Pair], times: int, seed: int = 0) -> Iterator[Pair]:
    """All rows, and after each one of the split ``train`` up to ``times`` other writings of its module that differ from one another."""
    for row in rows:
        yield row
        if row.split != "train":
            continue
        rng = random.Random(f"{seed}/{row.uuid}")
        seen = {row.python_code}
        for number in range(times):
            text = rewritten(row.python_code, rng)
            if text not in seen:
                seen.add(text)
                again = str(uuid.uuid5(uuid.UUID(row.uuid[:36]), f"{seed}/{number}"))
                yield msgspec.structs.replace(row, python_code=text, uuid=again, augmented_from=row.uuid)


def rewritten(source: str, rng: random.Random) -> str:
    """The module in another writing. Layout, comments and the names of layers, parameters and buffers stay.

    The kernel's file has the same layers, parameters and buffers. A renaming that would change more than names is not done.
    """
    swapped = _swapped(source, rng)
    renamed = _renamed(swapped, rng)
    try:
        same = canonical(renamed) == canonical(swapped)
    except UsageError:
        same = False
    return _habits(renamed if same else swapped, rng)


def _renamed(source: str, rng: random.Random) -> str:
    """Arguments and local variables of the forward, and constants of the file, under other names."""
    tree = syntax_tree(source)
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} | _FIXED
    taken |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg}
    taken |= {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    names: dict[str, str] = {}

    def rename(name: str, pool: Sequence[str]) -> None:
        free = [p for p in pool if p not in taken and p not in names.values()]
        if free and name not in names and name not in _FIXED and rng.random() < 0.7:
            names[name] = rng.choice(free)

    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    rename(target.id, sorted(next((group for group in _SIZES if target.id in group), ())))
    for function in (f for c in tree.body if isinstance(c, ast.ClassDef) for f in c.body if isinstance(f, ast.FunctionDef)):
        if function.name == "forward":
            for argument in function.args.args[1:]:
                rename(argument.arg, _INPUTS)
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    rename(node.id, _LOCALS)
    if any(isinstance(n, ast.Global | ast.Nonlocal | ast.JoinedStr) for n in ast.walk(tree)):
        return source
    places = [(n.lineno, n.col_offset, n.id) for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in names]
    places += [(n.lineno, n.col_offset, n.arg) for n in ast.walk(tree) if isinstance(n, ast.arg) and n.arg in names]
    lines = [line.encode() for line in source.split("\n")]  # columns of the syntax tree count bytes
    for line, column, name in sorted(places, reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + names[name].encode() + text[column + len(name.encode()) :]
    return b"\n".join(lines).decode()


def _swapped(source: str, rng: random.Random) -> str:
    """Neighbouring lines of the forward that do not depend on each other, some of them in the other order."""
    lines = source.split("\n")
    for statements in (f.body for f in ast.walk(syntax_tree(source)) if isinstance(f, ast.FunctionDef) and f.name == "forward"):
        index = 0
        while index + 1 < len(statements):
            first, second = statements[index : index + 2]
            if _independent(first, second) and rng.random() < 0.5:
                a, b = first.lineno - 1, second.lineno - 1
                lines[a], lines[b] = lines[b], lines[a]
                index += 1
            index += 1
    return "\n".join(lines)


def _independent(first: ast.stmt, second: ast.stmt) -> bool:
    """Both are one line that assigns plain names, neither reads or writes what the other writes, and nothing works in place."""
    written: list[set[str]] = []
    read: list[set[str]] = []
    for s in (first, second):
        if not isinstance(s, ast.Assign) or s.lineno != s.end_lineno or not all(isinstance(t, ast.Name) for t in s.targets):
            return False
        called = [n.func.attr for n in ast.walk(s.value) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        if any(name.endswith("_") or "drop" in name or "rand" in name for name in called):
            return False
        written.append({t.id for t in s.targets if isinstance(t, ast.Name)})
        read.append({n.id for n in ast.walk(s.value) if isinstance(n, ast.Name)})
    return not (written[0] & (read[1] | written[1]) or written[1] & read[0])


def _habits(source: str, rng: random.Random) -> str:
    """What people write in one way or another without a difference."""
    if rng.random() < 0.5:
        source = re.sub(r"super\(\w+, self\)\.__init__\(\)", "super().__init__()", source)
    elif rng.random() < 0.5:
        source = re.sub(r"(class (\w+)\(.*?)super\(\)\.__init__\(\)", r"\1super(\2, self).__init__()", source, count=1, flags=re.S)
    if rng.random() < 0.3:
        source = source.replace("import torch.nn as nn\n", "from torch import nn\n")
    if rng.random() < 0.3:
        source = re.sub(r'(class \w+\(.*?\):\n)    """[^"]*"""\n\n?', r"\1", source, count=1)
    if rng.random() < 0.3:
        source = re.sub(r"\n\n\n+(?=\S)", "\n\n", source)
    return source
