"""Loop fission: products that no other step of the loop waits for are computed for all steps at once, ahead of the loop or behind it.

    for t in range(n):                                        given = torch.vmap(ahead)(x.movedim(1, 0))
        h = torch.tanh(self.cell(torch.cat((x[:, t], h), 1)))  ->  for t in range(n):
        out.append(self.head(h))                                   h = torch.tanh(given[t] + linear(h, rest of the weight))
                                                                   states.append(h)
                                                               out = torch.vmap(behind)(torch.stack(states))

What a product needs ahead of it, and what is made of its result behind it, goes with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import NamesReplaced, changed_by, free_name
from kernelllm.compiler.loops.chunk_states import steps_in_front
from kernelllm.compiler.loops.inside_kernel import Stacks, Unfit, need
from kernelllm.compiler.loops.reversed_loops import is_call
from kernelllm.compiler.loops.step_parts import LINEAR, Products, StepSlices, each_name_once
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]
_CATS = ("torch.cat", "torch.concat", "torch.concatenate")
_SKIPPED = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
"""What computes a part of itself only sometimes, or in names of its own."""


def with_fission(
    before: Statements, loop: Any, after: Statements, layers: Callable[[], Mapping[str, Any]]
) -> tuple[Statements, ast.For, Statements]:
    """The statements with such products apart; as they are where the loop has none or is not simple enough."""
    over, text = loop.iter, ast.unparse(loop)
    simple = isinstance(loop.target, ast.Name) and is_call(over, "range") and len(over.args) <= 2 and not over.keywords
    if not simple or not ("self." in text or "linear" in text):
        return before, loop, after
    try:
        return _Fission(before, loop, after, layers).done()
    except (Unfit, AttributeError):  # AttributeError: a node is not of the kind that it must be
        return before, loop, after


class _Fission:
    def __init__(self, before: Statements, loop: Any, after: Statements, layers: Callable[[], Mapping[str, Any]]) -> None:
        self.before, self.loop, self.after = before, loop, after
        self.counter = loop.target.id
        self.bounds = ["0", *map(ast.unparse, loop.iter.args)][-2:]
        self.taken = {n for s in (*before, loop, *after) for n in names(s)}
        self.changed = changed_by(loop)
        self.lists = {n for s in before if isinstance(s, ast.Assign) and isinstance(s.value, ast.List) for n in stored(s)}
        self.products = Products(layers)
        self.body = each_name_once(syntax_tree("\n".join(map(ast.unparse, loop.body))).body, self.lists, self.taken)
        self.stores = {name: at for at, s in enumerate(self.body) for name in stored(s)}
        self.changed |= self.stores.keys() | self.lists
        self.at = 0

    def done(self) -> tuple[Statements, ast.For, Statements]:
        free = self._free()
        new: Statements = []
        for at, statement in enumerate(self.body):
            self.at = at
            new += self._taken_apart(statement, free)
        self._move_biases(new, free)
        read = {n.id for s in (*new, *self.after) for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        self.body = [s for s in new if not isinstance(s, ast.Assign) or set(stored(s)) & read or not _joins(s.value)]
        self.stores = {name: at for at, s in enumerate(self.body) for name in stored(s)}
        ahead, behind = self._ahead(self._free()), self._behind()
        need(bool(ahead or behind))
        before, first = self._moved_ahead(ahead) if ahead else (self.before, [])
        before, last, after = self._moved_behind(behind, before) if behind else (before, [], self.after)
        kept = [s for at, s in enumerate(self.body) if at not in {*ahead, *behind}]
        loop = ast.For(self.loop.target, self.loop.iter, [*first, *kept, *last], [])
        return before, ast.fix_missing_locations(loop), after

    def _free(self) -> set[str]:
        """Names of a step that need nothing of the step before."""
        free: set[str] = set()
        for statement in self.body:
            if isinstance(statement, ast.Assign) and self.needs_none(statement.value, free):
                free |= set(stored(statement))
        return free

    def needs_none(self, node: ast.expr, free: set[str]) -> bool:
        rest = StepSlices(self.counter, self.changed).without(node)
        return not (names(rest) & (self.changed - free)) and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(node))

    def _taken_apart(self, statement: Any, free: set[str]) -> Statements:
        """The statement behind one for each product in it; a product of joined parts is the sum of those of its parts."""
        found: Statements = []
        finder = _ProductsApart(self, free, found)
        if isinstance(statement, ast.Assign):
            inner = statement.value
            statement.value = finder.visit(inner)
            if found and isinstance(statement.value, ast.Name) and ast.unparse(found[-1].targets[0]) == statement.value.id:  # type: ignore[attr-defined]
                statement.value = found.pop().value  # type: ignore[attr-defined]
        else:
            statement.value.args = [finder.visit(a) for a in statement.value.args]
        return [*found, statement]

    def _move_biases(self, body: Statements, free: set[str]) -> None:
        """What a step's own product adds goes to the free product that it is added to: ``self.given(x[:, t]) + self.cell(h)``."""
        loads = [n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        assigned = [s for s in body if isinstance(s, ast.Assign)]
        made: dict[str, Any] = {ast.unparse(s.targets[0]): s for s in assigned if self.products.operands(s.value)}
        for node in [n for s in body for n in ast.walk(s) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Add)]:
            sides = [made[name] for name in map(ast.unparse, (node.left, node.right)) if loads.count(name) == 1 and name in made]
            first, *rest = sorted(sides, key=lambda s: not self.needs_none(s.value, free)) or [None]
            if len(rest) != 1 or self.needs_none(rest[0].value, free) or not self.needs_none(first.value, free):
                continue
            given, weight, bias = self.products.operands(first.value)  # type: ignore[misc]
            operand, other, moved = self.products.operands(rest[0].value)  # type: ignore[misc]
            if moved:
                total = f"{bias} + {moved}" if bias else moved
                first.value = syntax_tree(f"{LINEAR}({ast.unparse(given)}, {weight}, {total})", mode="eval").body
                rest[0].value = syntax_tree(f"{LINEAR}({ast.unparse(operand)}, {other})", mode="eval").body

    def _ahead(self, free: set[str]) -> list[int]:
        """Places of the statements that go ahead of the loop: free products, and what they need of the step."""
        wanted: set[str] = set()
        found = []
        for at in reversed(range(len(self.body))):
            statement: Any = self.body[at]
            if not isinstance(statement, ast.Assign) or not set(stored(statement)) <= free:
                continue
            if self.products.operands(statement.value) or set(stored(statement)) & wanted:
                wanted |= names(statement.value) & free
                found.append(at)
        return found[::-1]

    def _behind(self) -> list[int]:
        """Places of the statements that go behind the loop: products that no later step needs, and what is made of them."""
        carried = {name for name, at in self.stores.items() if any(name in names(s) for s in self.after) or self._before_set(name, at)}
        needed: set[int] = set()
        wanted = set(carried)
        for at in reversed(range(len(self.body))):
            if isinstance(self.body[at], ast.Assign) and set(stored(self.body[at])) & wanted:
                needed.add(at)
                wanted |= names(self.body[at].value)  # type: ignore[attr-defined]
        free = self._free()
        moved: set[str] = set()
        found = []
        for at, statement in enumerate(self.body):
            value: Any = statement.value  # type: ignore[attr-defined]
            if isinstance(statement, ast.Assign):
                product = self.products.operands(value) and not set(stored(statement)) <= free
                if at not in needed and (product or names(value) & moved):
                    moved |= set(stored(statement))
                    found.append(at)
            elif names(value) & moved:
                found.append(at)
        return found

    def _before_set(self, name: str, at: int) -> bool:
        """Whether a step reads a name before it sets it, or where it sets it."""
        return any(name in names(s.value) for s in self.body[: at + 1])  # type: ignore[attr-defined]

    def _moved_ahead(self, ahead: list[int]) -> tuple[Statements, Statements]:
        """The statements before the loop, and those that begin a step."""
        body = [self.body[at] for at in ahead]
        others = [s for at, s in enumerate(self.body) if at not in ahead]
        made = [n for s in body for n in stored(s) if any(n in names(o) for o in (*others, *self.after))]
        slices = StepSlices(self.counter, self.changed)
        inner = [slices.named(s, self.taken) for s in body]
        need(bool(slices.found) and self.counter not in {n for s in inner for n in names(s)})
        results = [free_name(f"_{n}", self.taken) for n in made]
        given = {name: self._all_steps(text) for text, name in slices.found.items()}
        new = self._for_all_steps("_ahead", inner, given, dict(zip(made, results, strict=True)))
        shift = "" if self.bounds[0] == "0" else f" - ({self.bounds[0]})"
        first = "\n".join(f"{name} = {result}[{self.counter}{shift}]" for name, result in zip(made, results, strict=True))
        return [*self.before, *new], syntax_tree(first).body

    def _moved_behind(self, behind: list[int], before: Statements) -> tuple[Statements, Statements, Statements]:
        """The statements before the loop, those that end a step, and those behind the loop."""
        appended: dict[str, str] = {}
        body: Statements = []
        for at in behind:
            statement: Any = self.body[at]
            if isinstance(statement, ast.Assign):
                body.append(statement)
                continue
            name = statement.value.func.value.id
            need(name not in appended and sum(name in names(s) for s in self.body) == 1)
            appended[name] = free_name(f"_{name}_of_step", self.taken)
            body += syntax_tree(f"{appended[name]} = {ast.unparse(statement.value.args[0])}").body
        slices = StepSlices(self.counter, self.changed)
        inner = [slices.named(s, self.taken) for s in body]
        local = {n for s in inner for n in stored(s)}
        read = [n for n in dict.fromkeys(n for s in inner for n in sorted(names(s))) if n in self.stores and n not in local]
        need(self.counter not in {n for s in inner for n in names(s)} and not any(self._old(n, behind) for n in read))
        kept = {n: free_name(f"_{n}_steps", self.taken) for n in read}
        need(bool(kept) and bool(appended))
        given = {n: f"torch.stack({name}, dim=0)" for n, name in kept.items()}
        given |= {name: self._all_steps(text) for text, name in slices.found.items()}
        new = self._for_all_steps("_behind", inner, given, {result: name for name, result in appended.items()})
        stacks = Stacks(set(appended))
        after = [stacks.visit(s) for s in syntax_tree("\n".join(map(ast.unparse, self.after))).body]
        need(stacks.found == sum(isinstance(n, ast.Name) and n.id in appended for s in after for n in ast.walk(s)))
        before = [s for s in before if not (set(stored(s)) & appended.keys() and ast.unparse(s.value) == "[]")]  # type: ignore[attr-defined]
        need(not any(set(stored(s)) & appended.keys() for s in before))
        before += syntax_tree("\n".join(f"{name} = []" for name in kept.values())).body
        last = syntax_tree("\n".join(f"{kept[name]}.append({name})" for name in kept)).body
        return before, last, [*new, *after]

    def _old(self, name: str, behind: list[int]) -> bool:
        """Whether what goes behind the loop reads what a name was at the step's begin."""
        return any(name in names(self.body[at].value) and at <= self.stores[name] for at in behind)  # type: ignore[attr-defined]

    def _all_steps(self, text: str) -> str:
        """``x[:, t]`` of all steps, these in front."""
        moved, rest = steps_in_front(text, self.counter)
        first = "" if self.bounds[0] == "0" else self.bounds[0]
        return f"{moved}[{', '.join([f'{first}:{self.bounds[1]}', *rest])}]"

    def _for_all_steps(self, function: str, body: Statements, given: Mapping[str, str], results: Mapping[str, str]) -> Statements:
        """Statements that run ``body`` for all steps at once, of what is given by name; ``results``: what it makes, to names for all."""
        local = {*given, *(n for s in body for n in stored(s))}
        plain = all(isinstance(s.value, ast.Name) or self._is_of_a_name(s.value, local) for s in body)  # type: ignore[attr-defined]
        own = {n: free_name(f"_{n}", self.taken) for n in dict.fromkeys([*given, *(n for s in body for n in stored(s))])}
        renamed = NamesReplaced(own)
        separate = body if plain else [_Separate(self.products).visit(s) for s in body]
        lines = [ast.unparse(renamed.visit(s)) for s in syntax_tree("\n".join(map(ast.unparse, separate))).body]
        if plain:  # a product takes dimensions in front as they are
            lines = [f"{own[name]} = {value}" for name, value in given.items()] + lines
            lines += [f"{name} = {own[result]}" for result, name in results.items()]
            return syntax_tree("\n".join(lines)).body
        function = free_name(function, self.taken)
        lines.append(f"return ({', '.join(own[n] for n in results)},)")
        text = f"def {function}({', '.join(own[n] for n in given)}):\n    " + "\n".join(lines).replace("\n", "\n    ")
        return syntax_tree(f"{text}\n{', '.join(results.values())}, = torch.vmap({function})({', '.join(given.values())})").body

    def _is_of_a_name(self, node: ast.expr, local: set[str]) -> bool:
        """Whether it is a product of a name with a weight that is the same for all steps."""
        operands = self.products.operands(node)
        if operands is None or not isinstance(operands[0], ast.Name):
            return False
        return not any(_values(text) & local for text in operands[1:] if text)


