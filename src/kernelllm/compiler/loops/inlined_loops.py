"""Inlining: a loop in a function, method or layer that the forward calls becomes a loop of the forward itself.

    def scan(x, decay): ...for t in range(x.shape[1]): ...; return torch.stack(ys, 1)        the body, with names of its own
    def forward(self, x): return self.out(scan(x, self.decay))                         ->    return self.out(torch.stack(scan_ys, 1))
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import NamesReplaced
from kernelllm.compiler.loops.unrolled_layers import layers_of, name_elements, unroll
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem

_DEPTH, _CALLS = 4, 12
_UNFIT = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
          ast.Try, ast.With, ast.Delete, ast.While)  # fmt: skip
"""What the body of such a function may not have: names in it mean something else, or it ends somewhere else."""
_DECORATORS = {"staticmethod", "torch.no_grad()", "torch.jit.script", "torch.jit.export", "torch.inference_mode()"}


@dataclass(frozen=True)
class _Called:
    """A function with a loop. ``owner``: what its ``self`` is; empty where it has none."""

    function: ast.FunctionDef
    owner: str


def with_inlined_loop(problem: Problem) -> Problem:
    """The problem with the loops in its forward; as it is where there is none to move."""
    if "for " not in problem.source:
        return problem
    try:
        tree = syntax_tree(problem.source)
    except SyntaxError:
        return problem
    classes = {s.name: s for s in tree.body if isinstance(s, ast.ClassDef)}
    model = classes.get("Model")
    forward = _method(model, "forward") if model else None
    if model is None or forward is None:
        return problem
    scope = _Scope(classes, {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef)}, {"self": "Model"})
    unrolled = unroll(forward, cache(partial(layers_of, problem)), scope.calls_a_loop)
    if any(isinstance(n, ast.For) for n in ast.walk(forward)) and not unrolled:
        return _with(problem, tree) if _without_lambdas(forward) else problem
    for _ in range(_CALLS):
        if not scope.inline_one(forward):
            break
    if not any(isinstance(n, ast.For) for n in ast.walk(forward)):
        return problem
    _without_lambdas(forward)
    name_elements(forward)
    return _with(problem, tree)


def with_inlined_steps(problem: Problem) -> Problem:
    """The problem with what its forward's loops call in their place, as far as it is plain assignments; as it is where none is."""
    try:
        tree = syntax_tree(problem.source)
    except SyntaxError:
        return problem
    classes = {s.name: s for s in tree.body if isinstance(s, ast.ClassDef)}
    forward = _method(classes.get("Model"), "forward")
    if forward is None:
        return problem
    scope = _Scope(classes, {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef)}, {"self": "Model"})
    taken = names(forward) | {a.arg for a in ast.walk(forward) if isinstance(a, ast.arg)}
    loops = [s for s in forward.body if isinstance(s, ast.For)]
    done = [scope.inline_plain(loop, taken) for loop in loops for _ in range(_CALLS)]
    return _with(problem, tree) if any(done) else problem


def _with(problem: Problem, tree: ast.Module) -> Problem:
    return msgspec.structs.replace(problem, source=ast.unparse(ast.fix_missing_locations(tree)))


