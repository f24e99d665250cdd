"""Fuses two kernels of a step: what the first computes for a row (a normaliser, say) the second computes for each of its own rows.

Each row of the first belongs to several neighbouring rows of the second, as a vector beside a matrix does. Then the step is one kernel,
and the loop can go inside of it.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from typing import Any

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.loops.body import STEP
from kernelllm.compiler.loops.inside_kernel import Unfit, need, place_of, span
from kernelllm.core.text import syntax_tree

_ROWS = "rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]"
_HEAD = {"rows", "row_mask", "cols", "col_mask"}


def with_one_kernel(source: str) -> str:
    """The file with one kernel for the step's two, or as it is."""
    tree = syntax_tree(source)
    try:
        step, launches = step_and_launches(tree)
        need(len(launches) == 2)
        first, second = (RowKernel(tree, statement.value) for statement in launches)
        old = [(span(first.node), None, 0), (span(second.node), second.node, 0), (span(step), step, 4)]
        dropped = _Joined(first, second, step).written()
        _without(step, launches[0], {*dropped, first.given["n_rows"]})
    except (Unfit, StopIteration, KeyError, AttributeError, IndexError):  # a node is not of the kind that it must be
        return source
    return formatting.replaced(source, old)


def step_and_launches(tree: ast.Module) -> tuple[ast.FunctionDef, list[Any]]:
    """The step of a file's loop, and its statements that launch kernels. Raises StopIteration where there is none."""
    model = next(s for s in tree.body if isinstance(s, ast.ClassDef) and s.name == "ModelNew")
    step = next(s for s in model.body if isinstance(s, ast.FunctionDef) and s.name == STEP)
    calls = [s for s in step.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    return step, [s for s in calls if isinstance(s.value.func, ast.Subscript)]  # type: ignore[attr-defined]


class RowKernel:
    """A kernel over rows and its one launch."""

    def __init__(self, tree: ast.Module, launch: Any) -> None:
        name = launch.func.value.id
        (self.node,) = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == name] or [None]  # type: ignore[list-item]
        need(self.node and len(self.node.decorator_list) == 1 and not self.node.args.defaults)
        need(sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(tree)) == 1)
        self.launch = launch
        self.names = [a.arg for a in self.node.args.args]
        self.given = dict(zip(self.names, map(ast.unparse, launch.args), strict=False))
        self.named = {k.arg: ast.unparse(k.value) for k in launch.keywords}
        body: list[Any] = self.node.body
        self.body = body[1:] if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) else body
        need(ast.unparse(self.body[0]) == _ROWS)
        self.stores: list[Any] = [s.value for s in self.body if isinstance(s, ast.Expr)]
        assigned: list[Any] = [s for s in self.body if isinstance(s, ast.Assign)]
        need(all(isinstance(s, ast.Assign | ast.Expr) for s in self.body) and all(isinstance(s.targets[0], ast.Name) for s in assigned))
        need(all(ast.unparse(s.func) == "tl.store" and len(s.args) == 3 for s in self.stores))
        self.defined: dict[str, ast.expr] = {s.targets[0].id: s.value for s in assigned}
        need(len(self.defined) == len(assigned) and all(name in self.defined for name in _HEAD))
        need(ast.unparse(self.defined["row_mask"]) == "rows < n_rows")
        need(ast.unparse(self.defined["cols"]) == "tl.arange(0, BLOCK_COLS)[None, :]")

    def width(self) -> tuple[str, str | None]:
        """How long the rows are, and the block that holds one."""
        left, _, right = ast.unparse(self.defined["col_mask"]).partition(" < ")
        need(left == "cols")
        return self.given.get(right, right), self.named.get("BLOCK_COLS")

    def indices(self) -> list[str]:
        """Names that depend on positions and sizes alone, in order."""
        found: list[str] = []
        for name, value in self.defined.items():
            if not any(n.endswith("_ptr") or (n in self.defined and n not in found) for n in _names(value)):
                found.append(name)
        return found

    def written(self) -> set[str]:
        """The tensors that it stores."""
        return {self.given[ast.unparse(s.args[0].left)] for s in self.stores}

    def read(self) -> set[str]:
        """The tensors that it loads."""
        calls: list[Any] = [n for v in self.defined.values() for n in ast.walk(v) if isinstance(n, ast.Call)]
        return {self.given[ast.unparse(n.args[0].left)] for n in calls if ast.unparse(n.func) == "tl.load"}


