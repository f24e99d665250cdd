"""``tritonbench`` and ``kernelbench-x``: operator tasks of TritonBench-T and KernelBench-X, one problem for each call in a task's test.

A task is a Python file: a reference function, a line of ``#``, and a test function that calls it several times and keeps what it
returns. The tasks of TritonBench-G hold a Triton kernel in the place of the reference, and no PyTorch code that says what is right:
they are left out, since a judge that takes one kernel's word for another's verifies nothing. ``PATH`` is a checkout or a folder of
task files; without one, the settings ``tritonbench`` and ``kernelbench_x`` name the checkout.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelllm.core import settings
from kernelllm.core.errors import KernelLLMError, ProblemError, UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems import sizes, wrap
from kernelllm.suites import contract, file
from kernelllm.suites.tritonbench import calls

_SEPARATOR = re.compile(r"^#{80,}[ \t]*$", re.MULTILINE)
_NO_REFERENCE = (
    "Its reference is a Triton kernel (TritonBench-G), and there is no PyTorch code to hold an answer against; "
    "write one as Model with get_inputs to judge such kernels."
)
_SCRIPTS = ("performance_metrics/perf_T/golden_metrics", "metrics/golden_metrics")
_UNREAD = "Its timing script makes no call that can be read."
_CALL = "Call {} of the task's test."


class TritonBench(contract.Suite):
    """Problems named ``T/abs/1``, ``T/abs/2`` and on: the calls in the test of the task ``abs``, in the order of the test.

    ``T/abs/timed`` is the largest call of its timing script, where the checkout has one.

    The selection after the name is a path, or the beginning of names in the checkout that the settings name: ``tritonbench/T/abs``,
    ``kernelbench-x/Math``. ``?cases=first`` takes the first call of each task alone, ``?cases=timed`` that of the timing script.
    ``skipped`` says what was left out and why.
    Raises UsageError where there is no such folder or selection.
    """

    name = "tritonbench"
    summary = "the calls in the tests of TritonBench-T: tritonbench/T, tritonbench/PATH"
    setting = "tritonbench"

    @classmethod
    def lacks(cls) -> str:
        """A checkout, where none is known."""
        if getattr(settings.load(), cls.setting):
            return ""
        return f"a checkout: clone it and set KERNELLLM_{cls.setting.upper()}, or {cls.setting} in kernelllm.toml, to its folder"

    def __init__(self, spec: str = "") -> None:
        path, _, query = spec.partition("?")
        if query.removeprefix("cases=") not in ("", "all", "first", "timed"):
            raise UsageError(f"Unknown option {query!r}.", fix=f"Write {self.name}/PATH?cases=first, ?cases=timed or ?cases=all.")
        self.cases = query.removeprefix("cases=") or "all"
        self.selection = ""
        self.skipped: dict[str, str] = {}
        known = getattr(settings.load(), self.setting)
        if path and (Path(path).expanduser().is_dir() or known is None):
            self.root = Path(path).expanduser()
        elif known is None:
            fix = f"Set {self.setting} in kernelllm.toml to a checkout, or write {self.name}/PATH."
            raise UsageError(f"kernelllm does not know where {self.name} is.", fix=fix)
        else:
            self.root, self.selection = Path(known).expanduser(), path.strip("/")
        if not self.root.is_dir():
            fix = f"Give a checkout or a folder of tasks, or set {self.setting} in kernelllm.toml."
            raise UsageError(f"There is no folder {self.root}.", fix=fix)

    @cached_property
    def version(self) -> str:
        """``git:<commit>`` of the checkout; "" where the folder is none."""
        return next((f"git:{commit}" for top in (self.root, *self.root.resolve().parents[:2]) if (commit := contract.commit(top))), "")

    def problems(self) -> Iterator[Problem]:
        """Problems by task and call. Raises UsageError where none is left."""
        found = 0
        for name, path in sorted(self._tasks().items(), key=lambda item: contract.natural(item[0])):
            if not (_selected(name, self.selection) or name == self.selection.rpartition("/")[0]):
                continue
            try:
                for problem in self._task(name, path):
                    if _selected(problem.name, self.selection):
                        found += 1
                        yield problem
            except KernelLLMError as error:
                self.skipped[name] = error.what
        if not found:
            why = next(iter(self.skipped.values()), "Tasks are a reference function, a line of #, and a test function.")
            what = f"There is no problem {self.selection} in {self.root}." if self.selection else f"There is no problem in {self.root}."
            raise UsageError(f"{what} {why}", fix=f"See: kernelllm problems list {self.name}/PATH")

    def _tasks(self) -> dict[str, Path]:
        """Task files by name: the path below the checkout's ``data``, without the folder that all tasks are in."""
        top = self.root / "data" if (self.root / "data").is_dir() else self.root
        found: dict[str, Path] = {}
        for path in top.rglob("*.py"):
            name = path.relative_to(top).with_suffix("").as_posix()
            name = re.sub(r"^TritonBench_(\w)_v\d+/", r"\1/", name).removeprefix("kernelbenchx/")
            if top == self.root and (letter := re.fullmatch(r"TritonBench_(\w)_v\d+", self.root.resolve().name)):
                name = f"{letter[1]}/{name}"
            if _SEPARATOR.search(path.read_text(encoding="utf-8", errors="replace")):
                found[name] = path
        return found

    def _task(self, name: str, path: Path) -> Iterator[Problem]:
        reference, test = _halves(path)
        if any(module.partition(".")[0] == "triton" for module in _imports(reference)):
            raise ProblemError(_NO_REFERENCE, where=str(path))
        function, tester = _functions(reference, test, path)
        text = _SEPARATOR.split(file.read(path))[0].strip()
        number, last = 0, ""
        for case in calls.cases(tester, function) if self.cases != "timed" else ():
            if isinstance(case, ProblemError):
                last = case.what
                self.skipped[f"{name} ({case.where})"] = case.what
                continue
            number += 1
            head = self._head(text, test, function.name, case, path)
            yield self._problem(f"{name}/{number}", path, calls.source(case, head, _CALL.format(number)))
            if self.cases == "first":
                return
        if self.cases != "first":
            yield from self._timed(name, path, text, function)
        if not number and self.cases != "timed":
            raise ProblemError(last or "Its test never calls the reference.", where=str(path))

    def _timed(self, name: str, path: Path, text: str, function: ast.FunctionDef) -> Iterator[Problem]:
        """The problem at the largest inputs of the task's timing script, where the checkout has one that can be read."""
        scripts = [self.root / folder / f"{path.stem}_perf.py" for folder in _SCRIPTS]
        script = next((s for s in scripts if s.is_file()), None)
        if script is None:
            return
        try:
            tree = sizes.parse(file.read(script), str(script))
            case = next(iter(calls.cases(as_test(tree), function, last=True)), None)
        except KernelLLMError as error:
            case = ProblemError(error.what)
        if case is None or isinstance(case, ProblemError) or "self" in case.names:
            self.skipped[f"{name}/timed"] = case.what if isinstance(case, ProblemError) else _UNREAD
            return
        head = self._head(text, tree, function.name, case, path)
        yield self._problem(f"{name}/timed", path, calls.source(case, head, "The largest call of the task's timing script."))

    def _head(self, text: str, test: ast.Module, function: str, case: calls.Case, path: Path) -> list[str]:
        added = dict.fromkeys(["import torch", *self._helpers(test, function, case, path)])
        return [*self._about(path.stem), text, "", *(line for line in added if line not in text.splitlines())]

    def _problem(self, name: str, path: Path, source: str) -> Problem:
        tags = (self.name, name.split("/")[0]) if name.count("/") > 1 else (self.name,)
        return Problem(name=name, source=source, origin=f"{self.name}:{name}", path=str(path.resolve()), tags=tags)

    def _about(self, stem: str) -> list[str]:
        """The task's description as comment lines, where the checkout has it."""
        text = self._descriptions.get(stem, "")
        return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 120)]

    @cached_property
    def _descriptions(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in sorted([*self.root.glob("data/*_v*.json*"), *self.root.glob("*_v*.json*")]):
            try:
                rows = json.loads(path.read_text(encoding="utf-8"))
            except (json.JSONDecodeError, UnicodeDecodeError):
                continue
            found.update(_described(rows))
        return found

    def _helpers(self, test: ast.Module, reference: str, case: calls.Case, path: Path) -> list[str]:
        """What the case's statements need of the test's imports, and of the functions and classes beside it.

        Modules of the checkout itself (``utils/data_utils.py``) are written out, since nothing can import them from elsewhere.
        """
        kept: list[str] = []
        needed = set(case.names)
        for node in reversed(test.body):
            if not (calls.changes(node) - {path.stem, reference}) & needed:
                continue
            needed |= calls.loaded(node)
            own = self._own_module(node, path)
            text = ast.unparse(calls.on_any_device(own or node))
            kept.append(f"\n\n{text}" if own or isinstance(node, ast.FunctionDef | ast.ClassDef) else text)
        return kept[::-1]

    def _own_module(self, node: ast.stmt, path: Path) -> ast.Module | None:
        """The module of the checkout that a statement imports from, None where it is no such import."""
        if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
            return None
        for folder in [path.parent, *path.resolve().parents[:5]]:
            found = folder / "utils" / f"{node.module}.py"
            if found.is_file():
                return sizes.parse(file.read(found), str(found))
            if folder.resolve() == self.root.resolve():
                break
        return None


class KernelBenchX(TritonBench):
    """KernelBench-X's tasks, named by category: ``Math/abs/1``, ``Math/abs/2`` and on."""

    name = "kernelbench-x"
    summary = "the calls in the tests of KernelBench-X: kernelbench-x/Math, kernelbench-x/PATH"
    setting = "kernelbench_x"


def _selected(name: str, selection: str) -> bool:
    return not selection or name == selection or name.startswith(selection + "/")


def _halves(path: Path) -> tuple[ast.Module, ast.Module]:
    parts = _SEPARATOR.split(file.read(path))
    if len(parts) != 2:
        raise ProblemError("It is not two parts with one line of # between them.", where=str(path))
    return sizes.parse(parts[0], str(path)), sizes.parse(parts[1], str(path))


def _functions(reference: ast.Module, test: ast.Module, path: Path) -> tuple[ast.FunctionDef, ast.FunctionDef]:
    """The reference function and the function that tests it."""
    defined = [n for n in reference.body if isinstance(n, ast.FunctionDef)]
    named = [n for n in defined if n.name == path.stem] or defined[-1:]
    if not named:
        raise ProblemError("Its first part defines no function.", where=str(path))
    testers = [n for n in test.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
    if not testers:
        raise ProblemError("Its second part defines no test function.", where=str(path))
    if {"Model", "get_inputs"} & (wrap.bound_names(reference) or frozenset()):
        raise ProblemError("Its reference defines Model or get_inputs itself.", where=str(path))
    return named[0], testers[0]


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def _described(rows: Any) -> dict[str, str]:
    """Names (also the stem of the file, where a row has one) with descriptions, of a list of tasks."""
    found: dict[str, str] = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(row.get("description"), str):
            keys = [str(row.get("name", "")), Path(str(row.get("file", ""))).stem]
            found |= {key: row["description"] for key in keys if key}
    return found


def as_test(tree: ast.Module) -> ast.FunctionDef:
    """A function that makes the inputs and then, in the place where they are kept, makes the call. Raises ProblemError."""
    methods = {
        item.name: item
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef)
    }
    if not {"get_input_tensors", "call_op"} <= set(methods):
        raise ProblemError("Its timing script has no get_input_tensors or no call_op.")
    made: ast.FunctionDef = copy.deepcopy(methods["get_input_tensors"])
    call = methods["call_op"]
    if len(call.args.args) != 2:
        raise ProblemError("The call_op of its timing script does not take one argument.")
    keeper = _Keep(call.args.args[1].arg, call.body)
    keeper.visit(made)
    if not keeper.found:
        raise ProblemError("Its timing script keeps no inputs.")
    made.name = "test_timed"
    made.args = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    _Self(_attributes(methods.get("__init__"))).visit(made)
    return ast.fix_missing_locations(made)


class _Keep(ast.NodeTransformer):
    """``self.input_tensors.append(X)`` becomes ``argument = X`` and the body of call_op."""

    def __init__(self, argument: str, body: list[ast.stmt]) -> None:
        self.argument, self.body, self.found = argument, body, False

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        call = node.value
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1):
            return node
        if ast.unparse(call.func.value) != "self.input_tensors":
            return node
        self.found = True
        return [*_given(self.argument, call.args[0], self.body), *_rest(self.argument, call.args[0], self.body)]


