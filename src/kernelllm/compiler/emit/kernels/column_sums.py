"""Sums across memory: tiles of neighbours, which are summed as they come where they are shallow.

Columns that are counted through all rows (``index % 4095``) are no neighbours to Triton, unless blocks divide their number: it gives the
threads of a warp to different rows, each of which reads a sector for itself. Here each program has columns of one outer index.

A loop keeps a sum for each element of a tile. Where a tile has few rows, one sum a column leaves registers for more loads under way: of
128 x 4,096 x 4,095 floats, the sum over the middle took 1.95 ms on an H200, and 2.05 to 2.11 with a sum an element, whatever the tile.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

from kernelllm.core.text import syntax_tree

SHALLOW = 4
"""Rows of a tile up to which it is summed at once."""
NARROWEST = 512
"""Columns below which blocks that end with them would be left half empty."""
_ZEROS = re.compile(r"tl\.zeros\(\[XBLOCK, R0_BLOCK\], tl\.float32\)")


def summed(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a kernel with its sums of elements kept by column where blocks are shallow, in place."""
    for place, statement in enumerate(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as zeros) if _ZEROS.fullmatch(ast.unparse(zeros)):
                loops = [s for s in body[place + 1 :] if isinstance(s, ast.For) and _names(s, name)]
                added = [s for loop in loops for s in loop.body if isinstance(s, ast.AugAssign) and ast.unparse(s.target) == name]
                rest = [s for s in body[place + 1 :] if s not in loops]
                if len(loops) == 1 and _sums_tiles(loops[0], added, name) and _is_summed(rest, name):
                    statement.value = _tree(f"tl.zeros([XBLOCK, R0_BLOCK if R0_BLOCK > {SHALLOW} else 1], tl.float32)")
                    value = ast.unparse(added[0].value)
                    added[0].value = _tree(f"{value} if R0_BLOCK > {SHALLOW} else tl.sum({value}, 1)[:, None]")
    return body


def by_outer_index(body: list[ast.stmt], blocks: Collection[int]) -> int:
    """Let each program have columns of one outer index, in place. Returns how many columns there are, 0 where nothing was done.

    ``blocks``: how many columns a program may have.
    """
    texts = {ast.unparse(s): at for at, s in enumerate(body)}
    start, mask = "xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]", "xmask = xindex < xnumel"
    split = re.search(r"^(x\d+) = xindex % (\d+)$", "\n".join(texts), re.MULTILINE)
    outer = split and re.search(rf"^(x\d+) = xindex // {split[2]}$", "\n".join(texts), re.MULTILINE)
    if split is None or outer is None or start not in texts or mask not in texts:
        return 0
    columns = int(split[2])
    if columns < NARROWEST or all(columns % block == 0 for block in blocks):
        return 0
    tiles = f"(({columns} + XBLOCK - 1) // XBLOCK)"
    made = [
        f"{outer[1]} = tl.program_id(0) // {tiles}",
        f"{split[1]} = tl.program_id(0) % {tiles} * XBLOCK + tl.arange(0, XBLOCK)[:, None]",
        f"xmask = {split[1]} < {columns}", f"xindex = {outer[1]} * {columns} + {split[1]}",
    ]  # fmt: skip
    gone = {texts[t] for t in (start, mask, split[0], outer[0])}
    body[:] = [*syntax_tree("\n".join(made)).body, *(s for at, s in enumerate(body) if at not in gone)]
    return columns


def _sums_tiles(loop: ast.For, added: list[ast.AugAssign], name: str) -> bool:
    """Whether a loop adds one value to a sum, which depends on row and column, and reads the sum nowhere else."""
    if len(added) != 1 or not isinstance(added[0].op, ast.Add) or _names(loop, name) != 1:
        return False
    return {"xindex", "r0_index"} <= _origins(loop.body, added[0].value)


def _origins(body: Sequence[ast.stmt], value: ast.expr) -> set[str]:
    """The names from which a value comes, through assignments of the loop and plain positions ahead of it."""
    made = {ast.unparse(s.targets[0]): s.value for s in body if isinstance(s, ast.Assign)}
    found: set[str] = set()
    todo = [value]
    while todo:
        new = {n.id for n in ast.walk(todo.pop()) if isinstance(n, ast.Name)} - found
        found |= new
        todo += [made[n] for n in new if n in made]
    return found | ({"xindex"} if any(re.fullmatch(r"x\d+", n) for n in found) else set())


def _is_summed(rest: Sequence[ast.stmt], name: str) -> bool:
    """Whether each use of a sum behind the loop is that of its total."""
    text = "\n".join(map(ast.unparse, rest))
    return len(re.findall(rf"\b{name}\b", text)) == text.count(f"tl.sum({name}, 1)[:, None]")


def _names(node: ast.AST, name: str) -> int:
    return sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _tree(text: str) -> ast.expr:
    return syntax_tree(text, mode="eval").body


__all__ = ["by_outer_index", "summed"]
