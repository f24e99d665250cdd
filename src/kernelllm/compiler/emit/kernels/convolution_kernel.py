"""The text of a kernel that convolves and goes on with what another kernel does to each result: an implicit product of windows and weights.

The other kernel reads the convolution's result once, element by element or with all channels of a pixel. Its statements follow the product,
where a tile of pixels and channels is still in registers.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, field

import sympy

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.emit.ast_tools import Replace, all_reads
from kernelllm.compiler.emit.kernels import integers, transposed_convolution
from kernelllm.compiler.emit.kernels.convolution_shape import DIRECTIONS, Shape, joined, names, split, times
from kernelllm.compiler.emit.kernels.integer_text import FLOORDIV, MOD
from kernelllm.core.text import syntax_tree

_OWN = {
    "pixels", "channels", "image", "first", "acc", "step", "taken", "tap", "at", "inside", "window", "weight", "tiles", "phase", "places",
    "there", "start", "pairs", "paired", "acc_0", "acc_1",
    *(f"{name}{part}" for name in DIRECTIONS for part in ("", "_tap", "_to", "_from", "_first", "_taps", "_back")),
}  # fmt: skip
"""Names that the convolution has for itself."""


@dataclass
class Reader:
    """A kernel's text, taken apart: how it goes over the convolution's result."""

    function: ast.FunctionDef
    pointer: str
    """Its argument for that result."""
    load: ast.Assign
    tile: dict[str, str] = field(default_factory=dict)
    """Names of its indices, to what they are of pixels and channels."""
    whole_rows: bool = False
    """Whether it needs all channels of a pixel at once."""
    masked: bool = False
    """Whether it leaves out pixels behind the last one."""
    alike: bool = False
    """Whether it stores where it loads: channels last."""


def reader(text: str, pointer: str, shape: Shape) -> Reader | None:
    """None for a kernel that does not read each result once, in the place that the others have beside it."""
    function = next(s for s in syntax_tree(text).body if isinstance(s, ast.FunctionDef))
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    plain = all(isinstance(s, ast.Assign | ast.AnnAssign) or _is_store(s) for s in body)
    if not plain or _OWN & {*all_reads(body), *(a.arg for a in function.args.args)}:
        return None
    loads = [s for s in body if isinstance(s, ast.Assign) and f"tl.load({pointer} + " in ast.unparse(s)]
    written = sum(isinstance(s, ast.Expr) and f"tl.store({pointer} + " in ast.unparse(s) for s in body)
    uses = sum(isinstance(n, ast.Name) and n.id == pointer for s in body for n in ast.walk(s))
    if len(loads) != 1 or uses != 1 + written or not _is_load(loads[0].value, pointer):
        return None
    found = Reader(function, pointer, loads[0])
    return found if _tiled(found, body, shape) else None


def at_sizes(text: str, sizes: dict[str, int]) -> str:
    """A kernel's text with numbers in the place of these arguments."""
    if not sizes:
        return text
    tree = syntax_tree(text)
    function = next(s for s in tree.body if isinstance(s, ast.FunctionDef))
    function.args.args = [a for a in function.args.args if a.arg not in sizes]
    for statement in function.body:
        Replace({name: ast.Constant(size) for name, size in sizes.items()}).visit(statement)
    return ast.unparse(tree)


def _is_store(statement: ast.stmt) -> bool:
    """``tl.store(place, value)``, under a mask or not."""
    match statement:
        case ast.Expr(value=ast.Call(func=function, args=[_, _] | [_, _, _], keywords=[])):
            return ast.unparse(function) == "tl.store"
    return False


