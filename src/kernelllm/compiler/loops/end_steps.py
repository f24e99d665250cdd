"""Special cases of a loop's first or last step become a choice in every step; a carried number becomes a tensor from the start.

``nxt = boot if t == n - 1 else values[t + 1]``, ``if t > 0: h = h + x[t - 1]``, ``advantage = 0``.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import NamesReplaced, changed_by, free_name
from kernelllm.compiler.loops.reversed_loops import is_call
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]


def with_choices(before: Statements, loop: Any) -> Statements:
    """The statements before a loop over ``range(n)``, with which steps are the first or the last among them; changes the loop's body."""
    if not isinstance(loop.target, ast.Name) or not is_call(loop.iter, "range") or len(loop.iter.args) != 1:
        return before
    choices = _ChoicesOfSteps(loop, {n for s in (*before, loop) for n in names(s)})
    body = [made for s in syntax_tree("\n".join(map(ast.unparse, loop.body))).body for made in choices.statement(s)]
    if not choices.fits or not choices.steps:
        return before
    loop.body = body
    texts = [f"{name} = torch.arange({choices.count}, device={choices.device}.device) == {which}" for which, name in choices.steps.items()]
    texts += [f"{new} = torch.roll({name}, {-by}, {dim})" for (name, dim, by), new in choices.rolled.items()]
    texts += [f"{name} = {text}" for text, name in choices.hoisted.items()]
    return [*before, *syntax_tree("\n".join(texts)).body]


class _ChoicesOfSteps(ast.NodeTransformer):
    """``a if t == n - 1 else b`` as ``torch.where``: both are computed, and ``b`` reads where it may."""

    def __init__(self, loop: Any, taken: set[str]) -> None:
        self.counter, self.count, self.taken = loop.target.id, ast.unparse(loop.iter.args[0]), taken
        self.changed = changed_by(loop)
        self.steps: dict[str, str] = {}
        """The name of a bool tensor of the steps, by the step where it is true."""
        self.rolled: dict[tuple[str, int, int], str] = {}
        self.hoisted: dict[str, str] = {}
        """Names of expressions that are the same in every step."""
        self.device = ""
        self.fits = True

    def statement(self, statement: ast.stmt) -> Statements:
        """A branch at the end as choices, or the statement with its choices."""
        test = self._end(statement.test) if isinstance(statement, ast.If) else None
        if test is None:
            return [self.visit(statement)]
        assert isinstance(statement, ast.If)
        sides: list[dict[str, str]] = [{}, {}]
        for part, found in zip((statement.body, statement.orelse), sides, strict=True):
            for one in part:
                match one:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value) if not names(value) & found.keys():
                        found[name] = ast.unparse(value)
                    case _:
                        self.fits = False
                        return [statement]
        made = []
        for name in dict.fromkeys([*sides[0], *sides[1]]):
            here, there = (syntax_tree(side.get(name, name), mode="eval").body for side in sides)
            made.append(syntax_tree(f"{name} = {ast.unparse(self._chosen(test, here, there))}").body[0])
        return made

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self._end(node.test)
        if test is None:
            self.generic_visit(node)
            return node
        return self._chosen(test, node.body, node.orelse)

    def _chosen(self, test: tuple[str, bool], body: ast.expr, orelse: ast.expr) -> ast.expr:
        """``test``: the step that is meant, and whether ``body`` is for that one."""
        step, there = test
        at_end, elsewhere = (body, orelse) if there else (orelse, body)
        name = self.steps.setdefault(step, free_name("is_first" if step == "0" else "is_last", self.taken))
        read = [n.value.id for n in ast.walk(elsewhere) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)]
        elsewhere = _Neighbours(self, 1 if step != "0" else -1).visit(elsewhere)
        if not isinstance(at_end, ast.Name | ast.Constant) and not names(at_end) & {*self.changed, self.counter}:
            outside = self.hoisted.setdefault(ast.unparse(at_end), free_name("at_first" if step == "0" else "at_last", self.taken))
            at_end = ast.Name(outside, ast.Load())
        parts = [n for n in ast.walk(elsewhere) if isinstance(n, ast.Subscript) and self.counter in names(n.slice)]
        self.fits &= not any(names(n.value) & self.changed for n in parts)  # what the loop fills cannot be read ahead
        sides = ast.unparse(at_end), ast.unparse(elsewhere)
        self.device = self.device or next((n for n in read if n not in self.changed), "")
        self.fits &= bool(self.device) and not any(isinstance(n, ast.Constant) and n.value is None for n in (at_end, elsewhere))
        return syntax_tree(f"torch.where({name}[{self.counter}], {sides[0]}, {sides[1]})", mode="eval").body

    def _end(self, test: ast.expr) -> tuple[str, bool] | None:
        """Which of the first and the last step a comparison of the counter is about, and whether it holds there."""
        text, last = ast.unparse(test), rf"\(?{re.escape(self.count)} - 1\)?"
        if text in (f"{self.counter} == 0", f"not {self.counter}"):
            return "0", True
        if text in (f"{self.counter} != 0", f"{self.counter} > 0", f"{self.counter} >= 1", self.counter):
            return "0", False
        if re.fullmatch(rf"{self.counter} == {last}", text) or text == f"{self.counter} + 1 == {self.count}":
            return f"{self.count} - 1", True
        if re.fullmatch(rf"{self.counter} (?:!=|<) {last}", text) or text == f"{self.counter} + 1 < {self.count}":
            return f"{self.count} - 1", False
        return None

    def neighbour(self, name: str, dim: int, by: int) -> str:
        """A tensor of which step t holds what the tensor ``name`` holds at t + by; the last wraps around."""
        if (name, dim, by) not in self.rolled:
            self.rolled[name, dim, by] = free_name(f"{name}_next" if by > 0 else f"{name}_previous", self.taken)
        return self.rolled[name, dim, by]


