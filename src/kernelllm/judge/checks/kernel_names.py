"""Flags kernels that use what only Python knows, so that the interpreter may run something else than what is compiled."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from kernelllm.backends.base import Backend, LanguageNames
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.deciding_versions import deciding_versions
from kernelllm.judge.checks.environment_probes import MACHINE, PROCESS, circumstances, own_names
from kernelllm.judge.checks.scopes import Binding
from kernelllm.judge.checks.string_values import Parameter
from kernelllm.judge.checks.syntax import Source, analyse, kernels, starts

_DEPTH = 4
_BINDERS = frozenset({"globals", "setattr", "vars", "locals", "modules", "__dict__", "__setattr__", "import_module", "__import__"})
"""What can give a name of the file a meaning that its text does not tell."""
_STATEMENTS = ast.Try | ast.Match | ast.ClassDef | ast.Yield | ast.YieldFrom | ast.Await | ast.Global | ast.Nonlocal
_ASKS = ("builtins.type", "builtins.hasattr", "builtins.isinstance", "builtins.callable", "builtins.dir")

_INSIDE = "Uses {!r}, which is inside a kernel: what is launched may not be what is written."


class KernelNames:
    name = "kernel_names"
    describe = "uses in a kernel names of Python instead of its language's, or asks where it runs: right in the interpreter alone"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Kernels may use their language, jitted helpers, their arguments and literals. Asking where one runs is reported."""
        known = analyse(tree)
        jitted = kernels(known, (*backend.kernel_decorators, *(backend.names.constant_functions if backend.names else ())))
        allowed = _Allowed(known, backend.names, frozenset(function.name for function in jitted)) if backend.names else None
        inside: set[ast.AST] = set()
        found = []
        for function in jitted if allowed else ():
            body = [node for statement in function.body for node in ast.walk(statement)]
            inside.update(body)
            found += [
                Finding(check=self.name, message=f"The kernel {function.name} {what}.", line=line)
                for what, line in allowed.foreign(body)
            ] if allowed else []  # fmt: skip
        machine = (*MACHINE, *(backend.names.machine if backend.names else ()))
        launching = backend.names.launching if backend.names else ()
        for use in known.uses():
            asks = starts(use.path, *machine, *PROCESS) and use.path not in launching
            if asks and use.node not in inside and not isinstance(use.node, ast.Import | ast.ImportFrom):
                severity = Severity.WARN if starts(use.path, *PROCESS) else Severity.INFO
                message = f"Asks where it runs ({use.path}): judge and user may get different kernels."
                found.append(Finding(check=self.name, message=message, severity=severity, line=use.line))
        for asked in own_names(known):
            message = "Asks under which name it was loaded: judge and user may get different kernels."
            found.append(Finding(check=self.name, message=message, severity=Severity.WARN, line=asked.lineno))
        for what, line in circumstances(known):
            message = f"Asks {what}: judge and user may get different kernels."
            found.append(Finding(check=self.name, message=message, severity=Severity.WARN, line=line))
        for what, line in deciding_versions(known, backend):
            message = f"What it computes is decided by {what}: judge and user may get different kernels."
            found.append(Finding(check=self.name, message=message, severity=Severity.WARN, line=line))
        made = {function.name for function in jitted}
        for node in known.attributes():
            if not isinstance(node.ctx, ast.Load) and _is_kernel(known, node.value, made):
                message = f"Changes {node.attr!r} of a kernel: what is launched may not be what is written."
                found.append(Finding(check=self.name, message=message, line=node.lineno))
            elif _private(node.attr) and isinstance(node.value, ast.Name) and _is_kernel(known, node.value, made):
                found.append(Finding(check=self.name, message=_INSIDE.format(node.attr), line=node.lineno))
        for call, path in known.calls():
            if path in ("builtins.setattr", "builtins.object.__setattr__") and call.args and _is_kernel(known, call.args[0], made):
                message = "Changes an attribute of a kernel: what is launched may not be what is written."
                found.append(Finding(check=self.name, message=message, line=call.lineno))
            if path == "builtins.getattr" and len(call.args) > 1 and _is_kernel(known, call.args[0], made):
                names = filter(_private, known.texts(call.args[1]) or ())
                found += [Finding(check=self.name, message=_INSIDE.format(name), line=call.lineno) for name in names]
            if path in _ASKS and any(isinstance(argument, ast.Name) and argument.id in made for argument in call.args):
                message = "Asks what kind of object a kernel is, which tells an interpreter from a GPU."
                found.append(Finding(check=self.name, message=message, severity=Severity.WARN, line=call.lineno))
        return found


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_kernel(known: Source, node: ast.expr, made: set[str], depth: int = 0) -> bool:
    """A kernel by its name, by a name that stands for it, or by what stands behind it (``kernel.fn``)."""
    if depth > _DEPTH:
        return False
    match node:
        case ast.Name(id=name) if name in made:
            return True
        case ast.Name():
            values = (value for value in known.bindings(node) or () if isinstance(value, ast.expr))
            return any(_is_kernel(known, value, made, depth + 1) for value in values)
        case ast.Attribute(value=inner) | ast.Call(func=ast.Name(id="type"), args=[inner]) | ast.Subscript(value=inner):
            return not isinstance(inner, ast.Constant) and _is_kernel(known, inner, made, depth + 1)
    return False