def _is_load(value: ast.expr, pointer: str) -> bool:
    """``tl.load(pointer + index, ...)``, widened or not."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "to":
        if ast.unparse(value.args[0]) != "tl.float32":
            return False
        value = value.func.value
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.load" and ast.unparse(value.args[0]).startswith(f"{pointer} + ")


def _tiled(found: Reader, body: list[ast.stmt], shape: Shape) -> bool:
    """Note what its indices are; False where they go over the result in another way."""
    values = _values(body)
    call = next(n for n in ast.walk(found.load.value) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.load")
    index = call.args[0].right  # type: ignore[attr-defined]
    indices = [name for name, value in values.items() if "tl.arange(" in ast.unparse(value)]
    stores = [n.args[0] for s in body for n in ast.walk(s) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.store"]
    try:
        place = integers.to_sympy(_written_out(index, values, set(indices)))
        stored = [integers.to_sympy(_written_out(s.right, values, set(indices))) for s in stores if isinstance(s, ast.BinOp)]
    except integers.NotInteger:
        return False
    found.alike = len(stored) == len(stores) and all(s == place for s in stored)
    width, pixel, channel = shape.out_channels, "pixels[:, None]", "channels[None, :]"
    if indices == ["offsets"] and place == integers.symbol("offsets"):
        found.tile = {"offsets": f"{pixel} * {width} + {channel}"}
    elif len(indices) == 2:
        one, other = indices
        for row, col in ((one, other), (other, one)):
            rows, cols = integers.symbol(row), integers.symbol(col)
            if place == width * rows + cols:
                found.tile = {row: pixel, col: channel}
            image, size = FLOORDIV(cols, sympy.Integer(width)), math.prod(shape.out_size)
            if place == width * rows + width * size * image + MOD(cols, sympy.Integer(width)):  # all channels of an image, one by one
                found.tile = {row: f"(pixels % {size})[:, None]", col: f"(pixels // {size})[:, None] * {width} + {channel}"}
    if not found.tile:
        return False
    found.whole_rows = set(found.tile) == {"rows", "cols"}
    tests = [ast.unparse(v) for v in values.values() if isinstance(v, ast.Compare)]
    row = next(iter(found.tile))
    found.masked = found.tile[row] != f"(pixels % {math.prod(shape.out_size)})[:, None]" and any(
        test.startswith(f"{row} < ") for test in tests
    )
    return not any("tl.program_id" in ast.unparse(v) for n, v in values.items() if n not in (*indices, *_starts(values, indices)))


def _values(body: list[ast.stmt]) -> dict[str, ast.expr]:
    return {s.targets[0].id: s.value for s in body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}


def _starts(values: dict[str, ast.expr], indices: list[str]) -> set[str]:
    """Names that nothing but the indices is made of: where a tile starts."""
    read = {n.id for name in indices for n in ast.walk(values[name]) if isinstance(n, ast.Name)}
    return {name for name in read & values.keys() if "tl.program_id" in ast.unparse(values[name])}


class _WrittenOut(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr], kept: set[str]) -> None:
        self.values, self.kept = values, kept

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.kept or node.id not in self.values:
            return node
        made: ast.expr = _WrittenOut(self.values, self.kept).visit(syntax_tree(ast.unparse(self.values[node.id]), mode="eval").body)
        return made


def _written_out(index: ast.expr, values: dict[str, ast.expr], kept: set[str]) -> ast.expr:
    made: ast.expr = _WrittenOut(values, kept).visit(syntax_tree(ast.unparse(index), mode="eval").body)
    return made


class _Placed(ast.NodeTransformer):
    """Quotients and remainders of an element's place by the number of channels are its pixel, or its image, and its channel."""

    def __init__(self, tile: dict[str, str], width: int) -> None:
        self.before = {name: of.partition(f" * {width} + ")[0] for name, of in tile.items() if f" * {width} + " in of}
        self.width = width

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = ast.unparse(node.left)
        if name in self.before and ast.unparse(node.right) == str(self.width):
            if isinstance(node.op, ast.Mod):
                return integers.to_ast("channels[None, :]")
            if isinstance(node.op, ast.FloorDiv):
                return integers.to_ast(self.before[name])
        return node


def _of_pixels(statement: ast.stmt) -> ast.stmt:
    """A store, of pixels that there are."""
    match statement:
        case ast.Expr(value=ast.Call(args=[place, value, *mask])):
            there = f"({ast.unparse(mask[0])}) & there[:, None]" if mask else "there[:, None]"
            return syntax_tree(f"tl.store({ast.unparse(place)}, {ast.unparse(value)}, {there})").body[0]
    return statement