class _Neighbours(ast.NodeTransformer):
    """``x[:, t + 1]`` as a slice at t of a tensor that is rolled: it is chosen where the next step is one."""

    def __init__(self, choices: _ChoicesOfSteps, by: int) -> None:
        self.choices, self.by = choices, by

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        counter = self.choices.counter
        items = list(getattr(node.slice, "elts", [node.slice]))
        at = [i for i, item in enumerate(items) if counter in names(item)]
        sign = "+" if self.by > 0 else "-"
        fits = isinstance(node.value, ast.Name) and node.value.id not in self.choices.changed and len(at) == 1
        if not fits or ast.unparse(items[at[0]]) != f"{counter} {sign} 1" or any(ast.unparse(i) != ":" for i in items[: at[0]]):
            self.generic_visit(node)
            return node
        items[at[0]] = ast.Name(counter, ast.Load())
        text = self.choices.neighbour(ast.unparse(node.value), at[0], self.by)
        return syntax_tree(f"{text}[{', '.join(map(ast.unparse, items))}]", mode="eval").body


def with_tensors(before: Statements, loop: Any) -> Statements:
    """The statements before a loop with a tensor in the place of each number that the loop replaces by one: as its first step makes it."""
    counter = loop.target.id if isinstance(loop.target, ast.Name) else ""
    single = {n: s for s in before if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)
              for n in stored(s)}  # fmt: skip
    numbers = {n: s for n, s in single.items() if isinstance(s.value, ast.Constant) and type(s.value.value) in (int, float)}
    carried = {n: s for n, s in numbers.items() if any(n in stored(one) for one in loop.body)}
    plain = all((isinstance(s, ast.Assign) and not isinstance(s.targets[0], ast.Subscript)) or _appends(s) for s in loop.body)
    if not carried or not counter or not plain or not is_call(loop.iter, "range") or len(loop.iter.args) != 1:
        return before
    steps = [s for s in loop.body if isinstance(s, ast.Assign)]
    inner = {n for s in steps for n in stored(s)}
    taken = {n for s in (*before, loop) for n in names(s)}
    first = {n: free_name(f"{n}_first", taken) for n in sorted(inner)}
    texts = [f"{first[n]} = {n}" for n in sorted(inner) if n in single or any(n in stored(s) for s in before)]
    texts += [ast.unparse(NamesReplaced(first | {counter: "0"}).visit(syntax_tree(ast.unparse(s)).body[0])) for s in steps]
    texts += [f"{n} = torch.full_like({first[n]}, {n})" for n in sorted(carried)]
    # without a step it stays a number; the message is a method, for a lambda would keep all this in the forward
    message = "'the kernels were written for a loop of one step or more'.format"
    texts.append(f"{free_name('checked', taken)} = torch._check_value({ast.unparse(loop.iter.args[0])} > 0, {message})")
    return [*before, *syntax_tree("\n".join(texts)).body]


def _appends(statement: ast.stmt) -> bool:
    call: Any = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append"


__all__ = ["with_choices", "with_tensors"]