def _values(text: str) -> set[str]:
    """Names of which an expression reads more than the last dimension."""
    node = syntax_tree(text, mode="eval").body
    sizes = [n for n in ast.walk(node) if isinstance(n, ast.Subscript) and ast.unparse(n).endswith(".shape[-1]")]
    measured = {id(n) for size in sizes for n in ast.walk(size)}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in measured}


class _Separate(ast.NodeTransformer):
    """Adds what products add behind them: ``torch.vmap`` makes a product of its own of ``addmm``."""

    def __init__(self, products: Products) -> None:
        self.products = products

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        operands = self.products.operands(node)
        if operands is None or not operands[2]:
            return node
        return syntax_tree(f"{LINEAR}({ast.unparse(operands[0])}, {operands[1]}) + {operands[2]}", mode="eval").body


class _ProductsApart(ast.NodeTransformer):
    """Products within an expression become names, set by ``found``."""

    def __init__(self, fission: _Fission, free: set[str], found: Statements) -> None:
        self.fission, self.free, self.found = fission, free, found

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, _SKIPPED) else super().generic_visit(node)

    def visit_Call(self, node: ast.Call) -> Any:
        return self._product(node)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self._product(node)

    def _product(self, node: Any) -> ast.expr:
        self.generic_visit(node)
        operands = self.fission.products.operands(node)
        return self._named(self._parts(*operands) or node) if operands else node

    def _named(self, node: ast.expr) -> ast.expr:
        name = free_name("product", self.fission.taken)
        self.found += syntax_tree(f"{name} = {ast.unparse(node)}").body
        self.fission.changed.add(name)
        return ast.Name(name, ast.Load())

    def _parts(self, given: ast.expr, weight: str, bias: str) -> ast.expr | None:
        """The product of ``torch.cat((a, b), -1)`` as the sum of two, where one of them is free."""
        joined = self._value(given)
        if not isinstance(joined, ast.Call) or not _joins(joined) or not isinstance(joined.args[0], ast.Tuple | ast.List):
            return None
        dims = [ast.unparse(a) for a in joined.args[1:]] + [ast.unparse(k.value) for k in joined.keywords]
        parts = joined.args[0].elts
        first, last = (self.fission.needs_none(p, self.free) for p in (parts[0], parts[-1]))
        if dims not in (["-1"], ["1"]) or len(parts) < 2 or first == last:
            return None
        alone, others = (parts[0], parts[1:]) if first else (parts[-1], parts[:-1])
        whole = ast.Call(joined.func, [ast.Tuple(others, ast.Load()), *joined.args[1:]], joined.keywords)
        rest = ast.unparse(others[0] if len(others) == 1 else self._named(whole))
        own, other = f"{ast.unparse(alone)}.shape[-1]", f"{rest}.shape[-1]"
        sides = (f":{own}", f"{weight}.shape[1] - {other}:") if first else (f"{weight}.shape[1] - {own}:", f":{other}")
        if dims == ["1"]:  # where that is not the last dimension, this fails, and the loop stays whole
            rest = f"{rest}.view({rest}.shape[0], {rest}.shape[1])"
        one = f"{LINEAR}({ast.unparse(alone)}, {weight}[:, {sides[0]}]{f', {bias}' if bias else ''})"
        two = f"{LINEAR}({rest}, {weight}[:, {sides[1]}])"
        left, right = (self._named(syntax_tree(text, mode="eval").body) for text in (one, two))
        return ast.BinOp(left, ast.Add(), right)

    def _value(self, node: ast.expr) -> ast.expr:
        """What a name stands for that the step sets, where nothing in between changes what it is made of."""
        stores = self.fission.stores
        at = stores.get(node.id, self.fission.at) if isinstance(node, ast.Name) else self.fission.at
        if at >= self.fission.at:
            return node
        value: ast.expr = self.fission.body[at].value  # type: ignore[attr-defined]
        return node if any(at <= stores.get(n, -1) < self.fission.at for n in names(value)) else value


def _joins(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in _CATS


__all__ = ["with_fission"]
