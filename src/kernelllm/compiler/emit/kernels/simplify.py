"""Expressions of an Inductor kernel as plain Triton: constants, helpers, masks, broadcasts, integer arithmetic."""

from __future__ import annotations

import ast

from kernelllm.compiler.emit.ast_tools import assigned, bindings, call, copy_of, every, name_of
from kernelllm.compiler.emit.helpers import RENAMED, plain_name
from kernelllm.compiler.emit.kernels import integers, literal_bits
from kernelllm.compiler.emit.kernels.value_types import FLOATS, TYPES, Facts
from kernelllm.compiler.inductor.kernel_source import Kernel
from kernelllm.core.errors import CaptureError
from kernelllm.core.text import syntax_tree

_OF_WHOLE = ("libdevice.ldexp", "libdevice.scalbn", "libdevice.powi", "libdevice.jn", "libdevice.yn")
_ELEMENTWISE_CONSTANT_OK = {"tl.where", "maximum", "minimum", "tl.store", "tl.load", "tl.full", "tl.atomic_add", "tl.broadcast_to", "range"}


class Simplifier(ast.NodeTransformer):
    """Bottom-up rewriting of expressions, statement by statement, with what is known of earlier names."""

    def __init__(self, kernel: Kernel, facts: Facts) -> None:
        self.kernel, self.facts = kernel, facts
        self.values: dict[str, ast.expr] = {}
        self.bound: dict[str, int] = {}
        self.pointwise = not any(p.startswith(("r0_", "r1_")) for p in kernel.params)

    def run(self, body: list[ast.stmt]) -> list[ast.stmt]:
        self.values.clear()
        self.bound = dict(bindings(body))
        for name, values in _values(body).items():
            if self.bound[name] > 1 and len(values) == 1 and self._same_everywhere(values.pop()):
                self.bound[name] = 1
        return self._block(body)

    def _same_everywhere(self, text: str) -> bool:
        """Whether a value that several loops bind anew means the same in each: another name or an all-true mask."""
        return text.isidentifier() or (text.startswith("tl.full(") and "True, tl.int1" in text)

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        kept: list[ast.stmt] = []
        for statement in body:
            done = self._statement(statement)
            if done is not None:
                kept.append(done)
        return kept

    def _statement(self, statement: ast.stmt) -> ast.stmt | None:
        if isinstance(statement, ast.Pass):
            return None
        if isinstance(statement, ast.For):
            statement.iter = self.visit(statement.iter)
            self.facts.learn(statement.target, syntax_tree("tl.program_id(0)", mode="eval").body)
            statement.body = self._block(statement.body)
            return statement
        if isinstance(statement, ast.Expr):
            called = name_of(statement.value.func) if isinstance(statement.value, ast.Call) else ""
            if called == "tl.assume":
                return None
            statement.value = self.visit(statement.value)
            if called == "tl.device_assert" and isinstance(statement.value, ast.Call):
                statement.value.args[1] = ast.Constant(OUT_OF_BOUNDS)
            return statement
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            if self.facts.is_size(statement.value):
                self.values[assigned(statement)[0]] = self.visit(statement.value)
                return None
            return statement
        if isinstance(statement, ast.Assign):
            return self._assign(statement)
        for part in ("body", "orelse"):
            if hasattr(statement, part):
                setattr(statement, part, self._block(getattr(statement, part)))
        if isinstance(statement, ast.If):
            statement.test = self.visit(statement.test)
        return statement

    def _assign(self, statement: ast.Assign) -> ast.stmt | None:
        target = statement.targets[0]
        carried = isinstance(target, ast.Name) and self.bound.get(target.id, 0) > 1
        if not (carried and name_of(getattr(statement.value, "func", target)) == "tl.full"):
            statement.value = self.visit(statement.value)
        value = statement.value
        self.facts.learn(target, value)
        if carried:
            return statement
        if isinstance(target, ast.Name) and self.bound.get(target.id) == 1:
            moved = isinstance(value, ast.Name) and (self.bound.get(value.id, 0) <= 1 or value.id.endswith(("index", "offset")))
            literal = isinstance(value, ast.Constant | ast.Call) and ast.unparse(value) in _LITERAL_CALLS
            number = isinstance(value, ast.Constant) or (isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant))
            if moved or literal or number or (self.facts.is_size(value) and len(ast.unparse(value)) < 60):
                self.values[target.id] = value
                return None
        scan = isinstance(value, ast.Call) and name_of(value.func) in ("tl.cumsum", "tl.cumprod", "tl.associative_scan")
        if scan and isinstance(target, ast.Tuple) and len(target.elts) == 1:
            statement.targets = [target.elts[0]]
        return statement

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy_of(self.values[node.id])
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not | ast.Invert) and _is(node.operand, True):
            return ast.Constant(False)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        said = integers.compared(node)
        return node if said is None else ast.Constant(said)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Constant) or ast.unparse(node.slice) == ":":
            return node.value
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.BitAnd):
            if _is(node.left, True):
                return node.right
            if _is(node.right, True) or ast.unparse(node.left) == ast.unparse(node.right):
                return node.left
        if isinstance(node.op, ast.BitOr) and (_is(node.left, False) or _is(node.right, False)):
            return node.right if _is(node.left, False) else node.left
        if isinstance(node.op, ast.BitAnd) and (_is(node.left, False) or _is(node.right, False)):
            return ast.Constant(False)
        if isinstance(node.op, ast.Add) and isinstance(node.right, ast.UnaryOp) and isinstance(node.right.op, ast.USub):
            return ast.BinOp(node.left, ast.Sub(), node.right.operand)
        if isinstance(node.op, ast.Mult) and _is(node.right, 1.0) and self.facts.type(node.left) in FLOATS:
            return node.left
        return self._integer(node)

    def _integer(self, node: ast.BinOp) -> ast.expr:
        """Index arithmetic, grouped by size."""
        if isinstance(node.op, ast.Div) and self.facts.is_size(node):
            return integers.ratio(node)
        if not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Mod):
            return node
        if self.facts.is_size(node):
            return integers.ratio(node) if _floating(node) else integers.tidy(node)
        if all(self._is_index(n) for n in ast.walk(node) if isinstance(n, ast.Name) and n.id != "tl") and not _floating(node):
            return integers.collect(node, self.facts.sizes)
        return node

    def _is_index(self, node: ast.Name) -> bool:
        return self.facts.types.get(node.id) in ("size", "int32", "int64")

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = node.test
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Attribute) and test.left.attr == "dtype":
            kind = self.facts.type(self.visit(test.left.value))  # what has become a number has no dtype to look at
            if kind is not None:
                same = kind in ("number", TYPES.get(ast.unparse(test.comparators[0])))
                chosen: ast.expr = self.visit(node.body if same else node.orelse)
                return chosen
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = name_of(node.func)
        if name == ".div_rn":  # of triton.language
            node.func = integers.to_ast(name := "tl.div_rn")
        if name.endswith(".to") and isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords:
            return self._cast(node, node.func.value)
        if name.endswith(".to") and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant) and node.args:
            return literal_bits.cast(node.func.value.value, node)
        if name in ("tl.full", "tl.zeros_like"):
            return self._full(node)
        if name.endswith(".broadcast_to") and name != "tl.broadcast_to" and isinstance(node.func, ast.Attribute):
            return call("tl.broadcast_to", node.func.value, ast.List(list(node.args), ast.Load()))
        if name == "tl.broadcast_to":
            return self._broadcast(node)
        if name == "tl.where":
            return self._where(node)
        if name == "tl.range":
            node.func = ast.Name("range", ast.Load())
            return node
        if name in ("tl.load", "tl.store", "tl.atomic_add"):
            return self._memory(node, name)
        if name == "tl.associative_scan":
            return self._scan(node)
        if name.startswith("triton_helpers."):
            return self._helper(node, name)
        plain = plain_name(name)
        if plain != name:
            node.func = integers.to_ast(plain)
            if plain == "libdevice.isnan":
                return ast.Compare(node.args[0], [ast.NotEq()], [copy_of(node.args[0])])
        return self._call_constants(node, plain)

    def _call_constants(self, node: ast.Call, name: str) -> ast.expr:
        """Functions of Triton want tensors, not numbers, where they are no plain arithmetic."""
        counted = ("tl.arange", "tl.range", "tl.program_id", "tl.num_programs", "tl.zeros")
        if name in ("tl.maximum", "tl.minimum") and all(self.facts.type(a) in ("size", "int32", "int64") for a in node.args):
            return node
        if name.startswith(("tl.", "libdevice.")) and name not in _ELEMENTWISE_CONSTANT_OK and name not in counted:
            wide = any(self.facts.type(a) == "fp64" for a in node.args)
            kind = integers.to_ast("tl.float64" if wide else "tl.float32")
            several = name.startswith("libdevice.") or name in ("tl.div_rn", "tl.fma")
            for i, given in enumerate(node.args if several else node.args[:1]):
                wanted = ("number", "size") if wide or i == 0 else ("size",)  # there is no function of a float and a whole number
                if not isinstance(given, ast.List | ast.Tuple) and self.facts.type(given) in wanted and name not in _OF_WHOLE:
                    node.args[i] = call("tl.full", ast.List([], ast.Load()), given, kind)
        return node

    def _extreme(self, which: str, left: ast.expr, right: ast.expr) -> ast.expr:
        """The larger or smaller of two; a number comes second, and as a float beside floats."""
        if isinstance(left.operand if isinstance(left, ast.UnaryOp) else left, ast.Constant):
            left, right = right, left
        kinds = {self.facts.type(left), self.facts.type(right)}
        if kinds <= {"int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "size"}:
            return call(f"tl.{which}", left, right)
        if isinstance(right, ast.Constant) and isinstance(right.value, int):
            right = ast.Constant(float(right.value))
        return call(which, left, right)

    def _cast(self, node: ast.Call, value: ast.expr) -> ast.expr:
        kind = self.facts.type(value)
        wanted = self.facts.type(node)
        if isinstance(value, ast.Constant) and isinstance(value.value, bool) and wanted is not None and wanted != "int1":
            return ast.Constant(float(value.value) if wanted in FLOATS else int(value.value))
        if kind == "size" and wanted is not None and wanted != "int1":
            return value
        if kind == "number" and wanted in FLOATS:
            return value
        if kind is not None and kind == wanted and kind != "int1":
            return value
        if wanted in FLOATS and all(self._of_sizes(part) for part in ast.walk(value)):
            return call("tl.full", ast.List([], ast.Load()), value, node.args[0])  # of constexprs alone it has no .to
        return node

    def _of_sizes(self, part: ast.AST) -> bool:
        plain = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context)
        return isinstance(part, plain) or (isinstance(part, ast.Name) and self.facts.type(part) in ("size", "number"))

    def _full(self, node: ast.Call) -> ast.expr:
        if name_of(node.func) == "tl.zeros_like" or len(node.args) != 3:
            return node
        shape, value, kind = node.args
        if isinstance(shape, ast.Attribute) and shape.attr == "shape":
            of = self.facts.type(shape.value)
            if of is None:
                return node
            zero = ast.unparse(value) in ("0", "0.0")
            if of in FLOATS or of == "number":
                return ast.Constant(0.0) if zero else value
            if of == "int1":
                return ast.Constant(False) if zero else value
            return ast.Constant(0) if zero else value  # a float beside an integer would make it one
        spanned = {n.id for n in ast.walk(shape) if isinstance(n, ast.Name)}
        text = ast.unparse(kind)
        if text == "tl.int1" and isinstance(value, ast.Constant):
            return ast.Constant(bool(value.value))
        if spanned == {"XBLOCK"} and self.pointwise and self.kernel.hints.get("x") == 1 and text == "tl.int32":
            return value
        if not (isinstance(shape, ast.List) and all(ast.unparse(e) == "1" for e in shape.elts)):
            return node
        if text in ("tl.float32", "tl.float64", "tl.float16", "tl.bfloat16"):
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                return ast.Constant(float(value.value))
            return value
        return value if self.facts.is_size(value) else node

    def _broadcast(self, node: ast.Call) -> ast.expr:
        value, shape = node.args
        axes = {n.id for n in ast.walk(shape) if isinstance(n, ast.Name)}
        if axes <= self.facts.span(value):
            return value
        if axes and not self.pointwise and isinstance(value, ast.Constant) and type(value.value) in (int, float):  # a number has no shape
            return call("tl.full", shape, value, integers.to_ast("tl.int64" if isinstance(value.value, int) else "tl.float32"))
        if axes and not self.pointwise and (kind := self.facts.type(value)) in ("size", "number"):  # what has no .to cannot be broadcast
            return call("tl.full", shape, value, integers.to_ast("tl.int32" if kind == "size" else "tl.float32"))
        return value if self.pointwise else node

    def _where(self, node: ast.Call) -> ast.expr:
        condition, chosen, other = node.args
        # Rows beyond the end are computed like any other and never stored, so only loads and stores need their mask.
        kept = _without(condition, {"xmask", "ymask", "zmask"})
        if kept is None or _is(kept, True) or ast.unparse(chosen) == ast.unparse(other):
            return chosen
        if _is(kept, False):
            return other
        node.args[0] = kept
        if isinstance(chosen, ast.Call) and name_of(chosen.func) == "tl.where" and ast.unparse(chosen.args[0]) == ast.unparse(kept):
            node.args[1] = chosen.args[1]
        return node

    def _memory(self, node: ast.Call, name: str) -> ast.expr:
        at = 1 if name == "tl.load" else 2
        if len(node.args) > at and (_is(node.args[at], True) or _is(node.args[at], None)):
            node.args = node.args[:at]
            node.keywords = [k for k in node.keywords if k.arg != "other"]
        pointer, mask = node.args[0], node.args[at] if len(node.args) > at else None
        if isinstance(pointer, ast.BinOp) and isinstance(pointer.op, ast.Add):
            if _is(pointer.right, 0):
                node.args[0] = pointer.left
            elif mask is not None and self.facts.span(mask) and not self.facts.span(pointer):  # a block masks no single address
                pointer.right = call("tl.where", copy_of(mask), pointer.right, ast.Constant(0))
        return node

    def _scan(self, node: ast.Call) -> ast.expr:
        values, axis, combine = node.args
        function = self.kernel.combines.get(ast.unparse(combine))
        if function is not None and isinstance(values, ast.Tuple) and len(values.elts) == 1 and not node.keywords:
            returned = [s.value for s in function.body if isinstance(s, ast.Assign)]
            if len(returned) == 1 and isinstance(returned[0], ast.BinOp):
                kind = {ast.Add: "tl.cumsum", ast.Mult: "tl.cumprod"}.get(type(returned[0].op))
                if kind:
                    return call(kind, values.elts[0], axis)
            if "log1p" in ast.unparse(function):
                return call("tl.associative_scan", values.elts[0], axis, ast.Name("log_add_exp", ast.Load()))
        return node

    def _helper(self, node: ast.Call, name: str) -> ast.expr:
        match name.removeprefix("triton_helpers."):
            case "maximum" | "minimum" as which:
                return self._extreme(which, *node.args)
            case "welford_reduce" | "online_softmax_combine" | "online_softmax_reduce" | "exp" as which:
                plain, taken = _FEWER_ARGUMENTS[which]
                return call(plain, *node.args[:taken])
            case "select_one":
                keep = any(k.arg == "keep_dims" for k in node.keywords)
                axis = 1 + ("YBLOCK" in self.kernel.blocks) if keep else 0  # the last one; of a row alone there is one
                last = call("last_along", node.args[0], node.args[1], ast.Constant(axis))
                return integers.to_ast(f"{ast.unparse(last)}[{':, ' * axis}None]") if keep else last
            case "online_softmax_combine_with_sum":
                node.args = node.args[:-1]
            case "bucketize_binary_search" if all(ast.unparse(a) == "None" for a in node.args[8:]):
                return call("count_below", *node.args[:8])
            case "constexpr_next_power_of_2":
                return call("triton.next_power_of_2", *node.args)
            case "div_floor_integer" if all(self.facts.is_size(a) for a in node.args):
                return integers.tidy(ast.BinOp(node.args[0], ast.FloorDiv(), node.args[1]))
        renamed = RENAMED.get(name)
        if renamed == "":
            return node.args[0]
        if not renamed:
            raise CaptureError(f"Inductor's helper {name} has no plain form.", where="emit")
        node.func = ast.Name(renamed, ast.Load())
        return node


