"""The text of a kernel that convolves and goes on with what another kernel does to each result: an implicit product of windows and weights.

The other kernel reads the convolution's result once, element by element or with all channels of a pixel. Its statements follow the product,
where a tile of pixels and channels is still in registers.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

import sympy

from kernelllm.compiler.emit import formatting, integers
from kernelllm.compiler.emit.ast_tools import all_reads
from kernelllm.compiler.emit.integer_text import FLOORDIV, MOD
from kernelllm.core.text import syntax_tree

_OWN = {
    "pixels", "channels", "image", "down", "right", "first", "acc", "step", "taken", "tap", "tap_h", "tap_w", "at", "inside", "window",
    "weight",
}  # fmt: skip
"""Names that the convolution has for itself."""


@dataclass(frozen=True)
class Shape:
    """A convolution over two dimensions, of channels-last images by weights [out, height, width, channels]."""

    images: int
    channels: int
    size: tuple[int, int]
    out_channels: int
    out_size: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def pixels(self) -> int:
        return self.images * self.out_size[0] * self.out_size[1]

    @property
    def products(self) -> int:
        """Products that make one result."""
        return self.channels * self.taps[0] * self.taps[1]


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


def reader(text: str, pointer: str, shape: Shape) -> Reader | None:
    """None for a kernel that does not read each result once, in the place that the others have beside it."""
    function = next(s for s in syntax_tree(text).body if isinstance(s, ast.FunctionDef))
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    plain = all(isinstance(s, ast.Assign | ast.AnnAssign | ast.Expr) for s in body)
    if not plain or _OWN & {*all_reads(body), *(a.arg for a in function.args.args)}:
        return None
    loads = [s for s in body if isinstance(s, ast.Assign) and f"tl.load({pointer} + " in ast.unparse(s)]
    written = sum(isinstance(s, ast.Expr) and f"tl.store({pointer} + " in ast.unparse(s) for s in body)
    uses = sum(isinstance(n, ast.Name) and n.id == pointer for s in body for n in ast.walk(s))
    if len(loads) != 1 or uses != 1 + written or not _is_load(loads[0].value, pointer):
        return None
    found = Reader(function, pointer, loads[0])
    return found if _tiled(found, body, shape) else None


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
    try:
        place = integers.to_sympy(_written_out(index, values, set(indices)))
    except integers.NotInteger:
        return False
    width, pixel, channel = shape.out_channels, "pixels[:, None]", "channels[None, :]"
    if indices == ["offsets"] and place == integers.symbol("offsets"):
        found.tile = {"offsets": f"{pixel} * {width} + {channel}"}
    elif len(indices) == 2:
        one, other = indices
        for row, col in ((one, other), (other, one)):
            rows, cols = integers.symbol(row), integers.symbol(col)
            if place == width * rows + cols:
                found.tile = {row: pixel, col: channel}
            image, size = FLOORDIV(cols, sympy.Integer(width)), shape.out_size[0] * shape.out_size[1]
            if place == width * rows + width * size * image + MOD(cols, sympy.Integer(width)):  # all channels of an image, one by one
                found.tile = {row: f"(pixels % {size})[:, None]", col: f"(pixels // {size})[:, None] * {width} + {channel}"}
    if not found.tile:
        return False
    found.whole_rows = set(found.tile) == {"rows", "cols"}
    tests = [ast.unparse(v) for v in values.values() if isinstance(v, ast.Compare)]
    row = next(iter(found.tile))
    found.masked = found.tile[row] != f"(pixels % {shape.out_size[0] * shape.out_size[1]})[:, None]" and any(
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


def text(found: Reader, shape: Shape, name: str, configs: list[str], pointers: tuple[str, str], block_n: int) -> str:
    """The definition of the kernel ``name``, with the ``configs`` to tune among. ``pointers``: arguments for images and weights."""
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
        lines += ast.unparse(_Placed(found.tile, shape.out_channels).visit(statement)).splitlines()
    tuned = ["@triton.autotune(", "    configs=[", *(f"        {c}," for c in configs), "    ],", "    key=[],", ")"]
    follows = f"{docstring[0].lower()}{docstring[1:]}" if docstring else "what follows it."
    note = f"Convolution, {follows}" if docstring else f"A convolution and {follows}"
    head = formatting.broken(f"def {name}({', '.join(own)}):", formatting.WIDTH)
    statements = [*_convolution(shape, *pointers, full=shape.out_channels % block_n == 0), *map(formatting.quoted, lines)]
    return "\n".join([*tuned, "@triton.jit", *head, f'    """{note}"""', *(part for one in statements for part in _indented(one))])


def _indented(line: str) -> list[str]:
    bare = line.lstrip()
    indent = " " * (4 + len(line) - len(bare))
    return [indent + part for part in formatting.broken(bare, formatting.WIDTH - len(indent))]


_BLOCKS = {"BLOCK_ROWS", "BLOCK_COLS", "BLOCK", "BLOCK_X", "BLOCK_Y"}


def _convolution(shape: Shape, images: str, weights: str, *, full: bool) -> list[str]:
    """Statements that compute ``acc``, in float32. ``full``: all tiles have channels that there are."""
    (height, width), (out_h, out_w) = shape.size, shape.out_size
    (step_h, step_w), (pad_h, pad_w) = shape.stride, shape.padding
    lines = [
        f"pixels = tl.program_id(0) // tl.cdiv({shape.out_channels}, BLOCK_N) * BLOCK_M + tl.arange(0, BLOCK_M)",
        f"channels = tl.program_id(0) % tl.cdiv({shape.out_channels}, BLOCK_N) * BLOCK_N + tl.arange(0, BLOCK_N)",
        f"image = pixels // {out_h * out_w}",
        f"down = {_times(f'pixels // {out_w} % {out_h}', step_h)}{f' - {pad_h}' if pad_h else ''}",
        f"right = {_times(f'pixels % {out_w}', step_w)}{f' - {pad_w}' if pad_w else ''}",
        f"first = ((image * {height} + down) * {width} + right) * {shape.channels}",
        "acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
        f"for step in range(tl.cdiv({shape.products}, BLOCK_K)):",
        "    taken = step * BLOCK_K + tl.arange(0, BLOCK_K)",
    ]
    together = shape.channels % 16 == 0  # all of a tile's products are of one tap
    window = _of_one_tap(shape) if together else _of_many_taps(shape)
    known = "" if together else f"taken < {shape.products}"
    there = [f"({known})[:, None]"] if known else []
    there += [] if full else [f"(channels < {shape.out_channels})[None, :]"]
    mask = f", {' & '.join(there)}, other=0.0" if there else ""
    return [
        *lines,
        *(f"    {line}" for line in window[:-2]),
        f"    window = tl.load({images} + ({window[-2]}), {window[-1]}{f' & ({known})[None, :]' if known else ''}, other=0.0)",
        f"    weight = tl.load({weights} + (channels[None, :] * {shape.products} + taken[:, None]){mask})",
        "    acc = tl.dot(window, weight, acc, input_precision=PRECISION)",
    ]


def _times(text: str, number: int) -> str:
    return text if number == 1 else f"{text} * {number}"


def _of_one_tap(shape: Shape) -> list[str]:
    """Statements, then where a tile of windows lies, and which of it are images. So written that the compiler sees how they are aligned."""
    (height, width), (apart_h, apart_w) = shape.size, shape.dilation
    down, right = f"tap // {shape.taps[1]}", f"tap % {shape.taps[1]}"
    place = f"({_times(down, apart_h * width)} + {_times(right, apart_w)}) * {shape.channels}"
    found = [f"tap = step // ({shape.channels} // BLOCK_K)", f"at = {place} + step % ({shape.channels} // BLOCK_K) * BLOCK_K"]
    inside = f"(pixels < {shape.pixels})[:, None]"
    if any(shape.padding):
        found += [f"tap_h = down + {_times(down, apart_h)}", f"tap_w = right + {_times(right, apart_w)}"]
        rows, cols = f"(tap_h >= 0) & (tap_h < {height})", f"(tap_w >= 0) & (tap_w < {width})"
        found.append(f"inside = (pixels < {shape.pixels}) & {rows} & {cols}")
        inside = "inside[:, None]"
    return [*found, "(first + at)[:, None] + tl.arange(0, BLOCK_K)[None, :]", inside]


def _of_many_taps(shape: Shape) -> list[str]:
    """The same for tiles that hold products of several taps."""
    (height, width), (apart_h, apart_w) = shape.size, shape.dilation
    down, right = f"taken // {shape.channels * shape.taps[1]}", f"taken // {shape.channels} % {shape.taps[1]}"
    place = f"({_times(down, apart_h * width)} + {_times(right, apart_w)}) * {shape.channels} + taken % {shape.channels}"
    found, inside = [f"at = {place}"], f"(pixels < {shape.pixels})[:, None]"
    if any(shape.padding):
        for name, start, tap, apart in (("tap_h", "down", down, apart_h), ("tap_w", "right", right, apart_w)):
            found.append(f"{name} = {start}[:, None] + ({_times(tap, apart)})[None, :]")
        found.append(f"inside = (tap_h >= 0) & (tap_h < {height}) & (tap_w >= 0) & (tap_w < {width})")
        inside += " & inside"
    return [*found, "first[:, None] + at[None, :]", inside]


__all__ = ["Reader", "Shape", "reader", "text"]
