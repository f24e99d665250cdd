"""Recognises a loop's step that is affine in a carried matrix: ``S = gate * S + k.mT @ (v + w @ S)``.

So are linear attention over chunks (without ``w``) and delta rules. All but S is found as text, which nothing in the loop changes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from kernelllm.compiler.emit.ast_tools import stored
from kernelllm.core.text import syntax_tree

COLUMN, TURNED = "_column", "_turned"
_SAME = {"to", "float", "half", "bfloat16", "double", "type_as", "contiguous", "clone"}
"""Methods that change nothing but the dtype or the memory."""
_PRODUCTS = {"matmul", "bmm", "mm"}
_SUMS = {"add": ast.Add, "sub": ast.Sub, "mul": ast.Mult}


class NotAffine(Exception):
    """The step is of another kind."""


@dataclass
class ChunkRows:
    """``w @ S + v``, of the rows of a chunk: the summands of ``w`` and of ``v`` as texts."""

    w: list[str] = field(default_factory=list)
    v: list[str] = field(default_factory=list)


@dataclass
class Product:
    """A matrix times rows; the sum of several is no product any more."""

    left: str
    rows: ChunkRows


@dataclass
class State:
    """``gate * S + products + added``; ``gate`` is None where S has no part in it, and else the factors."""

    gate: list[str] | None = None
    products: list[Product] = field(default_factory=list)
    added: list[str] = field(default_factory=list)


@dataclass
class Step:
    """``S = gate * S + k @ (v + w @ S)`` as texts; ``gate`` and ``w`` may be empty."""

    independent: list[ast.stmt]
    """The statements of the loop that know nothing of S."""
    gate: str
    k: str
    v: str
    w: str
    turned: bool
    """Whether all that is said of S is said of its transpose."""


Form = ChunkRows | Product | State
Seen = tuple[Form, bool] | str
"""What a value is, and whether it is the transpose of that; the text of one that knows nothing of the matrix."""


def affine_step(body: list[ast.stmt], state: str, result: str) -> Step | None:
    """What assignments, each to names of its own, make of the matrix ``state`` under the name ``result``; None where that is something
    else.
    """
    for turned in (False, True):
        try:
            return _Analysis(body, state, turned).step(result)
        except NotAffine:
            continue
    return None


class _Analysis:
    def __init__(self, body: list[ast.stmt], state: str, turned: bool) -> None:
        self.turned = turned
        self.known: dict[str, tuple[Form, bool] | None] = {state: (State(gate=[]), turned)}
        """What depends on the matrix; None where that is not affine."""
        self.independent: list[ast.stmt] = []
        self.made: dict[str, ast.expr] = {}
        """What the loop sets and what knows nothing of the matrix."""
        for statement in body:
            self._note(statement)

    def _note(self, statement: ast.stmt) -> None:
        target: Any = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if not isinstance(statement, ast.Assign) or target is None:
            raise NotAffine
        if not _read(statement) & self.known.keys():
            self.independent.append(statement)
            if isinstance(target, ast.Name):
                self.made[target.id] = statement.value
            return
        try:
            made = self.seen(statement.value) if isinstance(target, ast.Name) else None
        except NotAffine:
            made = None
        self.known |= dict.fromkeys(stored(statement), None if isinstance(made, str) else made)

    def seen(self, node: Any) -> Seen:
        if not _read(node) & self.known.keys():
            return ast.unparse(node)
        if isinstance(node, ast.Name):
            found = self.known[node.id]
            if found is None:
                raise NotAffine
            return found
        if isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
            return _flipped(self.seen(node.value))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _scaled(self.seen(node.operand), "-1")
        if isinstance(node, ast.BinOp):
            return self._two(node.op, node.left, node.right)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise NotAffine

    def _call(self, node: ast.Call) -> Seen:
        if not isinstance(node.func, ast.Attribute):
            raise NotAffine
        if ast.unparse(node.func) == "torch.einsum" and len(node.args) == 3 and isinstance(node.args[0], ast.Constant):
            return self._einsum(str(node.args[0].value), node.args[1], node.args[2])
        name, given = _called(node)
        if name in _SAME:
            return self.seen(given[0])
        if node.keywords or any(isinstance(a, ast.Starred) for a in given):
            raise NotAffine
        if name in ("transpose", "swapaxes") and {ast.unparse(a) for a in given[1:]} == {"-1", "-2"}:
            return _flipped(self.seen(given[0]))
        if name == "baddbmm" and len(given) == 3:
            return _sum(self.seen(given[0]), self._two(ast.MatMult(), given[1], given[2]))
        if len(given) == 2 and name in _PRODUCTS | _SUMS.keys():
            return self._two(ast.MatMult() if name in _PRODUCTS else _SUMS[name](), *given)
        raise NotAffine

    def _two(self, operator: ast.operator, left: Any, right: Any) -> Seen:
        one, other = self.seen(left), self.seen(right)
        if isinstance(operator, ast.MatMult):
            if isinstance(one, str) and not isinstance(other, str) and not other[1]:
                return _product(one, other[0]), False
            if isinstance(other, str) and not isinstance(one, str) and one[1]:
                return _product(f"({other}).mT", one[0]), True
        elif isinstance(operator, ast.Add):
            return _sum(one, other)
        elif isinstance(operator, ast.Sub):
            return _sum(one, f"-({other})" if isinstance(other, str) else _scaled(other, "-1"))
        elif isinstance(operator, ast.Mult) and isinstance(one, str) != isinstance(other, str):
            return _scaled(other, one) if isinstance(one, str) else _scaled(one, str(other))
        raise NotAffine

    def _einsum(self, spec: str, left: Any, right: Any) -> Seen:
        """Of two operands, of which one depends on the matrix, as a product with the other."""
        first, second, out = _letters(spec)
        one, other = self.seen(left), self.seen(right)
        if isinstance(one, str):
            matrix, inside, of, mine = one, first, other, second
        else:
            matrix, inside, of, mine = str(other), second, one, first
        if isinstance(of, str) or (not isinstance(one, str) and not isinstance(other, str)):
            raise NotAffine
        batch, inner, kept = mine[:-2], mine[-1 if of[1] else -2], mine[-2 if of[1] else -1]
        new = "".join(set(inside) - set(mine))
        if len(new) != 1 or set(inside) != {*batch, inner, new} or out not in (batch + new + kept, batch + kept + new):
            raise NotAffine
        return _product(f"torch.einsum('{inside}->{batch}{new}{inner}', {matrix})", of[0]), out == batch + kept + new

    # ---- the whole

    def step(self, result: str) -> Step:
        made, flipped = self.known.get(result) or (None, False)
        if not isinstance(made, State) or made.gate is None or flipped != self.turned:
            raise NotAffine
        products = list(made.products)
        for text in made.added:
            products.append(self._split(text))
        lefts = {product.left for product in products}
        if len(lefts) != 1:
            raise NotAffine
        w = [text for product in products for text in product.rows.w]
        v = [text for product in products for text in product.rows.v]
        if not v:
            raise NotAffine
        gate = " * ".join(f"({text})" for text in made.gate)
        return Step(self.independent, gate, lefts.pop(), " + ".join(v), " + ".join(w), self.turned)

    def _split(self, text: str) -> Product:
        """A product of two matrices that know nothing of the matrix."""
        node: Any = syntax_tree(text, mode="eval").body
        turned = isinstance(node, ast.Call) and ast.unparse(node.func) == TURNED
        node = node.args[0] if turned else node
        for _ in range(9):
            if isinstance(node, ast.Name) and node.id in self.made:
                node = self.made[node.id]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
                node = node.func.value
        left, right = _factors(node)
        return Product(f"({right}).mT", ChunkRows(v=[f"({left}).mT"])) if turned else Product(left, ChunkRows(v=[right]))


def _read(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _called(node: Any) -> tuple[str, list[ast.expr]]:
    """A function's or a method's name, and all that it is given."""
    operator = re.fullmatch(r"torch(?:\.ops\.aten)?\.(\w+?)(?:\.default|\.Tensor|\.int)?", ast.unparse(node.func))
    return (operator[1], list(node.args)) if operator else (node.func.attr, [node.func.value, *node.args])


def _letters(spec: str) -> tuple[str, str, str]:
    """Of two operands and a result, each letter once in each."""
    found = re.fullmatch(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", spec.replace(" ", ""))
    if not found or any(len(set(part)) != len(part) or len(part) < 2 for part in found.groups()):
        raise NotAffine
    return found[1], found[2], found[3]


def _factors(node: Any) -> tuple[str, str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return ast.unparse(node.left), ast.unparse(node.right)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        raise NotAffine
    name, given = _called(node)
    if name in _PRODUCTS and len(given) == 2:
        return ast.unparse(given[0]), ast.unparse(given[1])
    if name == "einsum" and len(given) == 3 and isinstance(given[0], ast.Constant):
        return _einsum_factors(str(given[0].value), *map(ast.unparse, given[1:]))
    raise NotAffine


def _einsum_factors(spec: str, one: str, other: str) -> tuple[str, str]:
    first, second, out = _letters(spec)
    batch, row, column = out[:-2], out[-2], out[-1]
    if row in second:
        first, second, one, other = second, first, other, one
    inner = "".join(set(first) & set(second) - set(batch))
    if len(inner) != 1 or set(first) != {*batch, row, inner} or set(second) != {*batch, column, inner}:
        raise NotAffine
    return f"torch.einsum('{first}->{batch}{row}{inner}', {one})", f"torch.einsum('{second}->{batch}{inner}{column}', {other})"


def _flipped(seen: Seen) -> Seen:
    if isinstance(seen, str):
        raise NotAffine
    return seen[0], not seen[1]


def _scaled(seen: Seen, by: str) -> Seen:
    if isinstance(seen, str):
        return f"({seen}) * ({by})"
    return _times(seen[0], f"{TURNED}({by})" if seen[1] else by), seen[1]


def _sum(one: Seen, other: Seen) -> Seen:
    forms = [seen for seen in (one, other) if not isinstance(seen, str)]
    if not forms or len({flipped for _, flipped in forms}) != 1:
        raise NotAffine
    flipped = forms[0][1]
    texts = [f"{TURNED}({seen})" if flipped else seen for seen in (one, other) if isinstance(seen, str)]
    return _plus(forms[0][0], forms[1][0] if len(forms) == 2 else texts[0]), flipped


def _product(matrix: str, of: Form) -> Form:
    if isinstance(of, State) and of.gate is not None:
        if of.products or of.added:
            raise NotAffine
        return ChunkRows(w=["".join((f"({matrix})", *(f" * {TURNED}({COLUMN}({text}))" for text in of.gate)))])
    return Product(matrix, _rows(of))


def _rows(form: Form | str) -> ChunkRows:
    """A form as rows of a chunk."""
    if isinstance(form, ChunkRows):
        return form
    if isinstance(form, str):
        return ChunkRows(v=[f"({form})"])
    if isinstance(form, Product):
        return ChunkRows(*([f"(({form.left}) @ ({text}))" for text in texts] for texts in (form.rows.w, form.rows.v)))
    if form.gate is not None:
        raise NotAffine
    parts = [*map(_rows, form.products), *map(_rows, form.added)]
    return ChunkRows([w for part in parts for w in part.w], [v for part in parts for v in part.v])


def _times(form: Form, by: str) -> Form:
    column = f"{COLUMN}({by})"
    if isinstance(form, ChunkRows):
        return ChunkRows([f"({w}) * {column}" for w in form.w], [f"({v}) * ({by})" for v in form.v])
    if isinstance(form, Product):
        return Product(f"({form.left}) * {column}", form.rows)
    if form.added:
        raise NotAffine
    gate = None if form.gate is None else [*form.gate, by]
    return State(gate, [Product(f"({product.left}) * {column}", product.rows) for product in form.products])


def _plus(one: Form, other: Form | str) -> Form:
    if isinstance(one, ChunkRows) or isinstance(other, ChunkRows):
        parts = [_rows(part) for part in (one, other)]
        return ChunkRows([w for part in parts for w in part.w], [v for part in parts for v in part.v])
    states = [
        part if isinstance(part, State) else State(added=[part]) if isinstance(part, str) else State(products=[part])
        for part in (one, other)
    ]
    gates = [part.gate for part in states if part.gate is not None]
    if len(gates) > 1:
        raise NotAffine
    products, added = ([each for part in states for each in getattr(part, name)] for name in ("products", "added"))
    return State(gates[0] if gates else None, products, added)


__all__ = ["COLUMN", "TURNED", "Step", "affine_step"]
