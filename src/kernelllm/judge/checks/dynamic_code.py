"""Flags code that is not in the file: built from strings, unpickled, or taken from the reference."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.attribute_names import made_at_run_time, safe_name
from kernelllm.judge.checks.syntax import MATTER_WHEN_IMPORTED, Source, Use, analyse, starts

_CERTAIN = (
    "builtins.exec", "builtins.eval", "builtins.compile", "builtins.__builtins__", "builtins.__loader__", "builtins.__spec__",
    "marshal", "pickle", "cPickle", "dill", "cloudpickle", "types.CodeType", "types.FunctionType", "types.LambdaType",
    "code", "codeop", "runpy", "imp", "importlib.util", "importlib.machinery", "importlib.reload", "zipimport", "base64.b64decode",
    "zlib.decompress", "ast.parse", "dis", "torch.load", "torch.jit.load", "torch.package", "torch.hub", "inspect.getsource",
    "inspect.getmodule", "inspect.getmembers", "linecache", "pkgutil", "typing.get_type_hints", "typing.ForwardRef", "typing._eval_type",
    "annotationlib", "inspect.get_annotations", "cProfile", "profile", "trace", "bdb", "pdb", "doctest", "unittest.TestLoader",
    "unittest.defaultTestLoader", "unittest.main", "numexpr", "site.addsitedir",
    "sympy", "mpmath", "jinja2", "yaml", "pandas", "torch.fx.Graph", "torch.fx.GraphModule", "torch.fx.graph", "torch.fx.graph_module",
    "torch.utils._sympy",
)  # fmt: skip
_RUN_TEXT = (
    "timeit.timeit", "timeit.repeat", "timeit.Timer", "torch.utils.benchmark.Timer", "torch.utils.benchmark.utils.timer.Timer",
)  # fmt: skip
"""What takes a function, or a text that it runs."""
_LIBRARIES = ("torch", "numpy", "math")
_ALL_OF = ("torch", "torch.nn", "torch.nn.functional", "math", "numpy", "typing", "types")
"""What all may be imported of, beside libraries of the language: the names that come are known here or harmless."""


class DynamicCode:
    name = "dynamic_code"
    describe = "runs code that is not in the file: from strings, pickles, or the reference's own source"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Code from strings hides everything from the other checks. Names built at run time are only reported."""
        known, libraries = analyse(tree), (*_LIBRARIES, *backend.libraries)
        found = [
            Finding(check=self.name, message=f"Uses {use.path}.", line=use.line)
            for use in known.uses() if starts(use.path, *_CERTAIN) and not _looks_for_a_module(known, use)
        ]  # fmt: skip
        found += [
            Finding(check=self.name, message=f"Imports {use.path}, which is no library.", line=use.line)
            for use in known.uses()
            if isinstance(use.node, ast.Import | ast.ImportFrom) and use.path.partition(".")[0] in MATTER_WHEN_IMPORTED
        ]  # fmt: skip
        found += [
            Finding(check=self.name, message=f"Imports all of {node.module}: names that cannot be followed.", line=node.lineno)
            for node in analyse(tree).nodes
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
            and not (node.module in _ALL_OF or starts(node.module or "", *backend.libraries))
        ]  # fmt: skip
        for call, path in known.calls():
            unknown = len(call.args) >= 1 and known.texts(call.args[0]) is None
            if path in ("builtins.__import__", "importlib.import_module") and unknown:
                found.append(Finding(check=self.name, message="Imports a module whose name is made at run time.", line=call.lineno))
            elif path in _RUN_TEXT and any(not _function(known, given) for given in _statements(call)):
                found.append(Finding(check=self.name, message=f"Runs a text by {path}.", line=call.lineno))
            elif path == "builtins.getattr" and len(call.args) >= 2 and known.texts(call.args[1]) is None and known.paths(call.args[0]):
                found.append(self._by_name(known, call, libraries))
        found += [Finding(check=self.name, message=what, line=line) for what, line in made_at_run_time(known)]
        return found

    def _by_name(self, known: Source, call: ast.Call, libraries: tuple[str, ...]) -> Finding:
        """``getattr(torch, str(x.dtype)[6:])`` is let pass, any other name made at run time may be that of anything."""
        whose = min(known.paths(call.args[0]))
        of_type = any(isinstance(node, ast.Attribute) and node.attr == "dtype" for node in ast.walk(call.args[1]))
        severity = Severity.WARN if (starts(whose, *libraries) and of_type) or safe_name(known, call.args[1]) else Severity.FAIL
        message = f"Takes an attribute of {whose} by a name made at run time."
        return Finding(check=self.name, message=message, severity=severity, line=call.lineno)


def _statements(call: ast.Call) -> list[ast.expr]:
    return [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg in ("stmt", "setup"))]


def _function(known: Source, given: ast.expr) -> bool:
    """A lambda, or the name of a function of the file."""
    names = {node.name for node in known.nodes if isinstance(node, ast.FunctionDef)}
    return isinstance(given, ast.Lambda) or (isinstance(given, ast.Name) and given.id in names and known.texts(given) is None)


def _looks_for_a_module(known: Source, use: Use) -> bool:
    """``importlib.util.find_spec(...)``: whether a module is there, nothing is run."""
    if use.path == "importlib.util":
        above = known.parents.get(use.node)
        return isinstance(use.node, ast.Import | ast.ImportFrom) or (isinstance(above, ast.Attribute) and above.attr == "find_spec")
    return use.path == "importlib.util.find_spec"
