"""One Inductor kernel turned into plain Triton, with the same meaning: the passes before naming.

Order: rows (optional: one row a program, one-dimensional blocks), simplify (constants, helpers, masks, broadcasts,
integer expressions), prune, fold.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kernelllm.compiler.emit.ast_tools import Rename, Replace, all_reads, assigned, bindings, call, every, fresh, name_of, prune, reads
from kernelllm.compiler.emit.helpers import HELPERS
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.kernels.folding import direct, fold, masks_applied_twice, shared_masks
from kernelllm.compiler.emit.kernels.simplify import Simplifier
from kernelllm.compiler.emit.kernels.value_types import Facts
from kernelllm.compiler.inductor.kernel_source import Kernel
from kernelllm.core.text import syntax_tree

_WIDTH = 76
MOST_BLOCKS = 65535
"""What the second dimension of a grid holds at most."""
_NUMELS = ("xnumel", "ynumel", "znumel", "r0_numel", "r1_numel")


@dataclass
class Cleaned:
    """A kernel after the passes; names are still Inductor's."""

    kernel: Kernel
    body: list[ast.stmt]
    params: list[str]
    """Arguments that the body still uses, in order: pointers, sizes, blocks."""
    helpers: set[str]
    facts: Facts
    rows: bool
    """One row a program: XBLOCK is gone."""
    persistent: dict[str, int | None] = field(default_factory=dict)
    """Blocks that hold a whole reduction, to its length where that is fixed, else None."""
    columns: int = 0
    """Where not 0: how many results one outer index has; a program then computes results of one outer index alone."""

    @property
    def pointers(self) -> list[str]:
        """Pointer arguments, in order."""
        return [p for p in self.params if self.kernel.signature.get(p, "").startswith("*") or "_ptr" in p]


def clean(kernel: Kernel, *, rows: bool = False, blocks: Mapping[str, Collection[int]] | None = None, hints: bool = False) -> Cleaned:
    """Apply the passes. ``rows`` asks for one row a program, for reductions over one axis.

    ``blocks``: what each block size may be. A mask goes where all of them divide a known size. ``hints``: loads keep all that Inductor
    asks of the caches.
    """
    body = _without_idle_masks(fresh(kernel.function.body), blocks or {})
    body = body if hints else _cache_hints(body)
    body, persistent = _without_sizes(_reshaped_apart(body))
    sizes = {p for p in kernel.runtime if kernel.signature.get(p, "i64")[:1] != "*" and "_ptr" not in p} | set(kernel.blocks)
    index_type = "int64" if any("tl.int64" in ast.unparse(s) and "program_id" in ast.unparse(s) for s in body) else "int32"
    rows = rows and set(kernel.blocks) | set(persistent) == {"XBLOCK", "R0_BLOCK"}
    if rows:
        body = fresh([_Rows(index_type == "int64").visit(s) for s in body])
    facts = Facts(kernel.signature, sizes | set(persistent), index_type)
    simplifier = Simplifier(kernel, facts)
    for _ in range(2):
        body = prune(simplifier.run(fresh(body)))
    body = masks_applied_twice(body)
    body = prune(fold(spelled(body)))
    body = fresh(shortened(fresh(shared_masks(masks_applied_twice(direct(body))))))
    used = all_reads(body)
    params = [p for p in (*kernel.params, *(h for h in persistent if h not in kernel.params)) if used[p]]
    helpers = {name for name in used if name in HELPERS}
    return Cleaned(kernel, body, params, helpers, facts, rows, persistent)


def _without_idle_masks(body: list[ast.stmt], blocks: Mapping[str, Collection[int]]) -> list[ast.stmt]:
    """The body with masks that hold everywhere as True: ``r0_mask = r0_index < r0_numel`` where the block divides the size.

    More blocks of y than a grid holds go into a third dimension too, which has programs beyond the end.
    """
    sizes = {name: s.value.value for s in body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) for name in assigned(s)}
    for statement in every(body):
        axis = (assigned(statement) or [""])[0].removesuffix("mask") if isinstance(statement, ast.Assign) else ""
        size, block = sizes.get(f"{axis}numel"), blocks.get(f"{axis.upper()}BLOCK", ())
        divided = isinstance(size, int) and block and all(size % b == 0 and (axis != "y" or size // b <= MOST_BLOCKS) for b in block)
        if divided and ast.unparse(statement).endswith(f"{axis}index < {axis}numel"):
            statement.value = ast.Constant(True)  # type: ignore[attr-defined]
    return body


def _without_sizes(body: list[ast.stmt]) -> tuple[list[ast.stmt], dict[str, int | None]]:
    """Take ``xnumel = 8`` and ``R0_BLOCK: tl.constexpr = 8`` out of the body: sizes and blocks are arguments here."""
    persistent: dict[str, int | None] = {}
    kept: list[ast.stmt] = []
    for statement in body:
        names = assigned(statement)
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Assign) and names and names[0] in _NUMELS:
            continue
        if isinstance(statement, ast.AnnAssign) and names[0].endswith("_BLOCK") and names[0][0] == "R":
            persistent[names[0]] = int(ast.unparse(value)) if isinstance(value, ast.Constant) else None
            continue
        kept.append(statement)
    return kept, persistent


def _reshaped_apart(body: list[ast.stmt]) -> list[ast.stmt]:
    """``a = a[:, None]`` gives the value before it a name of its own."""
    for i, statement in enumerate(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Name(id=same))) if name == same:
                body[:i] = [Rename({name: f"{name}_flat"}).visit(s) for s in body[:i]]
                statement.value.value = ast.Name(f"{name}_flat", ast.Load())  # type: ignore[attr-defined]
    return body


