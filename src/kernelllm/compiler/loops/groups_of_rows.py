"""Steps in which each element of a state depends on its whole group (CRF, Viterbi, HMM) get one program for each group.

That is the recursion of a conditional random field, of Viterbi's algorithm and of hidden Markov models: ``score[j]`` follows from
``score[i] + transitions[i, j]`` over all i. A kernel over rows j reads its group's state along its columns. With all rows of a group in
one program, what it reads there is what it holds, turned.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.loops.inside_kernel import Unfit, need, place_of, span
from kernelllm.compiler.loops.joined_kernels import RowKernel, step_and_launches
from kernelllm.core.text import syntax_tree

_WIDEST = 128
"""Numbers of a group up to which a tile of them by themselves fits into a program's registers."""


def with_groups(source: str) -> str:
    """The file with a program for each group in the step's kernel, or as it is."""
    tree = syntax_tree(source)
    try:
        step, launches = step_and_launches(tree)
        need(len(launches) == 1)
        kernel = RowKernel(tree, launches[0].value)
        spans = [(span(kernel.node), kernel.node, 0), (span(step), step, 4)]
        _turned(kernel)
        _launched(kernel)
    except (Unfit, StopIteration, KeyError, AttributeError, IndexError):  # a node is not of the kind that it must be
        return source
    return formatting.replaced(source, spans)


def _width(kernel: RowKernel) -> str:
    """How many columns there are, as the kernel says it."""
    return ast.unparse(kernel.defined["col_mask"]).removeprefix("cols < ")


def _widths(kernel: RowKernel) -> set[str]:
    """How a kernel may say how many columns there are: a number that is known stands in it as such."""
    width = _width(kernel)
    return {width, kernel.given.get(width, kernel.named.get(width, width))}


def _turned(kernel: RowKernel) -> None:
    """Rows of one group, and what is read along its columns made of what is read at the rows."""
    width, widths = _width(kernel), _widths(kernel)
    groups = {name for name, value in kernel.defined.items() if ast.unparse(value) in {f"rows // {w}" for w in widths}}
    each = [(group, w) for group in groups for w in widths]
    whole = {f"{group} * {w} + cols" for group, w in each} | {f"cols + {group} * {w}" for group, w in each}
    along: dict[str, str] = {}
    """Pointer to what is read along the columns."""
    own: dict[str, str] = {}
    for name, value in kernel.defined.items():
        call = value if isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.load" else None
        if call is None or not isinstance(call.args[0], ast.BinOp):
            continue
        pointer = ast.unparse(call.args[0].left)
        if place_of(call, pointer) in whole:
            need(pointer not in along and all(k.arg != "other" or ast.unparse(k.value) in ("0.0", "0") for k in call.keywords))
            along[pointer] = name
        elif place_of(call, pointer) == "rows":
            own[pointer] = name
    need(along)
    body: list[Any] = []
    for statement in kernel.node.body:
        target = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
        if target == "rows":
            text = f"rows = tl.program_id(0) * {width} + tl.arange(0, BLOCK_ROWS)[:, None]"
        elif target == "row_mask":
            text = f"row_mask = tl.arange(0, BLOCK_ROWS)[:, None] < {width}"
        elif target in along.values():
            pointer = next(p for p, name in along.items() if name == target)
            held = own.get(pointer, f"{target}_held")
            need(held in own.values() or not {held} & {*kernel.defined, *kernel.names})
            text = f"{held} = tl.load({pointer} + rows, row_mask, other=0)\n{target} = tl.where(col_mask, tl.trans({held}), 0)"
        elif target in own.values() and next(p for p, name in own.items() if name == target) in along:
            continue
        else:
            body.append(statement)
            continue
        body += syntax_tree(text).body
    kernel.node.body = body


def _launched(kernel: RowKernel) -> None:
    """A program for each group, with a tile of rows and columns alike."""
    block = kernel.named["BLOCK_COLS"]
    widest = max(map(int, re.findall(r"\d+", block)), default=_WIDEST + 1)
    need(widest <= _WIDEST)
    width = _width(kernel)
    place = kernel.names.index("n_rows")
    grid = f"({kernel.given['n_rows']} // {kernel.given.get(width, width)},)"
    kernel.launch.func.slice = syntax_tree(grid, mode="eval").body
    del kernel.launch.args[place], kernel.node.args.args[place]
    for keyword in kernel.launch.keywords:
        if keyword.arg in ("BLOCK_ROWS", "num_warps"):
            text = block if keyword.arg == "BLOCK_ROWS" else "4" if widest <= _WIDEST // 2 else "8"
            keyword.value = syntax_tree(text, mode="eval").body


__all__ = ["with_groups"]