_FEWER_ARGUMENTS = {
    "welford_reduce": ("welford_update", 4), "online_softmax_combine": ("softmax_update", 3), "online_softmax_reduce": ("softmax_along", 3),
    "exp": ("tl.exp", 1),
}  # fmt: skip
"""Inductor's helpers whose plain form takes the first arguments alone."""


OUT_OF_BOUNDS = "an index is out of bounds"
_LITERAL_CALLS = {f"float({q}{v}{q})" for q in "'\"" for v in ("inf", "-inf", "nan")}


def _is(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def _floating(node: ast.AST) -> bool:
    return any(
        (isinstance(n, ast.Constant) and isinstance(n.value, float)) or (isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div))
        for n in ast.walk(node)
    )


def _values(body: list[ast.stmt]) -> dict[str, set[str]]:
    """The texts of all values that each plain name is assigned."""
    found: dict[str, set[str]] = {}
    for statement in every(body):
        names = assigned(statement)
        simple = isinstance(statement, ast.Assign | ast.AnnAssign) and len(names) == 1 and statement.value is not None
        for name in names:
            found.setdefault(name, set()).add(ast.unparse(statement.value) if simple else "?")  # type: ignore[attr-defined]
    return found


def _without(mask: ast.expr, names: set[str]) -> ast.expr | None:
    """A conjunction of masks without some of them; None when nothing is left."""
    if isinstance(mask, ast.Name):
        return None if mask.id in names else mask
    if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
        left, right = _without(mask.left, names), _without(mask.right, names)
        if left is None or right is None:
            return right if left is None else left
        return ast.BinOp(left, ast.BitAnd(), right)
    return mask