def text(found: Reader, shape: Shape, name: str, configs: list[str], pointers: tuple[str, str], block_n: int, *, partly: bool) -> str:
    """The definition of the kernel ``name``, with the ``configs`` to tune among. ``pointers``: arguments for images and weights.

    ``partly``: tiles may have pixels behind the last one, which the reader does not leave out.
    """
    function, indices = found.function, set(found.tile)
    old = [a for a in function.args.args if a.arg not in _BLOCKS]
    if not any(isinstance(s, ast.Expr) and f"tl.store({found.pointer} + " in ast.unparse(s) for s in function.body):
        old = [a for a in old if a.arg != found.pointer]
    own = [*pointers, *(ast.unparse(a) for a in old), *(f"{b}: tl.constexpr" for b in ("PRECISION", "BLOCK_M", "BLOCK_N", "BLOCK_K"))]
    docstring = ast.get_docstring(function)
    body = function.body[1:] if docstring is not None else function.body
    starts = _starts(_values(body), list(indices))
    lines = [f"{index} = {of}" for index, of in found.tile.items()]
    for statement in body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in indices | starts:
            continue
        if statement is found.load:
            lines.append(f"{ast.unparse(found.load.targets[0])} = acc")
            continue
        statement = _Placed(found.tile, shape.out_channels).visit(statement)
        lines += ast.unparse(_of_pixels(statement) if shape.transposed or partly else statement).splitlines()
    in_place = ", ".join(f'"{p}"' for p in _written_in_place("\n".join(lines)))
    restored = [f"    restore_value=[{in_place}],"] if in_place else []
    tuned = ["@triton.autotune(", "    configs=[", *(f"        {c}," for c in configs), "    ],", "    key=[],", *restored, ")"]
    follows = f"{docstring[0].lower()}{docstring[1:]}" if docstring else "what follows it."
    note = f"Convolution, {follows}" if docstring else f"A convolution and {follows}"
    head = formatting.broken(f"def {name}({', '.join(own)}):", formatting.WIDTH)
    convolution = _convolution(shape, *pointers, full=shape.out_channels % block_n == 0)
    if partly and not shape.transposed:
        convolution[1:1] = [f"there = pixels < {shape.pixels}", "pixels = tl.where(there, pixels, 0)"]
    statements = [*convolution, *map(formatting.quoted, lines)]
    return "\n".join([*tuned, "@triton.jit", *head, f'    """{note}"""', *(part for one in statements for part in _indented(one))])


def _written_in_place(body: str) -> list[str]:
    """Pointers that the statements load before they store to them: trying out a configuration must not change what the next one reads."""
    found: list[str] = []
    read: set[str] = set()
    for access in re.finditer(r"tl\.(load|store)\(\s*(\w+)", body):
        if access[1] == "load":
            read.add(access[2])
        elif access[2] in read and access[2] not in found:
            found.append(access[2])
    return found


def _indented(line: str) -> list[str]:
    bare = line.lstrip()
    indent = " " * (4 + len(line) - len(bare))
    return [indent + part for part in formatting.broken(bare, formatting.WIDTH - len(indent))]


_BLOCKS = {"BLOCK_ROWS", "BLOCK_COLS", "BLOCK", "BLOCK_X", "BLOCK_Y"}


def _convolution(shape: Shape, images: str, weights: str, *, full: bool) -> list[str]:
    """Statements that compute ``acc``, in float32. ``full``: all tiles have channels that there are."""
    real = [] if full else [f"(channels < {shape.out_channels})[None, :]"]
    if shape.transposed:
        return transposed_convolution.statements(shape, images, weights, f", {real[0]}, other=0.0" if real else "")
    together = shape.channels % 16 == 0  # all of a tile's products are of one tap
    window = _of_one_tap(shape) if together else _of_many_taps(shape)
    known = "" if together else f"taken < {shape.products}"
    there = [*([f"({known})[:, None]"] if known else []), *real]
    mask = f", {' & '.join(there)}, other=0.0" if there else ""
    return [
        *_places(shape),
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        f"for step in range(tl.cdiv({shape.products}, BLOCK_K)):",
        *(f"    {line}" for line in window[:-2]),
        f"    window = tl.load({images} + ({window[-2]}), {window[-1]}{f' & ({known})[None, :]' if known else ''}, other=0.0)",
        f"    weight = tl.load({weights} + (channels[None, :] * {shape.products} + taken[:, None]){mask})",
        "    acc = tl.dot(window, weight, acc, input_precision=PRECISION)",
    ]


