"""Static types of a kernel's values: element type, and which block axes a value spans."""

from __future__ import annotations

import ast

from kernelllm.compiler.emit.ast_tools import name_of

FLOATS = ("fp64", "fp32", "fp16", "bf16")
_POINTER = {
    "*fp32": "fp32", "*fp64": "fp64", "*fp16": "fp16", "*bf16": "bf16",
    "*i64": "int64", "*i32": "int32", "*i16": "int16", "*i8": "int8", "*u8": "uint8", "*i1": "int8",
}  # fmt: skip
TYPES = {
    "tl.float32": "fp32", "tl.float64": "fp64", "tl.float16": "fp16", "tl.bfloat16": "bf16", "tl.int64": "int64",
    "tl.int32": "int32", "tl.int16": "int16", "tl.int8": "int8", "tl.uint8": "uint8", "tl.int1": "int1",
    "tl.uint32": "uint32", "tl.uint64": "uint64",
}  # fmt: skip
_ORDER = ("int1", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bf16", "fp16", "fp32", "fp64")
_SAME = {
    "tl.exp", "tl.exp2", "tl.log", "tl.log2", "tl.sqrt", "tl.sqrt_rn", "tl.rsqrt", "tl.sin", "tl.cos", "tl.abs", "tl.erf", "tl.floor",
    "tl.ceil", "tl.sigmoid", "tl.broadcast_to", "tl.sum", "tl.max", "tl.min", "tl.cumsum", "tl.cumprod", "tl.reduce", "tl.reshape",
    "max_along", "min_along", "prod_along", "last_along", "softmax_along", "softmax_update", "softmax_merge", "tl.expand_dims", "tl.trans",
}  # fmt: skip


class Facts:
    """Types and axes of names, learnt statement by statement with :meth:`learn`."""

    def __init__(self, signature: dict[str, str], sizes: set[str], index_type: str) -> None:
        self.sizes = sizes
        self.index_type = index_type
        self.types: dict[str, str | None] = {}
        self.axes: dict[str, frozenset[str]] = {}
        self._pointers = {name: _POINTER.get(t) for name, t in signature.items() if t.startswith("*")}
        for name in sizes:
            self.types[name], self.axes[name] = "size", frozenset()

    def learn(self, target: ast.expr, value: ast.expr) -> None:
        """Record what ``target = value`` says. A second binding of a name widens its axes."""
        if isinstance(target, ast.Name):
            self.types[target.id] = self.type(value)
            self.axes[target.id] = self.axes.get(target.id, frozenset()) | self.span(value)
        elif isinstance(target, ast.Tuple):
            span, kind = self.span(value), self.type(value)
            for element in target.elts:
                if isinstance(element, ast.Name):
                    self.types[element.id], self.axes[element.id] = kind, self.axes.get(element.id, frozenset()) | span

    def is_size(self, node: ast.expr) -> bool:
        """Whether the expression holds only sizes and numbers."""
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and n.id not in self.sizes:
                return False
            if isinstance(n, ast.Call | ast.Subscript | ast.Attribute):
                return False
        return True

    def type(self, node: ast.expr) -> str | None:
        """Element type, ``size`` for host-known integers, ``number`` for float literals, None where unknown."""
        match node:
            case ast.Constant(value=bool()):
                return "int1"
            case ast.Constant(value=int()):
                return "size"
            case ast.Constant(value=float()):
                return "number"
            case ast.Name(id=name):
                return self.types.get(name)
            case ast.Compare():
                return "int1"
            case ast.UnaryOp(op=ast.Not()):
                return "int1"
            case ast.UnaryOp(operand=operand):
                return self.type(operand)
            case ast.Subscript(value=value):
                return self.type(value)
            case ast.BinOp(left=left, op=op, right=right):
                joined = self._join(self.type(left), self.type(right))
                if isinstance(op, ast.Div) and joined not in FLOATS:
                    return "number" if joined in ("size", "number") else "fp32"
                return joined
            case ast.Call():
                return self._call_type(node)
        return None

    def _join(self, a: str | None, b: str | None) -> str | None:
        if a is None or b is None:
            return None
        if a in ("size", "number") and b in ("size", "number"):
            return "number" if "number" in (a, b) else "size"
        for one, other in ((a, b), (b, a)):
            if one == "size":
                return "int32" if other == "int1" else other
            if one == "number":
                return other if other in FLOATS else "fp32"
        return max(a, b, key=_ORDER.index)

    def _call_type(self, node: ast.Call) -> str | None:
        name = name_of(node.func)
        if name == "float":
            return "number"
        if name.endswith(".to") and node.args:
            return TYPES.get(ast.unparse(node.args[0]))
        if name in ("tl.full", "tl.zeros"):
            return TYPES.get(ast.unparse(node.args[-1]))
        if name == "count_below":
            return TYPES.get(ast.unparse(node.args[6]))
        if name == "tl.load":
            pointer = next((n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name) and n.id in self._pointers), None)
            return self._pointers[pointer] if pointer else None
        if name == "tl.where" and len(node.args) == 3:
            kind = self._join(self.type(node.args[1]), self.type(node.args[2]))
            return "fp32" if kind == "number" and not isinstance(node.args[0], ast.Constant) else kind  # a tensor, by its condition
        if name in ("maximum", "minimum", "tl.maximum", "tl.minimum", "min", "max") and len(node.args) == 2:
            return self._join(self.type(node.args[0]), self.type(node.args[1]))
        if name in ("tl.arange", "tl.program_id"):
            return "int32"
        if name in ("libdevice.isnan", "libdevice.isinf", "libdevice.signbit", "any_along"):
            return None
        if name in _SAME or name.startswith("libdevice."):
            kinds = [self.type(a) for a in node.args[:1]]
            return kinds[0] if kinds and kinds[0] in _ORDER else ("fp32" if kinds and kinds[0] == "number" else None)
        return None

    def span(self, node: ast.AST) -> frozenset[str]:
        """Block axes (names of block-size arguments) that a value has extent in, as far as its parts tell."""
        match node:
            case ast.Name(id=name):
                return self.axes.get(name, frozenset())
            case ast.Call(func=func, args=args) if name_of(func) in ("tl.full", "tl.zeros", "tl.arange"):
                shape = args[0] if name_of(func) != "tl.arange" else args[1]
                return frozenset(n.id for n in ast.walk(shape) if isinstance(n, ast.Name) and n.id.endswith("BLOCK"))
            case ast.Call(func=func, args=[value, shape]) if name_of(func) == "tl.broadcast_to":
                return self.span(value) | {n.id for n in ast.walk(shape) if isinstance(n, ast.Name) and n.id.endswith("BLOCK")}
            case ast.Call(func=func, args=[*values, ast.Constant(value=int())]) if name_of(func) in REDUCERS and not node.keywords:
                spans = frozenset[str]().union(*(self.span(v) for v in values))
                return frozenset(a for a in spans if not a.startswith("R"))
        return frozenset[str]().union(*(self.span(child) for child in ast.iter_child_nodes(node)))


REDUCERS = {
    "tl.sum", "tl.max", "tl.min", "max_along", "min_along", "prod_along", "any_along", "welford_along", "argmax_along", "argmin_along",
    "softmax_along",
}  # fmt: skip
