"""Tells where a version, or what a library has, decides what a file computes: who uses it may have another one.

Another import, alias or error by the version is what honest files are made of. Anything else makes a second file that nobody tried.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelllm.backends.base import Backend
from kernelllm.judge.checks.syntax import Source, starts

_VERSIONS = (
    "torch.__version__", "torch.version.__version__", "torch.version.git_version", "torch.version.debug", "importlib.metadata.version",
    "importlib.metadata.distribution", "sys.version_info", "sys.version", "sys.hexversion", "sys.implementation", "sys.platform", "os.name",
    "sys.api_version", "sys.getsizeof", "sys.maxsize", "sys.byteorder",
)  # fmt: skip
_DEPTH = 5
_SAME = (ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.Pass)


def deciding_versions(known: Source, backend: Backend) -> Iterator[tuple[str, int]]:
    """What decides, and the line."""
    modules = ("torch", *(backend.names.modules if backend.names else ()))
    machine = tuple(path for path in (backend.names.machine if backend.names else ()) if path.endswith("__version__"))
    for use in known.uses():
        if starts(use.path, *_VERSIONS, *machine) and isinstance(use.node, ast.expr) and _decides(known, use.node, 0):
            yield f"the version {use.path}", use.line
    for call, path in known.calls():
        asks = path == "builtins.hasattr" and call.args and any(starts(owner, *modules) for owner in known.paths(call.args[0]))
        if asks and _decides(known, call, 0):
            yield "whether a library has a name", call.lineno


def _decides(known: Source, node: ast.AST, depth: int) -> bool:
    """Whether what follows from an expression is more than another import, alias or error."""
    below, above = node, known.parents.get(node)
    while above is not None and depth <= _DEPTH:
        match above:
            case ast.IfExp(test=test, body=body, orelse=orelse) if below is test:
                return not (_is_alias(known, body) and _is_alias(known, orelse))
            case ast.If(test=test, body=body, orelse=orelse) if below is test:
                return not all(_is_same(known, statement) for statement in (*body, *orelse))
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                return any(_decides(known, each, depth + 1) for each in _reads(known, target))
            case ast.Return():
                calls = _calls(known, above)
                return any(_decides(known, each, depth + 1) for each in calls)
            case ast.Attribute() | ast.Call() | ast.Subscript() | ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.Tuple():
                pass
            case ast.GeneratorExp() | ast.ListComp() | ast.comprehension() | ast.Starred() | ast.JoinedStr() | ast.FormattedValue():
                pass
            case ast.stmt():
                return isinstance(above, ast.While | ast.Match | ast.AugAssign | ast.For)
            case _:
                return True
        below, above = above, known.parents.get(above)
    return False


def _is_same(known: Source, statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(value=value):
            return _is_alias(known, value)
        case ast.If(body=body, orelse=orelse):
            return all(_is_same(known, inner) for inner in (*body, *orelse))
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="warn" | "warning" | "warn_once" | "info" | "debug"))):
            return True
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=end):
            inside = (*body, *orelse, *end, *(one for handler in handlers for one in handler.body))
            return all(_is_same(known, inner) for inner in inside)
    return isinstance(statement, _SAME)


def _is_alias(known: Source, value: ast.expr) -> bool:
    """Something out of a module, not a number or what is computed here; None stands for a name that is not there."""
    if isinstance(value, ast.Constant):
        return value.value is None
    return isinstance(value, ast.Attribute | ast.Name) and bool(known.paths(value))


def _reads(known: Source, target: ast.expr) -> Iterator[ast.AST]:
    """Where what is assigned to is read: a name, or an attribute of this name."""
    for node in known.nodes:
        match target, node:
            case ast.Name(id=name), ast.Name(id=other, ctx=ast.Load()) if name == other:
                yield node
            case ast.Attribute(attr=name), ast.Attribute(attr=other, ctx=ast.Load()) if name == other:
                yield node


def _calls(known: Source, returned: ast.AST) -> Iterator[ast.AST]:
    function = known.parents.get(returned)
    while function is not None and not isinstance(function, ast.FunctionDef):
        function = known.parents.get(function)
    for node in known.nodes if function is not None else ():
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if function is not None and name == function.name:
                yield node
