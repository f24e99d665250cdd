"""A class of an installed package as a text that stands alone: the class, and what it needs of packages, imports of torch kept.

Only what can be reached is brought along: methods that nothing in the text names, annotations, docstrings, log lines and decorators that
only register are left out. A name that cannot be brought stays as it is; whoever runs the text finds out whether it matters.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

from kernelllm.core.errors import UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.pairs.package_module import OWN_FORMS, STANDARD, PackageModule, assigned, bound, runtime, scope_of
from kernelllm.pairs.rewriting import Pruned, Rewritten, Trimmed

MOST_LINES: Final = 400
MOST_PARTS: Final = 60
_ALWAYS: Final = frozenset(
    ("__init__", "forward", "__call__", "__new__", "__post_init__", "__getitem__", "__len__", "__iter__", "__contains__")
)
_SHORT: Final = {"torch": "torch", "torch.nn": "nn", "torch.nn.functional": "F", "numpy": "np"}


class Isolated:
    """A text that grows with what is added. ``strings`` are the only keys that tables of classes and functions keep."""

    def __init__(
        self, strings: Iterable[str] = (), *, plain_bases: bool = False, allowed: Callable[[str], bool] = lambda _: True,
        wanted: frozenset[str] | None = None, pruned: bool = False,
    ) -> None:  # fmt: skip
        """``wanted``: the only global names that are followed, None for all that can be had. ``pruned``: branches that read another are
        left out."""
        self._pruned = pruned
        self.strings = set(strings)
        self.wanted = wanted
        self.unread: set[str] = set()
        """Global names that were not wanted."""
        self.attributes: set[str] = set()
        """Every attribute that the text reads."""
        self.packages: set[str] = set()
        self._plain_bases, self._allowed = plain_bases, allowed
        self._root = ""
        self._names: dict[tuple[str, str], str] = {}
        self._imports: dict[str, str] = {}
        self._parts: dict[str, ast.stmt] = {}
        self._classes: dict[str, tuple[PackageModule, ast.ClassDef, list[ast.stmt]]] = {}
        """Name in the text to (its module, the class as it grows, statements that nothing has asked for yet)."""

    def text(self, end: str = "") -> str:
        """The whole text, with what is told to come at its end. Raises UsageError where it is too long."""
        self.grow()
        body = "\n\n\n".join(ast.unparse(ast.fix_missing_locations(part)) for part in self._in_order())
        if body.count("\n") > MOST_LINES:
            raise UsageError(f"it needs more than {MOST_LINES} lines")
        body += end
        words = set(re.findall(r"\w+", body))
        imports = [line for line in sorted(self._imports) if line.rpartition(" ")[2].partition(".")[0] in words]
        return "\n".join(imports) + "\n\n\n" + body + "\n"

    def add(self, what: Any, root: str = "") -> str:
        """The expression by which the text knows a class or function, after it and all that it needs were added; ``root`` is the name
        that it gets. Raises UsageError."""
        module, name = str(getattr(what, "__module__", "") or ""), str(getattr(what, "__qualname__", None) or getattr(what, "__name__", ""))
        known = self._standard(what, name)
        if known:
            return known
        if not module or not name.isidentifier():
            raise UsageError("its constructor takes what has no name")
        self._root = root
        found = self.named(scope_of(module), name)
        if found is None:
            raise UsageError(f"it needs {name} of {module.partition('.')[0]}")
        return found

    def named(self, scope: PackageModule, name: str) -> str | None:
        """What the text calls a global name of a module; None where it cannot be brought along."""
        scope, name, kind = scope.home_of(name)
        module = scope.name
        top = module.partition(".")[0]
        if kind == "outside" and module in OWN_FORMS:
            return self.named(scope_of(OWN_FORMS[module]), name)
        if kind == "module" or top in STANDARD:
            return self.outside(module, name if kind != "module" else "")
        key = (module, name)
        if key in self._names:
            return self._names[key]
        if len(self._parts) > MOST_PARTS:
            raise UsageError(f"it needs more than {MOST_LINES} lines")
        node = scope.nodes.get(name)
        if kind == "outside" or node is None or not (self._allowed(top) or module in OWN_FORMS.values()):
            return None
        own = self._names[key] = self._unused(self._root or name)
        self._root = ""
        if top != "kernelllm":
            self.packages.add(top)
        if isinstance(node, ast.ClassDef):
            self._add_class(scope, node, own)
        elif isinstance(node, ast.FunctionDef):
            made = Rewritten(self, scope).visit(syntax_tree(ast.unparse(node)).body[0])
            made.name = own
            self._parts[own] = made
        else:
            value = vars(scope.module).get(name)
            home = type(value).__module__.partition(".")[0]
            if home not in STANDARD and home != "builtins" and not isinstance(value, dict):
                del self._names[key]  # a registry or another object of the package
                return None
            told = self.value(value)
            given = syntax_tree(told or ast.unparse(assigned(node)), mode="eval").body
            expression = given if told else Rewritten(self, scope).visit(given)
            self._parts[own] = ast.Assign([ast.Name(own, ast.Store())], expression)
        return own

    def value(self, value: Any) -> str | None:
        """The expression for plain values, torch's own, and tables of them; None for anything else."""
        if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and abs(value) < 1e300):
            return repr(value)
        if type(value) in (list, tuple) and len(value) < 50:
            told = [self.value(v) for v in value]
            return None if None in told else "[{}]".format(", ".join(map(str, told))) if isinstance(value, list) else repr_tuple(told)
        if isinstance(value, dict) and type(value).__module__.partition(".")[0] not in ("builtins", *STANDARD):
            entries = [(k, self._entry(value, k)) for k in dict.keys(value) if k in self.strings]
            return "{{{}}}".format(", ".join(f"{k!r}: {e}" for k, e in entries if e))
        return None

    def _entry(self, table: dict[Any, Any], key: Any) -> str | None:
        """What a table of the package's own kind, which builds the classes that it holds, gives for a key."""
        raw = dict.__getitem__(table, key)
        cls, settings = raw if isinstance(raw, tuple) and len(raw) == 2 else (raw, {})
        try:
            made = type(table[key]) is cls
            return self.add(cls) + ("({})".format(", ".join(f"{k}={v!r}" for k, v in settings.items())) if made else "")
        except Exception:  # noqa: BLE001 - the table is code of others
            return None

    def _standard(self, what: Any, name: str) -> str | None:
        for module, short in (("torch.nn", "nn"), ("torch.nn.functional", "F"), ("torch", "torch"), ("math", "math"), ("builtins", "")):
            if name and getattr(sys.modules.get(module), name.rpartition(".")[2], None) is what:
                return self.outside(module, name.rpartition(".")[2]) if short else name
        module = str(getattr(what, "__module__", ""))
        if module.partition(".")[0] in STANDARD and getattr(sys.modules.get(module), name, None) is what:
            return self.outside(module, name)
        return None

    def outside(self, module: str, name: str) -> str | None:
        """A name of an outside module, or the module itself."""
        if module.partition(".")[0] not in STANDARD:
            return None
        if name and isinstance(getattr(sys.modules.get(module), name, None), ModuleType):
            module, name = f"{module}.{name}", ""
        if module == "__future__":
            return None
        short = _SHORT.get(module)
        if short:
            self._imports[f"import {module}" + (f" as {short}" if short != module else "")] = ""
            return f"{short}.{name}" if name else short
        if not name:
            self._imports[f"import {module}"] = ""
            return module
        key = (module, name)
        if key not in self._names:
            own = self._names[key] = self._unused(name)
            self._imports[f"from {module} import {name}" + (f" as {own}" if own != name else "")] = ""
        return self._names[key]

    def _unused(self, name: str) -> str:
        taken = {*self._names.values(), *_SHORT.values()}
        return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 99))) if n not in taken)

    def _add_class(self, scope: PackageModule, node: ast.ClassDef, own: str) -> None:
        made = syntax_tree(ast.unparse(node)).body[0]
        assert isinstance(made, ast.ClassDef)
        made.name, made.keywords = own, [k for k in made.keywords if k.arg == "metaclass" and "ABC" not in ast.unparse(k.value)]
        data = [d for d in made.decorator_list if "dataclass" in ast.unparse(d)]
        made.decorator_list = [Rewritten(self, scope).visit(d) for d in data]
        waiting, made.body = made.body, []
        made.bases = [self._base(b, scope) for b in made.bases]
        made.bases = [b for n, b in enumerate(made.bases) if ast.unparse(b) not in ("object", *map(ast.unparse, made.bases[:n]))]
        self._parts[own] = made
        self._classes[own] = (scope, made, waiting)
        self._grow(own)

    def _base(self, base: ast.expr, scope: PackageModule) -> ast.expr:
        """A base class as the text knows it: nn.Module for one that cannot be brought along, object where it is no module."""
        import torch

        value = runtime(base, scope)
        own = isinstance(value, type) and value.__module__ == scope.name
        if isinstance(value, type) and (own or not self._plain_bases or value.__module__.partition(".")[0] in STANDARD):
            try:
                return syntax_tree(self.add(value), mode="eval").body
            except UsageError:
                pass
        if value is not None and isinstance(value, type) and not issubclass(value, torch.nn.Module):
            return ast.Name("object", ast.Load())
        return syntax_tree(str(self.outside("torch.nn", "Module")), mode="eval").body

    def _grow(self, own: str) -> bool:
        """Take over the class's statements that are asked for by now."""
        scope, made, waiting = self._classes[own]
        grown = False
        data = bool(made.decorator_list) or any("Enum" in ast.unparse(b) for b in made.bases)
        for statement in list(waiting):
            names = bound(statement)
            if not (data or names & (_ALWAYS | self.attributes)) or isinstance(statement, ast.Expr):
                continue
            waiting.remove(statement)
            if not data and isinstance(statement, ast.AnnAssign):
                if statement.value is None:
                    continue
                statement = ast.Assign([statement.target], statement.value)
            made.body.append(statement if isinstance(statement, ast.AnnAssign) else Rewritten(self, scope).visit(statement))
            grown = True
        return grown

    def grow(self) -> None:
        """Take over whatever is asked for by now."""
        while sum(self._grow(own) for own in list(self._classes)):
            pass
        for own, (_, made, _) in self._classes.items():
            kept = {n for c, (_, m, _) in self._classes.items() for s in m.body for n in bound(s)}
            made.body = [Trimmed(kept, self._rootless(made)).visit(s) for s in made.body] or [ast.Pass()]
            self._parts[own] = made

    def follows(self, name: str, scope: PackageModule) -> bool:
        """Whether a global name is to be brought along; what is outside of packages always is."""
        if self.wanted is None or name in self.wanted:
            return True
        home, _, kind = scope.home_of(name)
        value = vars(scope.module).get(name)
        if home.name.partition(".")[0] in STANDARD or (kind == "own" and isinstance(value, bool | int | float | str | None)):
            return True
        self.unread.add(name)
        return False

    def _rootless(self, made: ast.ClassDef) -> bool:
        """Whether ``super()`` is nn.Module or nothing at all."""
        return all(ast.unparse(b) in ("nn.Module", "object") for b in made.bases)

    def _in_order(self) -> list[ast.stmt]:
        """The parts, each after those that it needs while it is being defined."""
        ordered: dict[str, ast.stmt] = {}

        def put(name: str, above: tuple[str, ...]) -> None:
            if name in ordered or name in above or name not in self._parts:
                return
            for other in _at_once(self._parts[name]):
                put(other, (*above, name))
            ordered[name] = self._parts[name]

        for name in self._parts:
            put(name, ())
        if not self.unread or not self._pruned:
            return list(ordered.values())
        pruned = Pruned(self.unread)
        return [pruned.visit(syntax_tree(ast.unparse(ast.fix_missing_locations(part))).body[0]) for part in ordered.values()]


def repr_tuple(told: Iterable[str | None]) -> str:
    """A tuple of expressions."""
    parts = [str(t) for t in told]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _at_once(node: ast.AST) -> set[str]:
    """Names that a definition reads when it is made: bases, decorators, defaults, values of its class's body."""
    if isinstance(node, ast.FunctionDef):
        outer: list[ast.AST] = [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
    elif isinstance(node, ast.ClassDef):
        return set().union(*(_at_once(n) for n in (*node.bases, *node.decorator_list, *node.body)))
    else:
        outer = [node]
    return {n.id for part in outer for n in ast.walk(part) if isinstance(n, ast.Name)}