def _method(of: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    return next((s for s in of.body if isinstance(s, ast.FunctionDef) and s.name == name), None) if of else None


class _Scope:
    """What calls in a forward mean. ``owners``: the classes of ``self`` and of layers below it, by their text."""

    def __init__(self, classes: dict[str, ast.ClassDef], functions: dict[str, ast.FunctionDef], owners: dict[str, str]) -> None:
        self.classes, self.functions, self.owners = classes, functions, owners

    def inline_one(self, forward: ast.FunctionDef) -> bool:
        """Replace the first call that leads to a loop by what it does, and can be."""
        taken = names(forward) | {a.arg for a in ast.walk(forward) if isinstance(a, ast.arg)}
        for at, statement in enumerate(forward.body):
            for call in _calls(statement) if isinstance(statement, ast.Assign | ast.Return | ast.Expr) else ():
                called = self.called(call)
                new = _body(called, call, taken) if called is not None and self.loops(called, _DEPTH) else None
                if new is not None:
                    lines, value = new
                    forward.body[at : at + 1] = [*lines, _Replaced(call, value).visit(statement)]
                    return True
        return False

    def inline_plain(self, loop: ast.For, taken: set[str]) -> bool:
        """Replace the first call in a loop's body that is plain assignments by those."""
        for at, statement in enumerate(loop.body):
            for call in _calls(statement):
                called = self.called(call)
                body = called.function.body if called else []
                body = body[1:] if called and ast.get_docstring(called.function) is not None else body
                plain = all(isinstance(s, ast.Assign | ast.AugAssign | ast.Return) for s in body)
                new = _body(called, call, taken) if called and plain else None
                if new is not None:
                    loop.body[at : at + 1] = [*new[0], _Replaced(call, new[1]).visit(statement)]
                    return True
        return False

    def calls_a_loop(self, statement: ast.stmt, layers: dict[str, Any]) -> bool:
        """Whether a statement calls a function with a loop, where the layers are those."""
        self.owners |= {path: name for path, layer in layers.items() if (name := type(layer).__name__) in self.classes}
        return any((called := self.called(call)) is not None and self.loops(called, _DEPTH) for call in _calls(statement))

    def called(self, call: ast.Call) -> _Called | None:
        """The function of this file that is called."""
        on = call.func
        if isinstance(on, ast.Name):
            return _Called(self.functions[on.id], "") if on.id in self.functions else None
        if isinstance(on, ast.Subscript) and (name := self.owners.get(ast.unparse(on), "")):
            method = _method(self.classes[name], "forward")
            return _Called(method, ast.unparse(on)) if method else None
        if not isinstance(on, ast.Attribute):
            return None
        owner = ast.unparse(on.value)
        if (name := self._class_of(owner)) and (method := _method(self.classes[name], on.attr)):
            fixed = any(ast.unparse(d) == "staticmethod" for d in method.decorator_list)
            return _Called(method, "" if fixed else owner)
        whole = ast.unparse(on)
        if (name := self._class_of(whole)) and (method := _method(self.classes[name], "forward")):
            return _Called(method, whole)
        return None

    def _class_of(self, owner: str) -> str:
        """The class of ``self`` or of a layer below it, which a constructor makes by its name."""
        if owner in self.owners:
            return self.owners[owner]
        above, _, attribute = owner.rpartition(".")
        holder = self._class_of(above) if above else ""
        made = _method(self.classes.get(holder), "__init__") if holder else None
        pairs = [pair for s in (made.body if made else ()) if isinstance(s, ast.Assign) for pair in _assigned(s)]
        found = {ast.unparse(v.func) for t, v in pairs if isinstance(v, ast.Call) and ast.unparse(t) == f"self.{attribute}"}
        self.owners[owner] = next(iter(found & self.classes.keys()), "") if len(found) == 1 else ""
        return self.owners[owner]

    def loops(self, called: _Called, depth: int) -> bool:
        """Whether a function has a loop, or calls one that has."""
        if any(isinstance(s, ast.For) for s in called.function.body):
            return True
        inner = [self.called(_moved(call, called)) for s in called.function.body for call in _calls(s)] if depth else []
        return any(one is not None and self.loops(one, depth - 1) for one in inner)


def _assigned(statement: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """What gets which value: ``self.a, self.b = A(), B()`` as two."""
    target, value = statement.targets[0], statement.value
    if len(statement.targets) > 1:
        return []
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _calls(statement: ast.stmt) -> list[ast.Call]:
    """Calls that are made exactly once where the statement runs."""
    if not isinstance(statement, ast.Assign | ast.Return | ast.Expr | ast.AugAssign):
        return []
    inside = {
        id(n) for part in ast.walk(statement) if isinstance(part, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.IfExp | ast.BoolOp)
        for n in ast.walk(part)
    }  # fmt: skip
    return [n for n in ast.walk(statement) if isinstance(n, ast.Call) and id(n) not in inside]


def _moved(call: ast.Call, within: _Called) -> ast.Call:
    """A call in another function as the forward would write it."""
    return NamesReplaced({_self(within): within.owner}).visit(copy.deepcopy(call)) if within.owner else call


def _self(called: _Called) -> str:
    return called.function.args.args[0].arg if called.owner and called.function.args.args else ""


def _body(called: _Called, call: ast.Call, taken: set[str]) -> tuple[list[ast.stmt], ast.expr] | None:
    """The statements of a call with names that nobody else has, and what it returns."""
    function, own = called.function, _self(called)
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    given = _given(function, call, own)
    last = statements[-1] if statements else None
    returns = sum(isinstance(n, ast.Return) for s in statements for n in ast.walk(s))
    unfit = any(isinstance(n, _UNFIT) for s in statements for n in ast.walk(s))
    if given is None or not isinstance(last, ast.Return) or last.value is None or returns != 1 or unfit:
        return None
    if any(ast.unparse(d) not in _DECORATORS for d in function.decorator_list):
        return None
    local = {*given, *(n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))}
    renamed = {name: _free(f"{function.name.strip('_')}_{name}", taken) for name in sorted(local)}
    names_of = NamesReplaced({**renamed, **({own: called.owner} if own else {})})
    first = [syntax_tree(f"{renamed[name]} = {value}").body[0] for name, value in given.items()]
    rest: list[ast.stmt] = [names_of.visit(copy.deepcopy(s)) for s in statements]
    returned: Any = rest.pop()
    return [*first, *rest], returned.value


def _without_lambdas(forward: ast.FunctionDef) -> bool:
    """Whether the forward had small functions of its own (``heads = lambda x: x.view(...)``); calls of them become what they return."""
    done = False
    for statement in [s for s in forward.body if isinstance(s, ast.Assign)]:
        name, made = (stored(statement) or [""])[0], statement.value
        if not isinstance(made, ast.Lambda) or not isinstance(statement.targets[0], ast.Name):
            continue
        mine = [a.arg for a in made.args.args]
        uses = [n for n in ast.walk(forward) if isinstance(n, ast.Name) and n.id == name]
        calls = [n for n in ast.walk(forward) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name]
        plain = [c for c in calls if len(c.args) == len(mine) and not c.keywords and not any(isinstance(a, ast.Starred) for a in c.args)]
        free = names(made.body) - set(mine)
        late = {n for s in forward.body[forward.body.index(statement) + 1 :] for n in stored(s)}
        if len(plain) != len(calls) or len(uses) != len(calls) + 1 or free & late or len(mine) != len(ast.unparse(made.args).split(",")):
            continue
        inline = _Lambda(name, mine, made.body)
        forward.body = [inline.visit(s) for s in forward.body if s is not statement]
        done = True
    return done


class _Lambda(ast.NodeTransformer):
    def __init__(self, name: str, arguments: list[str], body: ast.expr) -> None:
        self.name, self.arguments, self.body = name, arguments, body

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name) or node.func.id != self.name:
            return node
        given = {name: f"({ast.unparse(value)})" for name, value in zip(self.arguments, node.args, strict=True)}
        return NamesReplaced(given).visit(copy.deepcopy(self.body))  # type: ignore[no-any-return]


def _given(function: ast.FunctionDef, call: ast.Call, own: str) -> dict[str, str] | None:
    """What each argument is, as text."""
    args = function.args
    if args.vararg or args.kwarg or args.posonlyargs or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    wanted = [a.arg for a in args.args if a.arg != own]
    if len(call.args) > len(wanted) or any(k.arg is None for k in call.keywords):
        return None
    defaults = dict(zip([a.arg for a in args.args][::-1], args.defaults[::-1], strict=False))
    defaults |= {a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None}
    found = dict(zip(wanted, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
    everything = [*wanted, *(a.arg for a in args.kwonlyargs)]
    if not set(found) <= set(everything) or not set(everything) <= found.keys() | defaults.keys():
        return None
    if any(name not in found and not isinstance(defaults[name], ast.Constant) for name in everything):
        return None
    return {name: ast.unparse(found.get(name, defaults.get(name))) for name in everything}  # type: ignore[arg-type]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class _Replaced(ast.NodeTransformer):
    def __init__(self, call: ast.Call, value: ast.expr) -> None:
        self.call, self.value = call, value

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self.value if node is self.call else self.generic_visit(node)  # type: ignore[return-value]


__all__ = ["with_inlined_loop", "with_inlined_steps"]
