"""Problems from files. One file: KernelBench's format, or any ``nn.Module`` class together with its inputs; or all files of a folder."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelllm.core.errors import ProblemError, UsageError
from kernelllm.core.text import LARGEST, syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems import sizes, wrap
from kernelllm.problems.instance import import_root
from kernelllm.suites import contract
from kernelllm.suites.contract import Suite

_IGNORED = {"__pycache__", "site-packages", "node_modules"}


def open_problem(
    spec: str, *, inputs: str | None = None, shapes: Sequence[str] = (), dtype: str = "float32", init: str | None = None
) -> Problem:
    """Read ``path.py`` (KernelBench's format), ``path.py:ClassName`` or ``package.module:ClassName`` (any module) into a Problem.

    For a class, ``inputs`` names a callable in the file that returns a tensor, list, tuple or dictionary of inputs; or ``shapes``
    gives one text per input such as ``"8,128,768"`` (``dtype`` for all, or ``"8,128:int64"`` for one, ``"8,128:int64:50"`` with an upper
    bound); without either, the file's own ``get_inputs`` serves. ``init`` holds the constructor's arguments as they would be written
    in a call: ``"64, heads=4"``.
    The result's ``source`` is always in KernelBench's format; it may still import what lies next to the file. A class in a package
    is imported from it, so that its file's relative imports work.
    Nothing is executed here. Raises UsageError for a wrong path or argument and ProblemError for a file that is no problem.
    """
    described = wrap.Arguments(inputs=inputs, shapes=tuple(shapes), dtype=dtype, init=init)
    path, class_name = _split(spec)
    if class_name is not None and _is_module(path):
        return _of_package(str(path), class_name, None, described)
    source = read(path)
    tree = sizes.parse(source, str(path))
    name = problem_name(path.stem)
    if class_name is None:
        if inputs or shapes or init:
            defined = wrap.classes(tree)
            hint = f"{spec}:{defined[0] if defined else 'ClassName'}"
            raise UsageError("--inputs, --shape and --init describe a class, and none was named.", where=spec, fix=f"Write {hint}.")
        check(tree, str(path))
        return Problem(name=name, source=source, origin="file", path=str(path.resolve()))
    package = import_root(str(path))[1]
    if package:
        return _of_package(f"{package}.{path.stem}".removesuffix(".__init__"), class_name, path, described, tree)
    source = wrap.wrapped(source, tree, class_name, described, str(path))
    return Problem(name=f"{name}_{class_name}", source=source, origin=f"file:{class_name}", path=str(path.resolve()))


def _is_module(path: Path) -> bool:
    """Whether what stands before the colon is the dotted name of a module, not a file."""
    text = str(path)
    return not path.exists() and not text.endswith(".py") and all(part.isidentifier() for part in text.split("."))


def _of_package(module: str, class_name: str, path: Path | None, described: wrap.Arguments, tree: ast.Module | None = None) -> Problem:
    """A class of a package, imported under its own name. ``tree``: its file's, where that is known."""
    bound = (wrap.bound_names(tree) or frozenset()) if tree else frozenset()
    wanted = [described.inputs] if described.inputs else [] if described.shapes else ["get_inputs"]
    names = [class_name, *(n for n in (*wanted, *([] if described.init else ["get_init_inputs"])) if n in bound)]
    line = f"from {module} import {', '.join(names)}\n"
    source = wrap.wrapped(line, tree or syntax_tree(line), class_name, described, str(path or module), imported=True)
    here = path or Path(*module.split(".")).with_suffix(".py")
    known = str(here.resolve()) if here.is_file() else None
    return Problem(name=f"{module.rpartition('.')[2]}_{class_name}", source=source, origin=f"file:{class_name}", path=known)


class FileSuite(Suite):
    """A suite of one problem: a file given by its path."""

    name = "file"
    summary = "one problem: file/PATH, or the path alone"

    def __init__(self, spec: str) -> None:
        self.problem = open_problem(spec)

    def problems(self) -> Iterator[Problem]:
        yield self.problem


def read(path: Path) -> str:
    """The text of a problem file. Raises UsageError where there is no such file and ProblemError where it is not text."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file.", fix=f"Name a file in it, or use the folder as a suite: folder/{path}")
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {path}.", fix=_nearest(path)) from error
    except OSError as error:
        raise UsageError(f"The file {path} cannot be read: {error.strerror or error}.") from error
    if len(raw) > LARGEST:
        raise ProblemError(f"The file is larger than {LARGEST / 1e6:g} MB.", where=str(path), fix="Give the source of one module.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"The file is not UTF-8 text (byte {error.start})."
        raise ProblemError(what, where=str(path), fix="Give a Python source file.") from error
    if not text.strip():
        raise ProblemError("The file is empty.", where=str(path), fix="It should define Model, get_inputs and get_init_inputs.")
    return text


def check(tree: ast.Module, where: str) -> None:
    """Check that ``Model`` and ``get_inputs`` are bound at module level. Raises ProblemError naming what is missing and what is there."""
    bound = wrap.bound_names(tree)
    if bound is None:  # a star import may bring anything
        return
    if "Model" not in bound:
        defined = wrap.classes(tree)
        named = " or ".join(f"{where}:{name}" for name in defined[:3])
        fix = f"Name the class: {named} (with --shape or --inputs)." if defined else "Define class Model(nn.Module) in it."
        raise ProblemError("The file defines no class Model.", where=where, fix=fix)
    if "get_inputs" not in bound:
        fix = f"Define get_inputs() that returns a list of tensors, or name the class and its inputs: {where}:Model --shape 8,128."
        raise ProblemError("The file defines no get_inputs.", where=where, fix=fix)


def problem_name(stem: str) -> str:
    """A file's stem as a problem's name: letters, digits, ``_``, ``.`` and ``-`` stay, the rest becomes ``_``."""
    return re.sub(r"[^\w.-]+", "_", stem).strip("_") or "problem"


def _split(spec: str) -> tuple[Path, str | None]:
    if not spec.strip():
        raise UsageError("The problem's path is empty.", fix="Give a file such as examples/hinge_loss.py.")
    path, colon, name = spec.rpartition(":")
    if colon and path and not Path(spec).exists():
        if name.isidentifier():
            return Path(path).expanduser(), name
        if path.endswith(".py"):
            raise UsageError(f"{name!r} is not a class name.", where=spec, fix="Write file.py:ClassName.")
    return Path(spec).expanduser(), None


def _nearest(path: Path) -> str:
    import difflib

    if not path.parent.is_dir():
        return f"The folder {path.parent} does not exist either."
    there = sorted(p.name for p in path.parent.glob("*.py"))
    near = difflib.get_close_matches(path.stem, [name.removesuffix(".py") for name in there], n=1)
    if near:
        return f"Did you mean {path.parent / near[0]}.py?"
    return "Give the path of a Python file." + (f" In that folder: {', '.join(there[:5])}." if there else "")


class FolderSuite(contract.Suite):
    """All files below a folder that define ``Model`` and ``get_inputs``, named by their path in it, in natural order.

    Files that are no problems (helpers, packages) are left out; ``skipped`` says why for each, once the problems were read.
    Raises UsageError where the folder is not there.
    """

    name = "folder"
    summary = "all problems below a folder: folder/PATH, or the path alone"

    def __init__(self, path: str = ".") -> None:
        self.root = Path(path).expanduser()
        self.skipped: dict[str, str] = {}
        if not self.root.is_dir():
            what = f"{self.root} is a file, not a folder." if self.root.is_file() else f"There is no folder {self.root}."
            raise UsageError(what, fix="Write folder/PATH with the path of a folder, or give a file on its own.")

    def problems(self) -> Iterator[Problem]:
        """The problems, read one at a time. Raises UsageError where there is none."""
        found = 0
        for file in sorted(self._files(), key=lambda f: contract.natural(f.relative_to(self.root).as_posix())):
            name = file.relative_to(self.root).with_suffix("").as_posix()
            try:
                for problem in self.read(file, name):
                    found += 1
                    yield problem
            except ProblemError as error:
                self.skipped[name] = error.what
        if not found:
            why = next(iter(self.skipped.values()), "It holds no Python file.")
            raise UsageError(f"There is no problem in the folder {self.root}. {why}", fix="Problem files define Model and get_inputs.")

    def read(self, path: Path, name: str) -> Iterator[Problem]:
        """The problems of one file. Raises ProblemError where it is none."""
        problem = open_problem(str(path))
        yield Problem(name=name, source=problem.source, origin=f"folder:{name}", path=problem.path, tags=tuple(name.split("/")[:-1]))

    def _files(self) -> Iterator[Path]:
        for folder, inner, names in os.walk(self.root):
            inner[:] = [d for d in inner if not d.startswith(".") and d not in _IGNORED]
            for name in names:
                if name.endswith(".py") and name not in ("__init__.py", "setup.py", "conftest.py") and not name.startswith("."):
                    yield Path(folder) / name