class _Joined:
    """The second kernel with the first inside; ``shared`` is the first's row as the second has it."""

    def __init__(self, first: RowKernel, second: RowKernel, step: Any) -> None:
        self.first, self.second, self.step = first, second, step
        need(first.width() == second.width() and not first.read() & (first.written() | second.written()))
        need(not second.written() & (second.read() | first.written()))
        self.shared, self.each = self._shared_row()
        kept: list[Any] = second.node.args.args
        by_text = {text: name for name, text in second.given.items()}
        self.renamed = {"rows": self.shared}
        self.added: list[tuple[str, str]] = []
        for name, text in first.given.items():
            if name != "n_rows" and text not in by_text:
                need(name.endswith("_ptr"))
                new = _free(name.removesuffix("_ptr"), {a.arg.removesuffix("_ptr") for a in kept} | {n for n, _ in self.added}) + "_ptr"
                self.added.append((new.removesuffix("_ptr"), text))
                by_text[text] = new
            self.renamed[name] = by_text.get(text, name)

    def _shared_row(self) -> tuple[str, ast.expr]:
        """The second's name for a row of the first, and how many of its rows share one."""
        sizes = {s.targets[0].id: s.value for s in self.step.body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}
        few, many = (_factors(k.launch.args[k.names.index("n_rows")], sizes) for k in (self.first, self.second))
        for name, value in self.second.defined.items():
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv) and ast.unparse(value.left) == "rows":
                text = ast.unparse(value.right)
                number, names = _factors(syntax_tree(self.second.given.get(text, text), mode="eval").body, {})
                if (few[0] * number, few[1] + names) == many:
                    return name, value.right
        raise Unfit

    def written(self) -> set[str]:
        """Write the kernel and its launch; returns the tensors that are no longer needed."""
        inner = self.second.indices()
        body: list[Any] = [syntax_tree(f"{name} = {ast.unparse(self.second.defined[name])}").body[0] for name in inner]
        places = {_resolved(self.second.defined[name], self.second.defined, self.shared): name for name in inner}
        taken = {*self.second.names, *self.renamed.values(), *inner}
        loads: dict[str, str] = {}
        for name, value in self.first.defined.items():
            if name in _HEAD - {"rows"}:
                self.renamed[name] = name
            elif name != "rows":
                new = _rewritten(value, self.renamed)
                if name in self.first.indices() and (text := _resolved(new, self.second.defined, self.shared)) in places:
                    self.renamed[name] = places[text]
                else:
                    body += _assigned(name, new, self.renamed, taken, loads)
        stored = {}
        stores = []
        for store in self.first.stores:
            new = _rewritten(store, self.renamed)
            tensor = self.first.given[ast.unparse(store.args[0].left)]
            stored[tensor] = _resolved(new.args[0].right, self.second.defined, self.shared), new.args[1]
            new.args[2] = syntax_tree(f"{ast.unparse(new.args[2])} & (rows % {ast.unparse(self.each)} == 0)", mode="eval").body
            stores.append((tensor, new))
        own: dict[str, str] = {}
        for name, value in self.second.defined.items():
            if name in inner:
                continue
            new = _rewritten(value, own)
            pointer = next((n for n in _names(new) if self.second.given.get(n) in stored), None)
            if pointer:
                place, made = stored[self.second.given[pointer]]
                need(_exact(self.step, self.second.given[pointer]))  # a type of fewer digits would round what is handed over
                need(isinstance(new, ast.Call) and ast.unparse(new.func) == "tl.load")
                need(_resolved(syntax_tree(place_of(new, pointer), mode="eval").body, self.second.defined, self.shared) == place)
                new = made
            body += _assigned(name, new, own, taken, loads)
        wanted = {n.id for n in ast.walk(self.step.body[-1]) if isinstance(n, ast.Name)} | self._viewed()
        body += [ast.Expr(new) for tensor, new in stores if tensor in wanted]
        body += [ast.Expr(_rewritten(store, own)) for store in self.second.stores]
        self.second.node.body = body
        self._rewrite_arguments({n for s in body for n in _names(s)})
        return {tensor for tensor, _ in stores} - wanted

    def _viewed(self) -> set[str]:
        """Tensors that other tensors of the step are made of."""
        return {n.id for s in self.step.body if isinstance(s, ast.Assign) for n in ast.walk(s.value) if isinstance(n, ast.Name)}

    def _rewrite_arguments(self, used: set[str]) -> None:
        node, launch = self.second.node, self.second.launch
        pointers = sum(name.endswith("_ptr") for name in self.second.names)
        node.args.args[pointers:pointers] = [ast.arg(f"{name}_ptr") for name, _ in self.added]
        launch.args[pointers:pointers] = [syntax_tree(text, mode="eval").body for _, text in self.added]
        keeps = [a.arg in used for a in node.args.args]
        launch.args = [value for value, keep in zip(launch.args, keeps, strict=False) if keep]
        node.args.args = [a for a, keep in zip(node.args.args, keeps, strict=True) if keep or a.arg.isupper()]