def _places(shape: Shape) -> list[str]:
    """Statements that find out which pixels and channels a program computes, and where in the images their windows start."""
    tiles = f"tl.cdiv({shape.out_channels}, BLOCK_N)"
    starts = zip(names(shape), split("pixels", shape.out_size), shape.stride, shape.padding, strict=True)
    return [
        f"pixels = tl.program_id(0) // {tiles} * BLOCK_M + tl.arange(0, BLOCK_M)",
        f"channels = tl.program_id(0) % {tiles} * BLOCK_N + tl.arange(0, BLOCK_N)",
        f"image = pixels // {math.prod(shape.out_size)}",
        *(f"{name} = {times(of, step)}{f' - {pad}' if pad else ''}" for name, of, step, pad in starts),
        f"first = ({joined(['image', *names(shape)], (0, *shape.size))}) * {shape.channels}",
    ]


def _apart(shape: Shape) -> list[int]:
    """How far in the images the taps of each direction lie from each other."""
    return [d * math.prod(shape.size[at + 1 :]) for at, d in enumerate(shape.dilation)]


def _of_one_tap(shape: Shape) -> list[str]:
    """The same for tiles that are of one tap. So written that the compiler sees how they are aligned."""
    at = split("tap", (0, *shape.taps))[1:]
    at[0] = at[0].rpartition(" % ")[0] if " // " in at[0] else "tap"  # the last of the taps
    place = " + ".join(times(part, apart) for part, apart in zip(at, _apart(shape), strict=True))
    found = [
        "taken = step * BLOCK_K + tl.arange(0, BLOCK_K)",
        f"tap = step // ({shape.channels} // BLOCK_K)",
        f"at = ({place}) * {shape.channels} + step % ({shape.channels} // BLOCK_K) * BLOCK_K",
    ]
    inside = f"(pixels < {shape.pixels})[:, None]"
    if any(shape.padding):
        each = list(zip(names(shape), at, shape.dilation, shape.size, strict=True))
        found += [f"{name}_tap = {name} + {times(part, apart)}" for name, part, apart, _ in each]
        tests = [f"({name}_tap >= 0) & ({name}_tap < {size})" for name, _, _, size in each]
        found.append(f"inside = (pixels < {shape.pixels}) & {' & '.join(tests)}")
        inside = "inside[:, None]"
    return [*found, "(first + at)[:, None] + tl.arange(0, BLOCK_K)[None, :]", inside]


def _of_many_taps(shape: Shape) -> list[str]:
    """The same for tiles that hold products of several taps."""
    at = split("taken", (*shape.taps, shape.channels))[:-1]
    at[0] = at[0].rpartition(" % ")[0]
    place = " + ".join(times(part, apart) for part, apart in zip(at, _apart(shape), strict=True))
    found = ["taken = step * BLOCK_K + tl.arange(0, BLOCK_K)", f"at = ({place}) * {shape.channels} + taken % {shape.channels}"]
    inside = f"(pixels < {shape.pixels})[:, None]"
    if any(shape.padding):
        each = list(zip(names(shape), at, shape.dilation, shape.size, strict=True))
        found += [f"{name}_tap = {name}[:, None] + ({times(part, apart)})[None, :]" for name, part, apart, _ in each]
        found.append(f"inside = {' & '.join(f'({n}_tap >= 0) & ({n}_tap < {size})' for n, _, _, size in each)}")
        inside += " & inside"
    return [*found, "first[:, None] + at[None, :]", inside]


__all__ = ["Reader", "at_sizes", "reader", "text"]
