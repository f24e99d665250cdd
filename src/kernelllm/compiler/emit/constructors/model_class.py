"""``class ModelNew``: the problem's own constructor with a new forward, and what that constructor needs."""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from dataclasses import dataclass, field
from typing import Any

from kernelllm.compiler.emit.ast_tools import Rename
from kernelllm.core.errors import CaptureError
from kernelllm.core.text import syntax_tree

_STANDARD = frozenset(sys.stdlib_module_names) | {"torch"}


@dataclass
class KeptParts:
    """The parts of the problem that the new file keeps."""

    imports: list[ast.stmt]
    definitions: list[ast.stmt]
    """Constants, functions and helper classes, in their order."""
    model: ast.ClassDef
    """ModelNew with its constructor, without forward."""
    forward: ast.FunctionDef
    """The reference's forward, for its signature."""
    foreign: list[str] = field(default_factory=list)
    """Modules other than torch and the standard library that the constructor needs, and torch's flex attention, which writes kernels."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Constants of the problem that the constructor has fixed."""

    @property
    def names(self) -> set[str]:
        """Top-level names that the kept parts bind."""
        found = {n for s in (*self.imports, *self.definitions) for n in bound_names(s)}
        return found | {"ModelNew"}


def kept_parts(source: str) -> KeptParts:
    """Select what ``Model.__init__`` needs from a problem's source. Raises CaptureError where there is no Model."""
    tree = syntax_tree(source)
    top: dict[str, ast.stmt] = {}
    for statement in tree.body:
        for name in bound_names(statement):
            top[name] = statement
    model = top.get("Model")
    left_out: list[ast.stmt] = []
    while isinstance(model, ast.Assign) and isinstance(model.value, ast.Name):  # Model = Net, as for file.py:Net
        left_out.append(model)
        model = top.get(model.value.id)
    if not isinstance(model, ast.ClassDef):
        raise CaptureError("The problem defines no class Model.", where="emit")
    _named_self(tree)
    forward = _method(model, "forward", top)
    if forward is None:
        raise CaptureError("Model has no forward that the emitter can find.", where="emit")
    kept_methods: dict[str, set[str]] = {}
    wanted = _closure(top, kept_methods)
    definitions, imports = [], []
    for statement in tree.body:
        if not any(n in wanted for n in bound_names(statement)) or statement is model or statement in left_out:
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append(_needed_import(statement, wanted))
        else:
            definitions.append(_trimmed(statement, kept_methods))
    foreign = [m for s in imports for m in _modules(s) if m.split(".")[0] not in _STANDARD or "flex_attention" in ast.unparse(s)]
    new = _trimmed(model, kept_methods)
    assert isinstance(new, ast.ClassDef)
    new.body = [s for s in new.body if not _is_docstring(s)]  # of a class by another name: it does not hold parameters alone
    inherited = _method(model, "__init__", top)
    if inherited is not None and inherited not in model.body and ast.unparse(inherited.args) != "self":
        new.body.insert(0, _handed_on(inherited.args))
    renamed = Rename({"Model": "ModelNew", new.name: "ModelNew"})
    for part in (*definitions, new):  # other classes may name it: Model.helper(), isinstance(m, Model)
        renamed.visit(part)
    new.name = "ModelNew"
    calls = (n.func for part in (*definitions, new) for n in ast.walk(part) if isinstance(n, ast.Call))
    if any(isinstance(f, ast.Name) and f.id == "ModelNew" for f in calls):
        raise CaptureError("The constructor makes further models of its own class, with other arguments.", where="emit")
    _all_bound([*imports, *definitions, new])
    return KeptParts(imports, definitions, new, forward, foreign)


def _named_self(tree: ast.Module) -> None:
    """Methods call their object self, as what is written into them does."""
    for cls in (n for n in tree.body if isinstance(n, ast.ClassDef)):
        for method in (n for n in cls.body if isinstance(n, ast.FunctionDef)):
            first = [*method.args.posonlyargs, *method.args.args][:1]
            names = {getattr(n, "id", getattr(n, "arg", None)) for n in ast.walk(method)}
            bound = not {"staticmethod", "classmethod"} & {ast.unparse(d) for d in method.decorator_list}
            if first and bound and "self" not in names:
                Rename({first[0].arg: "self"}).visit(method)


def _all_bound(statements: list[ast.stmt]) -> None:
    """Raises CaptureError where the kept parts read a name that none of them binds: the problem has it from elsewhere."""
    text = "\n".join(map(ast.unparse, statements)) + (" pass" if not getattr(statements[-1], "body", True) else "")
    tables = [symtable.symtable(text, "kept", "exec")]
    known = {*(n for s in statements for n in bound_names(s)), *dir(builtins), "torch", "__name__", "__file__"}
    for table in tables:  # grows while it is walked
        tables += table.get_children()
        free = sorted(s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced() and s.get_name() not in known)
        if free:
            raise CaptureError(f"The constructor reads {', '.join(free)}, which the problem's text does not define.", where="emit")


