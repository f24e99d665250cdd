"""Size symbols of the graph: what they are called in the file, and where the forward reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sympy

from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.core.text import syntax_tree

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured, Size, SizeSource


class SizeNames:
    """Integers of the wrapper's ``call``: symbols, the graph's size arguments, and values computed from them."""

    def __init__(self, captured: Captured, taken: set[str], text: str = "", *, by_place: bool = False) -> None:
        """``text`` is the wrapper: sizes that it mentions get the first choice of names. ``by_place``: ``x_size0``, whatever
        the problem calls it; ``size`` where it is computed."""
        self.values: dict[str, Any] = {}
        """Wrapper variable to sympy expression over the names below."""
        self.known: dict[str, Size] = {}
        """Name in the file to where it comes from."""
        self._captured = captured
        self._taken = taken
        by_constant: dict[str, str] = {}
        self.computed: dict[str, Any] = {}
        """SizeNames that follow from others: name to expression over earlier names."""
        mentioned = set(re.findall(r"\w+", text))
        chosen: dict[str, str] = {}
        constants = {size.constant for size in captured.sizes}
        ordered = sorted(captured.sizes, key=lambda s: s.symbol not in mentioned)
        for size in sorted(ordered, key=lambda s: (_follows_unnamed(s), "_over_" in s.constant)):
            argument = _argument(size)
            if by_place or not re.search(_UNNAMED, size.constant):
                wish = _spell(size, constants, by_place)
            elif size.expression:
                wish = _after(size, captured.sizes, chosen)
            else:
                wish = _placed(size, {s.constant: chosen[s.symbol] for s in captured.sizes if s.symbol in chosen})
            chosen[size.symbol] = argument if argument.isidentifier() else fresh_name(wish, taken)
        for size in captured.sizes:
            name = chosen[size.symbol]
            self.known[name] = size
            self.values[size.symbol] = integers.symbol(name)
            by_constant[size.constant] = name
            if size.expression:
                self.computed[name] = self._follows(size.expression)
        for given in captured.graph_inputs:
            if given.kind == "size" and given.name in by_constant:
                self.values[given.variable] = integers.symbol(by_constant[given.name])

    def counted(self, symbol: str, operator: str) -> None:
        """Name a size that is read off what an operator of torch has computed."""
        self.values[symbol] = integers.symbol(fresh_name(f"n_{operator}", self._taken))

    def expression(self, node: ast.expr) -> Any:
        """An integer expression of the wrapper over the file's size names; raises NotInteger where it is none."""
        expr = integers.to_sympy(node)
        unknown = {str(s) for s in expr.free_symbols} - set(self.values)
        if unknown:
            raise integers.NotInteger(f"unknown sizes {sorted(unknown)}")
        return expr.xreplace({s: self.values[str(s)] for s in expr.free_symbols})

    def _follows(self, expression: str) -> Any:
        """A computed size over earlier names; one that is more than integer arithmetic stays as Python wrote it."""
        try:
            return self.expression(syntax_tree(as_python(expression), mode="eval").body)
        except integers.NotInteger:
            known = {s: str(v) for s, v in self.values.items() if v.is_Symbol}
            text = re.sub(r"\w+", lambda m: known.get(m[0], m[0]), expression)
            return integers.symbol(text.replace("torch.sym_float(", "float(").replace("torch.sym_int(", "int("))

    def _needs(self, name: str) -> set[str]:
        """The sizes that a computed size follows from."""
        return {w for s in self.computed[name].free_symbols for w in re.findall(r"\w+", str(s)) if w in self.known}

    def varies(self, expression: Any) -> bool:
        """Whether a size may differ from call to call: a tensor of the caller has it, and neither parameter nor attribute of the module."""
        words = {w for s in expression.free_symbols for w in re.findall(r"[A-Za-z_]\w*", str(s))}
        for word in words:
            if word in self.computed:
                if any(self.varies(integers.symbol(w)) for w in self._needs(word)):
                    return True
            elif word in self.known:
                sources = self.known[word].sources
                if sources and all(s.kind == "input" for s in sources):
                    return True
            elif any(word == str(s) for s in expression.free_symbols):
                return True  # of the file's own: how a long reduction is split
        return False

    def shape(self, dims: tuple[str, ...]) -> list[Any] | None:
        """A given's shape as expressions, None where one cannot be told."""
        try:
            return [self.expression(syntax_tree(as_python(d), mode="eval").body) for d in dims]
        except (integers.NotInteger, SyntaxError):
            return None

    def reading(self, used: list[str], first: list[str], paths: dict[str, str]) -> tuple[list[str], dict[str, int]]:
        """Statements that read the used sizes at the top of forward, tensors' shapes unpacked whole where that serves.

        ``first`` are names of the forward's tensor arguments; ``paths`` maps given names to how the file reaches them.
        Second result: sizes that can be read nowhere, with the problem's own value.
        """
        lines: list[str] = []
        loose: dict[str, int] = {}
        derived = self._derived(used)
        needed = {w for n in derived for w in self._needs(n)}
        needed |= {w for n in (*used, *needed) for w in self._beside(n)}
        left = [n for n in dict.fromkeys([*used, *sorted(needed)]) if n not in self.computed]
        for argument in first:
            dims = self._dims_of(argument)
            if dims is None:
                continue
            here = [n for n in left if n in dims]
            if len(here) >= 2 or (len(dims) == 1 and here):
                names = [n if n in here and dims.index(n) == i else "_" for i, n in enumerate(dims)]
                lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {paths.get(argument, argument)}.shape")
                left = [n for n in left if n not in here]
        for name in sorted(left, key=lambda n: bool(self._beside(n))):
            source = next(iter(self.known[name].sources), None)
            read = self._read(name, source, paths) if source is not None else None
            if read is None:
                loose[name] = self.known[name].hint
            elif name != _argument(self.known[name]):
                lines.append(f"{name} = {read}")
        lines += [f"{name} = {integers.pretty(self.computed[name])}" for name in derived]
        return lines, loose

    def _derived(self, used: list[str]) -> list[str]:
        """Computed sizes among ``used`` and those they follow from, in order."""
        wanted: set[str] = set()
        todo = [n for n in used if n in self.computed]
        while todo:
            name = todo.pop()
            wanted.add(name)
            todo += [w for w in self._needs(name) if w in self.computed and w not in wanted]
        return [n for n in self.computed if n in wanted]

    def _beside(self, name: str) -> list[str]:
        """The sizes that must be known before this one can be read off its best source."""
        source = next(iter(self.known[name].sources), None)
        words = re.findall(r"\w+", source.expression) if source is not None else []
        return [str(self.values[w]) for w in words if w in self.values and w != self.known[name].symbol]

    def _dims_of(self, argument: str) -> list[str] | None:
        given = next((s for s in self._captured.graph_inputs if s.kind == "input" and s.name == argument), None)
        if given is None or not given.shape or len(given.shape) > 6:
            return None
        shape = self.shape(given.shape)
        return [str(d) if d.is_Symbol else "_" for d in shape] if shape else None

    def divided(self, names: Iterable[str], paths: dict[str, str]) -> Iterator[tuple[SizeSource, str]]:
        """Of the places where these sizes are read, those that hold a multiple, and are no dimension of an input."""
        for name in names:
            source = next(iter(self.known[name].sources), None) if name in self.known else None
            if source is None or source.kind in ("input", "argument"):
                continue
            if as_python(source.expression or self.known[name].symbol) != self.known[name].symbol:
                yield source, _place(source, paths)

    def _read(self, name: str, source: SizeSource, paths: dict[str, str]) -> str | None:
        """The expression that gives the size; None where its source does not tell it."""
        base = _place(source, paths)
        symbol = sympy.Symbol(self.known[name].symbol)
        stands = as_python(source.expression or str(symbol))
        if stands == str(symbol):
            return base
        there = integers.parse(stands)
        unknown, value = integers.symbol(self.known[name].symbol), sympy.Symbol("value", integer=True)
        if self._beside(name):
            others = sympy.cancel(there / unknown).xreplace({integers.symbol(w): v for w, v in self.values.items()})
            return f"{base} // {integers.text_of(others) if others.is_Symbol else f'({integers.text_of(others)})'}"
        solutions = []
        with suppress(NotImplementedError):  # a quotient, which leaves the size open
            solutions = sympy.solve(sympy.Eq(there, value), unknown)
        if len(solutions) == 1:
            numerator, denominator = sympy.fraction(sympy.together(solutions[0]))
            text = integers.text_of(numerator)
            text = re.sub(r"\bvalue\b", base, text)
            return text if denominator == 1 else f"({text}) // {denominator}" if numerator != value else f"{text} // {denominator}"
        return None


