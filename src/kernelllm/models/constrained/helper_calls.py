"""Calls of functions that the answer itself defines: whether their arguments fit the signature, and have the attributes that it reads."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Final

from kernelllm.models.constrained.prompt_module import NUMBER

_LAUNCH: Final = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "grid", "warmup", "enable_fp_fusion"})
_MEMORY: Final = ("tl.load", "tl.store")
_NUMERIC: Final = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)


@dataclass(frozen=True)
class HelperFunction:
    """The signature of a function, and what its lines so far do with the arguments."""

    name: str
    kernel: bool
    """Whether it is ``triton.jit``'s and nothing else's."""
    known: bool
    """Whether its signature is that of the ``def``: no other decorator stands before it."""
    positional: tuple[str, ...]
    optional: int
    """How many of the last ``positional`` have a value of their own."""
    only_named: frozenset[str]
    must_name: frozenset[str]
    any_more: bool
    any_named: bool
    untouched: frozenset[str]
    """Arguments that no line has bound anew."""
    needs: frozenset[tuple[str, str]] = frozenset()
    """(argument, attribute that it must have)."""

    def fits(self, call: ast.Call) -> bool:
        """Whether the arguments of a call are as many as they must be, and named as they are here."""
        if not self.known:
            return True
        starred = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        count = sum(not isinstance(a, ast.Starred) for a in call.args)
        named = {k.arg for k in call.keywords if k.arg is not None}
        if isinstance(call.func, ast.Subscript):
            named -= _LAUNCH - {*self.positional, *self.only_named}
        if not self.any_more and count > len(self.positional):
            return False
        if not self.any_named and not named <= {*self.positional, *self.only_named}:
            return False
        if starred:
            return True
        if named & set(self.positional[:count]):
            return False
        must = self.positional[count : len(self.positional) - self.optional]
        return set(must) | self.must_name <= named

    def arguments(self, call: ast.Call) -> list[tuple[str, ast.expr]]:
        """The arguments of a call, as far as it is clear which they are."""
        found: list[tuple[str, ast.expr]] = []
        for name, value in zip(self.positional, call.args, strict=False):
            if isinstance(value, ast.Starred):
                break
            found.append((name, value))
        return found + [(k.arg, k.value) for k in call.keywords if k.arg is not None]

    def needed(self, argument: str) -> frozenset[str]:
        """The attributes that an argument must have."""
        return frozenset(attribute for name, attribute in self.needs if name == argument)

    def after(self, node: ast.stmt, functions: dict[str, HelperFunction], first_level: bool) -> HelperFunction:
        """With what a further line of it says. Lines below a condition say nothing of what arguments must be."""
        needs: set[tuple[str, str]] = set()
        nodes = list(ast.walk(node))
        if first_level and not isinstance(node, ast.If | ast.While) and not any(isinstance(n, ast.IfExp | ast.BoolOp) for n in nodes):
            for n in nodes:
                needs |= self._of_kernel(n) if self.kernel else self._of_host(n, functions)
        bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        needs = {need for need in needs if need[0] in self.untouched}
        if needs <= self.needs and not bound & self.untouched:
            return self
        return replace(self, needs=self.needs | needs, untouched=self.untouched - bound)

    def _of_kernel(self, n: ast.AST) -> set[tuple[str, str]]:
        if isinstance(n, ast.Call) and n.args and ast.unparse(n.func) in _MEMORY:
            return {(_leftmost(n.args[0]), "data_ptr")}
        if isinstance(n, ast.BinOp) and isinstance(n.op, _NUMERIC):
            return {(side.id, NUMBER) for side in (n.left, n.right) if isinstance(side, ast.Name)}
        return set()

    def _of_host(self, n: ast.AST, functions: dict[str, HelperFunction]) -> set[tuple[str, str]]:
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name):
            return {(n.value.id, n.attr)}
        found = functions.get(called_name(n)) if isinstance(n, ast.Call) else None
        if found is None or not isinstance(n, ast.Call):
            return set()
        handed = [(name, value.id) for name, value in found.arguments(n) if isinstance(value, ast.Name)]
        return {(own, attribute) for name, own in handed for attribute in found.needed(name)}


def function_of(node: ast.FunctionDef, decorators: tuple[str, ...]) -> HelperFunction:
    """What the head of a function says."""
    a = node.args
    positional = (*(x.arg for x in a.posonlyargs), *(x.arg for x in a.args))
    named = frozenset(x.arg for x in a.kwonlyargs)
    must = frozenset(x.arg for x, value in zip(a.kwonlyargs, a.kw_defaults, strict=True) if value is None)
    kernel = decorators == ("triton.jit",)
    return HelperFunction(
        node.name, kernel, kernel or not decorators, positional, len(a.defaults), named, must, a.vararg is not None, a.kwarg is not None,
        frozenset(positional) | named,
    )  # fmt: skip


def called_name(call: ast.Call) -> str:
    """The name of what is called, or started as ``name[grid](...)``; empty where it is none."""
    func = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return func.id if isinstance(func, ast.Name) else ""


def _leftmost(node: ast.expr) -> str:
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""