def _handed_on(arguments: ast.arguments) -> ast.stmt:
    """A constructor with these arguments that hands them to the base class: it is where they are checked."""
    given = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1:]
    given += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    given += [f"{a.arg}={a.arg}" for a in arguments.kwonlyargs] + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])
    return syntax_tree(f"def __init__({ast.unparse(arguments)}):\n    super().__init__({', '.join(given)})").body[0]


def bound_names(statement: ast.stmt) -> list[str]:
    """Module-level names that a statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [(a.asname or a.name.split(".")[0]) for a in statement.names]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
        return [n for s in ast.walk(statement) if isinstance(s, ast.stmt) and s is not statement for n in bound_names(s)]
    return []


def _method(cls: ast.ClassDef, name: str, top: dict[str, ast.stmt]) -> ast.FunctionDef | None:
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    for base in cls.bases:
        parent = top.get(base.id) if isinstance(base, ast.Name) else None
        if isinstance(parent, ast.ClassDef):
            found = _method(parent, name, top)
            if found is not None:
                return found
    return None


def _closure(top: dict[str, ast.stmt], kept: dict[str, set[str]]) -> set[str]:
    """Names needed by the constructor of ``Model``, transitively; fills ``kept`` with the methods to keep by class."""
    wanted: set[str] = {"Model"}
    while True:
        before = (len(wanted), sum(len(v) for v in kept.values()))
        attributes: set[str] = set()
        names: set[str] = set()
        for name in sorted(wanted):
            statement = top.get(name)
            if statement is None:
                continue
            for node, local in _kept_nodes(statement, kept):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and inner.id not in local:
                        names.add(inner.id)
                    elif isinstance(inner, ast.Attribute):
                        attributes.add(inner.attr)
        wanted |= {n for n in names if n in top}
        for name in wanted:
            statement = top.get(name)
            if isinstance(statement, ast.ClassDef):
                methods = kept.setdefault(name, set())
                is_module = not any(isinstance(d, ast.Name | ast.Call | ast.Attribute) for d in statement.decorator_list)
                for node in statement.body:
                    if isinstance(node, ast.FunctionDef) and (
                        node.name in ("__init__", "__post_init__", "__new__")
                        or (node.name in attributes and node.name != "forward")
                        or not is_module
                    ):
                        methods.add(node.name)
        if (len(wanted), sum(len(v) for v in kept.values())) == before:
            return wanted


def _kept_nodes(statement: ast.stmt, kept: dict[str, set[str]]) -> list[tuple[ast.AST, set[str]]]:
    """What stays of a definition, each part with the names that are local to it."""
    if isinstance(statement, ast.FunctionDef):
        return [(statement, _locals(statement))]
    if not isinstance(statement, ast.ClassDef):
        return [] if isinstance(statement, ast.Import | ast.ImportFrom) else [(statement, set())]
    methods = kept.setdefault(statement.name, {"__init__"})
    nodes: list[tuple[ast.AST, set[str]]] = [(n, set()) for n in (*statement.bases, *statement.decorator_list)]
    nodes += [(k.value, set()) for k in statement.keywords]
    for node in statement.body:
        if isinstance(node, ast.FunctionDef):
            if node.name in methods:
                nodes += [(n, _locals(node)) for n in node.body]
                nodes += [(n, set()) for n in (*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d))]
                nodes += [(a.annotation, set()) for a in (*node.args.args, *node.args.kwonlyargs) if a.annotation]
        else:
            nodes.append((node, set()))
    return nodes


def _locals(function: ast.FunctionDef) -> set[str]:
    """Names that a function binds itself."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [a for a in (arguments.vararg, arguments.kwarg) if a]
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return {a.arg for a in every} | stored


def _trimmed(statement: ast.stmt, kept: dict[str, set[str]]) -> ast.stmt:
    """A definition without the methods nobody calls any more and without their documentation."""
    copied = syntax_tree(ast.unparse(statement)).body[0]
    if not isinstance(copied, ast.ClassDef):
        return copied
    methods = kept.get(copied.name, set())
    body: list[ast.stmt] = []
    dropped = False
    for node in copied.body:
        if isinstance(node, ast.FunctionDef) and node.name not in methods:
            dropped = True
            continue
        if _is_docstring(node):
            continue
        if isinstance(node, ast.FunctionDef):
            _strip_docstring(node)
        body.append(node)
    if dropped and copied.name != "Model":
        body.insert(0, ast.Expr(ast.Constant("Holds parameters; ModelNew.forward does the work.")))
    copied.body = body if body or copied.name == "Model" else [ast.Pass()]
    return copied


def _strip_docstring(node: ast.FunctionDef) -> None:
    if node.body and _is_docstring(node.body[0]) and len(node.body) > 1:
        node.body = node.body[1:]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _needed_import(statement: ast.Import | ast.ImportFrom, wanted: set[str]) -> ast.stmt:
    copied = syntax_tree(ast.unparse(statement)).body[0]
    assert isinstance(copied, ast.Import | ast.ImportFrom)
    copied.names = [a for a in copied.names if (a.asname or a.name.split(".")[0]) in wanted]
    return copied


def _modules(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ImportFrom):
        return [("." * statement.level) + (statement.module or "")]
    return [a.name for a in statement.names] if isinstance(statement, ast.Import) else []
