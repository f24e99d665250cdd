"""Import of packages whose own requirements are missing: what cannot be found is stood in for by names that do nothing."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import traceback
from types import ModuleType
from typing import Any, Final

import torch

from kernelllm.pairs.package_module import OWN_FORMS

MOST: Final = 30
"""Missing packages that are stood in for."""


def imported(module: str) -> ModuleType:
    """Import a module; what it cannot find, or cannot load, is stood in for. Raises what its import raises otherwise."""
    own = module.partition(".")[0]
    for _ in range(MOST):
        try:
            return importlib.import_module(module)
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            causes = _causes(error)
            operator = next((m for e in causes if (m := re.match(r"operator ((\w+)::\w+) does not exist", str(e)))), None)
            top = operator[2] if operator else next((name for e in causes if (name := _lacking(e, own))), "")
            if not top or top in _MISSING:
                raise
            for name in [n for n in sys.modules if n.partition(".")[0] in (own, top)]:
                del sys.modules[name]  # half of it is there
            if operator:  # its library was built for another torch: what is written in Python works without
                torch.library.define(operator[1], "(Tensor x) -> Tensor")
                continue
            forms = {name: own for name, own in OWN_FORMS.items() if name.partition(".")[0] == top}
            for name, own in forms.items():
                sys.modules[name] = importlib.import_module(own)
            if forms:
                continue
            if not _MISSING:
                sys.meta_path.insert(0, _Finder())  # before those that find what is broken
            _MISSING.add(top)
    return importlib.import_module(module)


def _causes(error: BaseException) -> list[BaseException]:
    """What an error was raised from, the first cause first, and the error."""
    found = [error]
    while (cause := found[0].__cause__) is not None and len(found) < MOST:
        found.insert(0, cause)
    return found


def _lacking(error: BaseException, own: str) -> str:
    """The package that an import failed for: one that is not there, or one whose own import raises. Empty where it is the module itself."""
    if isinstance(error, ModuleNotFoundError):
        top = str(error.name or "").partition(".")[0]
        return "" if top == own or top in sys.modules else top
    frames = [str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame, _ in traceback.walk_tb(error.__traceback__)]
    found = [name for name in frames if name not in _NEVER]
    return found[-1] if found and found[-1] != own else ""


_NEVER: Final = {"torch", "kernelllm", "numpy", "", *sys.stdlib_module_names}
"""Packages that are not stood in for."""
_MISSING: set[str] = set()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds whatever lies in a package that is known to be missing."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in _MISSING else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


class _StandInModule(ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        base = torch.nn.Module if name.endswith("Module") else object
        made = type.__new__(_Anything, name, (base,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _Anything(type):
    """A class that is a decorator, a base, a function or a table, whatever it is used as."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if issubclass(cls, torch.nn.Module):
            return super().__call__(*args, **kwargs)
        one = args[0] if len(args) == 1 else None
        return one if inspect.isroutine(one) or inspect.isclass(one) else cls

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __setitem__(cls, *_: Any) -> None:
        return None

    def __int__(cls) -> int:
        return 0

    def __len__(cls) -> int:
        return 0

    def __iter__(cls) -> Any:
        return iter(())

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__