def _without(step: Any, launch: Any, dropped: set[str]) -> None:
    """Take the first launch out of the step, and what nothing else needs: tensors between the kernels, the number of rows."""
    step.body.remove(launch)
    used = Counter(n for s in step.body if not isinstance(s, ast.Delete) for n in _names(s))
    step.body = [s for s in step.body if not (isinstance(s, ast.Assign) and (to := ast.unparse(s.targets[0])) in dropped and used[to] == 1)]
    for statement in [s for s in step.body if isinstance(s, ast.Delete)]:
        statement.targets = [t for t in statement.targets if ast.unparse(t) not in dropped]
        if not statement.targets:
            step.body.remove(statement)


def _exact(step: Any, tensor: str) -> bool:
    """Whether a tensor of the step is float32."""
    for statement in step.body:
        text = ast.unparse(statement)
        if text.startswith(f"{tensor} = torch.empty_like("):
            return _exact(step, ast.unparse(statement.value.args[0]))
        if text.startswith((f"{tensor} = torch.empty(", f"check('{tensor}', ")):
            return "torch.float32" in text and "float16" not in text
    return False


def _names(node: Any) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]


def _free(name: str, taken: set[str]) -> str:
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _rewritten(node: Any, renamed: dict[str, str]) -> Any:
    """A copy with other names."""
    copy = syntax_tree(ast.unparse(node), mode="eval").body
    for inner in ast.walk(copy):
        if isinstance(inner, ast.Name):
            inner.id = renamed.get(inner.id, inner.id)
    return copy


def _assigned(name: str, value: Any, renamed: dict[str, str], taken: set[str], loads: dict[str, str]) -> list[Any]:
    """The statement for a name, under one that is not taken; none where the same was loaded before."""
    text = ast.unparse(value)
    if isinstance(value, ast.Name) or (text.startswith("tl.load(") and text in loads):
        renamed[name] = loads.get(text, text)
        return []
    new = _free(name, taken)
    taken.add(new)
    renamed[name] = new
    if text.startswith("tl.load("):
        loads[text] = new
    return syntax_tree(f"{new} = {text}").body


def _resolved(node: Any, defined: dict[str, ast.expr], kept: str) -> str:
    """A place in terms of rows, columns and sizes; ``kept`` stays a name."""
    copy: Any = syntax_tree(f"({ast.unparse(node)})", mode="eval")
    known = {n: v for n, v in defined.items() if n not in {*_HEAD, kept} and not any(m.endswith("_ptr") for m in _names(v))}
    for _ in range(len(known) + 1):
        copy = _Inlined(known).visit(copy)
    return ast.unparse(copy)


class _Inlined(ast.NodeTransformer):
    def __init__(self, known: dict[str, ast.expr]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return syntax_tree(ast.unparse(self.known[node.id]), mode="eval").body if node.id in self.known else node


def _factors(node: Any, sizes: dict[str, ast.expr]) -> tuple[int, Counter[str]]:
    """A product as a number and the names of the other factors."""
    if isinstance(node, ast.Name) and node.id in sizes:
        return _factors(sizes[node.id], {})
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        parts = [_factors(part, sizes) for part in (node.left, node.right)]
        return math.prod(n for n, _ in parts), parts[0][1] + parts[1][1]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value, Counter()
    return 1, Counter([ast.unparse(node)])


__all__ = ["with_one_kernel"]