_AS_OPERATORS: dict[str, type[ast.operator]] = {"FloorDiv": ast.FloorDiv, "CleanDiv": ast.FloorDiv, "Mod": ast.Mod, "PythonMod": ast.Mod}


class _Operators(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            if (operator := _AS_OPERATORS.get(node.func.id)) and len(node.args) == 2:
                return ast.BinOp(node.args[0], operator(), node.args[1])
            node.func.id = {"Min": "min", "Max": "max"}.get(node.func.id, node.func.id)
        function = ast.unparse(node.func)
        if function == "torch.sym_float":
            return node.args[0]
        if function.startswith("torch._sym_"):
            node.func = ast.Attribute(ast.Name("math", ast.Load()), function.removeprefix("torch._sym_"), ast.Load())
        return node


def symbols_in(size: str) -> set[str]:
    return set(re.findall(r"\bs\d+\b", size))


def as_python(expression: str) -> str:
    """sympy's own spelling as Python's: ``FloorDiv(s0, 2)`` as ``s0 // 2``, ``Min`` as ``min``, ``torch._sym_sqrt`` as ``math.sqrt``."""
    try:
        return ast.unparse(_Operators().visit(syntax_tree(expression, mode="eval")))
    except SyntaxError:
        return expression


def _place(source: SizeSource, paths: dict[str, str]) -> str:
    """The whole number of a source, as the file reaches it."""
    if source.kind == "module":
        return f"self.{indexed(source.name)}"
    if source.kind == "argument":
        return source.name
    owner = paths.get(source.name) or (source.name if source.kind == "input" else f"self.{indexed(source.name)}")
    return f"{owner}.shape[{source.dim}]"


def _argument(size: Size) -> str:
    """The whole number among the forward's arguments that the size is, as the forward calls it; else nothing."""
    source = size.sources[0] if size.sources else None
    return source.name if source is not None and source.kind == "argument" and source.expression == size.symbol else ""


_UNNAMED = r"(get_inputs|get_init_inputs)_\d+_dim\d+"
"""The generated name of a number in the functions that make the inputs."""


def _follows_unnamed(size: Size) -> bool:
    """Whether it is computed from numbers that the problem gives no names."""
    return bool(size.expression) and re.search(_UNNAMED, size.constant) is not None


def _after(size: Size, sizes: Sequence[Size], chosen: dict[str, str]) -> str:
    """The name of a size that it is computed from, of an input's if there is one: ``x_size2``, to which a number comes."""
    words = set(re.findall(r"\w+", size.expression))
    bases = [s for s in sizes if s.symbol in words and s.symbol in chosen]
    bases.sort(key=lambda s: not (s.expression or (s.sources and s.sources[0].kind == "input")))
    return re.sub(r"(?<=size\d)_\d+$", "", chosen[bases[0].symbol]) if bases else "size"


def _placed(size: Size, chosen: dict[str, str]) -> str:
    """The name of a number that the problem gives none, after where it is read: ``x_size1`` of an input, ``qkv_weight_size0`` of a
    parameter, ``heads`` of an attribute; ``x_size1_over_heads`` of a part. ``chosen``: names by constant."""
    whole, _, part = size.constant.partition("_over_")
    source = size.sources[0] if size.sources else None
    if source is not None and re.fullmatch(_UNNAMED, whole) and (part or source.expression in ("", size.symbol)):
        words = [w for w in re.findall(r"\w+", source.name) if not w.isdigit()]
        whole = "_".join(words[-2:]) + (f"_size{source.dim}" if source.dim is not None else "")
    return f"{whole}_over_{chosen.get(part, part)}" if part else whole


def _spell(size: Size, constants: set[str], by_place: bool) -> str:
    """``batch_size`` as the problem has it; a number without a name there after the argument and the dimension that it is the size of."""
    if by_place and size.expression:
        return "size"
    constant = size.constant
    placed = size.sources and size.sources[0].kind == "input" and size.sources[0].dim is not None
    direct = placed and size.sources[0].expression in ("", size.symbol)
    if placed and ((by_place and direct) or re.fullmatch(r"\w+_dim\d+", constant)):
        constant = f"{size.sources[0].name}_size{size.sources[0].dim}"
    elif _argument(size):
        constant = _argument(size)
    elif constant.endswith("_shape[0]") and constant.replace("[0]", "[1]") not in constants:
        constant = constant.replace("_shape[0]", "_size")
    return re.sub(r"\W+", "_", constant).strip("_") or "size"


def indexed(path: str) -> str:
    """``blocks.0.weight`` as ``blocks[0].weight``, as one writes it."""
    return re.sub(r"\.(\d+)(?=\.|$|\[)", r"[\1]", path)