class _Self(ast.NodeTransformer):
    """``self.dtype`` is the dtype that the scripts run with, other attributes are what ``__init__`` writes out for them."""

    def __init__(self, known: dict[str, ast.expr]) -> None:
        self.known = {"dtype": syntax_tree("torch.float32", mode="eval").body, **known}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Load):
            return copy.deepcopy(self.known.get(node.attr, node))
        return node


def _attributes(init: ast.FunctionDef | None) -> dict[str, ast.expr]:
    """``self.name = VALUE`` for values that are literals, or parameters with a literal default."""
    if init is None:
        return {}
    named, defaults = init.args.args, init.args.defaults
    given = {a.arg: d for a, d in zip(named[len(named) - len(defaults) :], defaults, strict=True)}
    found: dict[str, ast.expr] = {}
    for node in ast.walk(init):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):
            value = given.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            try:
                ast.literal_eval(value)
            except (ValueError, TypeError):
                continue
            if node.targets[0].attr != "dtype":
                found[node.targets[0].attr] = value
    return found


def _unpacked(argument: str, kept: ast.expr, body: list[ast.stmt]) -> list[tuple[str, ast.expr]] | None:
    """The pairs of ``A, B = argument`` at the head of the body where a tuple was kept, None where it is otherwise."""
    head = body[0]
    if not (isinstance(head, ast.Assign) and isinstance(head.value, ast.Name) and head.value.id == argument):
        return None
    names = head.targets[0]
    if not (isinstance(kept, ast.Tuple) and isinstance(names, ast.Tuple) and len(kept.elts) == len(names.elts)):
        return None
    return [(n.id, v) for n, v in zip(names.elts, kept.elts, strict=True) if isinstance(n, ast.Name)]


def _given(argument: str, kept: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
    pairs = _unpacked(argument, kept, body) or [(argument, kept)]
    different = [(name, value) for name, value in pairs if not (isinstance(value, ast.Name) and value.id == name)]
    return [ast.Assign(targets=[ast.Name(name, ast.Store())], value=value) for name, value in different]


def _rest(argument: str, kept: ast.expr, body: list[ast.stmt]) -> list[ast.stmt]:
    return copy.deepcopy(body[1:] if _unpacked(argument, kept, body) else body)