class _Allowed:
    def __init__(self, known: Source, names: LanguageNames, jitted: frozenset[str]) -> None:
        self.known, self.names, self.jitted = known, names, jitted
        named = {n.id if isinstance(n, ast.Name) else n.attr for n in known.nodes if isinstance(n, ast.Name | ast.Attribute)}
        stars = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in known.nodes)
        self.binds_unseen = stars or bool(named & _BINDERS)
        self.tells = (*PROCESS, *MACHINE, *names.machine, "builtins.type")

    def foreign(self, body: list[ast.AST]) -> Iterator[tuple[str, int]]:
        """What a kernel's body has that is not of its language: what it does, and the line."""
        for node in body:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if what := self._name(node):
                    yield what, node.lineno
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                paths = self.known.paths(node)
                if not paths and (node.attr in self.names.python_attributes or node.attr.startswith("_")):
                    yield f"reads {node.attr!r}, which is Python's and not the language's", node.lineno
                elif paths and not all(starts(path, *self.names.modules) for path in paths):
                    yield f"uses {min(paths)}, which is not of the language", node.lineno
            elif isinstance(node, _STATEMENTS):
                yield f"has a Python statement ({type(node).__name__.lower()}) that no kernel can have", getattr(node, "lineno", 0)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield "imports a module", node.lineno

    def _name(self, node: ast.Name) -> str:
        """Why a name has no place in a kernel, empty where it has one."""
        bound = self.known.bindings(node)
        if node.id in self.jitted or (bound is not None and self.known.is_local(node)):
            return ""
        if bound is None:
            unbound = not (hasattr(builtins, node.id) or self.binds_unseen)  # a mistake: it ends the run, wherever that is
            return "" if node.id in self.names.builtins or unbound else f"uses {node.id}, which its language does not know"
        above = self.known.parents.get(node)
        if isinstance(above, ast.Attribute) or self.known.paths(node):  # modules: judged by their members
            outside = [path for path in self.known.paths(node) if not any(starts(m, path) or starts(path, m) for m in self.names.modules)]
            return f"uses {min(outside)}, which is not of the language" if outside else ""
        if any(self._tells(value, 0) for value in bound):
            return f"uses {node.id}, which depends on where it runs"
        called = isinstance(above, ast.Call) and above.func is node
        if called and not any(self._may_be_jitted(value) for value in bound):
            return f"calls {node.id}, which is no jitted function"
        return ""

    def _may_be_jitted(self, value: Binding) -> bool:
        """Whether a name bound so may be a jitted helper: ``f = triton.jit(g)``, ``f = exp if FAST else exp2``, a factory's parameter."""
        if isinstance(value, str):
            return starts(value, *self.names.modules)
        if isinstance(value, Parameter):
            given = self.known.arguments(value)
            return given is None or all(self._may_be_jitted(each) for each in given)
        if not isinstance(value, ast.expr):
            return False
        names = [node for node in ast.walk(value) if isinstance(node, ast.Name | ast.Attribute)]
        return any(
            (isinstance(node, ast.Name) and node.id in self.jitted) or any(starts(p, *self.names.modules) for p in self.known.paths(node))
            for node in names
        )

    def _tells(self, value: Binding, depth: int) -> bool:
        """Whether what a name is bound to is computed from what tells the judge's run from the user's."""
        if depth > _DEPTH or not isinstance(value, ast.expr):
            return False
        for node in ast.walk(value):
            if isinstance(node, ast.Name | ast.Attribute) and any(starts(path, *self.tells) for path in self.known.paths(node)):
                return True
            if isinstance(node, ast.Name) and any(self._tells(other, depth + 1) for other in self.known.bindings(node) or ()):
                return True
        return False