class _Rows(ast.NodeTransformer):
    """[XBLOCK, R0_BLOCK] tiles become [R0_BLOCK] rows: program_id(0) is the row."""

    def __init__(self, wide: bool) -> None:
        self.wide = wide

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        name = assigned(node)[0]
        if name == "xindex":
            node.value = integers.to_ast("tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)")
            return node
        if name == "xoffset":
            return ast.Pass()
        if name == "xmask":
            node.value = ast.Constant(True)
            return node
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.slice).replace("(", "").replace(")", "") in ("None, :", ":, None"):
            return node.value
        return node

    def visit_List(self, node: ast.List) -> ast.AST:
        texts = [ast.unparse(e) for e in node.elts]
        if texts and all(t in ("XBLOCK", "1", "R0_BLOCK", "RBLOCK") for t in texts):
            return ast.List([e for e, t in zip(node.elts, texts, strict=True) if t in ("R0_BLOCK", "RBLOCK")], ast.Load())
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = name_of(node.func)
        if name.endswith(".broadcast_to") and name != "tl.broadcast_to":
            assert isinstance(node.func, ast.Attribute)
            return node.func.value
        if name == "tl.broadcast_to" and isinstance(node.args[1], ast.List) and not node.args[1].elts:
            return node.args[0]
        if name in ("tl.sum", "tl.max", "tl.min", "tl.reduce", "tl.associative_scan", "tl.cumsum") or name.startswith("triton_helpers."):
            reducing = name.startswith("tl.") or name.rsplit(".", 1)[-1] in (
                "max2", "min2", "any", "prod", "welford", "max_with_index", "min_with_index", "online_softmax_reduce", "xor_sum",
            )  # fmt: skip
            if reducing:
                node.args = [ast.Constant(0) if i and isinstance(a, ast.Constant) and a.value == 1 else a for i, a in enumerate(node.args)]
            node.keywords = [k for k in node.keywords if k.arg != "keep_dims"]
        return node


def shortened(body: list[ast.stmt]) -> list[ast.stmt]:
    """The same body in fewer and shorter lines."""
    body = _lanes(body)
    return _joined(body, all_reads(body), bindings(body))


def spelled(body: list[ast.stmt]) -> list[ast.stmt]:
    """Helpers that are called once as what they do, and zeros by their name."""
    uses = all_reads(body)
    visitor = _Spelled({n for n in ("maximum", "minimum") if uses[n] == 1})
    return [visitor.visit(s) for s in body]


def _lanes(body: list[ast.stmt]) -> list[ast.stmt]:
    """``cols = start + lanes`` with the range itself in the place of ``lanes``."""
    made = {s.targets[0].id: s for s in body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}
    for name in ("r0_base", "r1_base"):
        statement = made.get(name)
        readers = [s for s in every(body) if not hasattr(s, "body") and name in reads(s)]
        if statement is None or not all(assigned(s) == [name.replace("base", "index")] for s in readers):
            continue
        put = Replace({name: statement.value})
        for reader in readers:
            assert isinstance(reader, ast.Assign)
            if isinstance(reader.value, ast.BinOp) and isinstance(reader.value.left, ast.Name) and reader.value.left.id == name:
                reader.value.left, reader.value.right = reader.value.right, reader.value.left
            reader.value = put.visit(reader.value)
        body = [s for s in body if s is not statement]
    return body


def _cache_hints(body: list[ast.stmt]) -> list[ast.stmt]:
    """The body without hints, where no loop asks for a line to stay: there is nothing to protect then."""
    loops = [s for s in body if isinstance(s, ast.For)]
    if any(isinstance(n, ast.Constant) and n.value == "evict_last" for loop in loops for n in ast.walk(loop)):
        return body
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                node.keywords = [k for k in node.keywords if k.arg != "eviction_policy"]
    return body


class _Spelled(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = name_of(node.func)
        if name in self.names:
            return call(f"tl.{name}", *node.args, propagate_nan=syntax_tree("tl.PropagateNan.ALL", mode="eval").body)
        match node.args:
            case [shape, ast.Constant(value=0), kind] if name == "tl.full":
                return call("tl.zeros", shape, kind)
        return node


def _joined(body: list[ast.stmt], uses: dict[str, int], bound: dict[str, int]) -> list[ast.stmt]:
    """A sum that is only stored, in the store; what is only added up, in the addition."""
    kept: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.For | ast.If):
            statement.body = _joined(statement.body, uses, bound)
        for name in reads(statement) if not hasattr(statement, "body") else ():
            maker = next((s for s in reversed(kept) if isinstance(s, ast.Assign) and assigned(s) == [name]), None)
            if maker is None or uses[name] != 1 or bound[name] != 1 or not _may_join(maker.value, statement):
                continue
            if set(reads(maker.value)) & {n for s in every(kept[kept.index(maker) + 1 :]) for n in assigned(s)}:  # ``carry``, in a scan
                continue
            whole = Replace({name: maker.value}).visit(syntax_tree(ast.unparse(statement)).body[0])
            if len(ast.unparse(whole)) <= _WIDTH:
                statement = whole
                kept = [s for s in kept if s is not maker]
        kept.append(statement)
    return kept


def _may_join(value: ast.expr, statement: ast.stmt) -> bool:
    if isinstance(value, ast.Compare):
        return True
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.value, ast.Name) and name_of(getattr(value, "func", value)) == "tl.load"
    stored = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and name_of(statement.value.func) == "tl.store"
    return stored and not any(isinstance(n, ast.Call) and name_of(n.func).startswith(("tl.load", "tl.atomic")) for n in ast.walk(value))
