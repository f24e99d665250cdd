"""A class of an installed package as a text that stands alone: the class, and what it needs of its package, imports of torch kept."""

from __future__ import annotations

import ast
import inspect
import math
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any, Final

from kernelllm.core.errors import UsageError

_STANDARD: Final = frozenset(
    ("torch", "math", "typing", "collections", "functools", "itertools", "dataclasses", "enum", "copy", "numbers", "warnings")
)
"""What a text may import."""
MOST_LINES: Final = 400


def isolated(cls: type) -> str:
    """The text that defines ``cls`` and all that it needs. Raises UsageError that names what cannot be brought along."""
    made = _Text(cls.__module__.partition(".")[0])
    made.add(cls)
    text = made.text()
    if text.count("\n") > MOST_LINES:
        raise UsageError(f"it needs {text.count(chr(10))} lines, more than {MOST_LINES}")
    return text


class _Text:
    def __init__(self, package: str) -> None:
        self._package = package
        self._imports: dict[str, str] = {}
        self._parts: dict[str, str] = {}
        """Name to definition, what is needed first."""
        self._under_way: set[str] = set()

    def text(self) -> str:
        return "\n".join(sorted(self._imports.values())) + "\n\n\n" + "\n\n\n".join(self._parts.values()) + "\n"

    def add(self, what: Any) -> None:
        """A class or function of the package, after all that it needs."""
        name = what.__name__
        if name in self._parts or name in self._under_way:
            return
        self._under_way.add(name)
        try:
            source = textwrap.dedent(inspect.getsource(what))
        except (OSError, TypeError) as error:
            raise UsageError(f"the source of {name} is not to be had") from error
        tree = ast.parse(source)
        module = inspect.getmodule(what)
        for free in _free_names(tree):
            self._need(free, module)
        self._parts[name] = source.rstrip()

    def _need(self, name: str, module: ModuleType | None) -> None:
        scope = vars(module) if module else {}
        if name not in scope or name in self._parts or name in self._under_way:
            return  # a builtin, known, or a name that the package does not define here either
        value = scope[name]
        home = str(getattr(value, "__module__", None) or "")
        own = getattr(value, "__name__", "")
        if isinstance(value, ModuleType):
            self._import(name, f"import {own} as {name}" if own != name else f"import {name}", own)
        elif isinstance(value, type | FunctionType) and home.partition(".")[0] == self._package and own == name:
            self.add(value)
        elif home and own and home.partition(".")[0] != self._package and getattr(sys.modules.get(home), own, None) is value:
            self._import(name, f"from {home} import {own}" + (f" as {name}" if own != name else ""), home)
        elif "typing" in (home, type(value).__module__):
            self._import(name, f"from typing import {name}", "typing")
        elif _plain(value):
            self._parts[name] = f"{name} = {value!r}"
        else:
            self._assigned(name, value, module)

    def _assigned(self, name: str, value: Any, module: ModuleType | None) -> None:
        """A name that its module, or the one that it was imported from, assigns: the statement, after all that it needs."""
        homes = [module, *(m for n, m in list(sys.modules.items()) if n.partition(".")[0] == self._package)]
        for home in homes:
            if home is None or vars(home).get(name) is not value:
                continue
            for statement in _statements(home):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if statement.value is not None and [name] == [t.id for t in targets if isinstance(t, ast.Name)]:
                    self._under_way.add(name)
                    for free in _free_names(ast.Module([ast.Expr(statement.value)], [])):
                        self._need(free, home)
                    self._parts[name] = f"{name} = {ast.unparse(statement.value)}"
                    return
        raise UsageError(f"it needs {name}, a {type(value).__name__} of its module")

    def _import(self, name: str, line: str, home: str) -> None:
        if home.partition(".")[0] not in _STANDARD:
            raise UsageError(f"it needs the package {home.partition('.')[0]}")
        self._imports[name] = line


@lru_cache(maxsize=4096)
def _statements(module: ModuleType) -> list[ast.Assign | ast.AnnAssign]:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return []
    return [s for s in tree.body if isinstance(s, ast.Assign | ast.AnnAssign)]


def _plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return len(value) < 50 and all(map(_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


def _free_names(tree: ast.Module) -> Iterator[str]:
    """Names read in a definition that it does not bind itself, annotations included; each once."""
    bound = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and n.name}
    bound |= {(a.asname or a.name).partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    read = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    yield from dict.fromkeys(n for n in read if n not in bound)
