"""Instantiates a problem: its source is executed, its model built, its inputs drawn.

Problem sources are trusted (the user's own files and the suites that they chose) and run in this process. Candidates are not,
and never come here.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import linecache
import re
import sys
import traceback
import types
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.quiet import third_party_output
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.nested import mapped
from kernelllm.problems.seeds import own_generators, seed_all

if TYPE_CHECKING:
    import torch

_numbers = itertools.count()
_TAKES_GRADIENTS = re.compile(r"\bautograd\.grad\(|\.backward\(")
_NEEDS_GPU = ("not compiled with cuda", "no nvidia driver", "no cuda gpus", "cuda driver", "cuda-capable device")


class Instance:
    """A problem at its own sizes, or at changed ones.

    ``constants`` maps names from :func:`kernelllm.problems.sizes.constants` to new values. The source runs once, here, in a module
    of its own that is not ``__main__``; on the command line what it prints goes to standard error. Raises ProblemError where the source
    does not parse, raises when it runs, or lacks ``Model`` or ``get_inputs``.
    """

    def __init__(self, problem: Problem, constants: Mapping[str, Any] | None = None) -> None:
        self.problem = problem
        self.constants = dict(constants or {})
        self.source = sizes.with_constants(problem.source, self.constants)
        self._module = self._execute()
        self.namespace: dict[str, Any] = self._module.__dict__
        for name, fix in (("Model", "Define class Model(nn.Module)."), ("get_inputs", "Define get_inputs(), returning a list of inputs.")):
            if not callable(self.namespace.get(name)):
                raise ProblemError(f"The problem defines no {name}.", where=_where(problem), fix=fix)

    def init_inputs(self, seed: int) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of ``Model``, drawn under ``seed``; both empty where there is no get_init_inputs.

        Accepts what problem files return: a list or tuple of arguments, a dictionary of keyword arguments, or the pair ``[args, kwargs]``.
        """
        function = self.namespace.get("get_init_inputs")
        if function is None:
            return [], {}
        with self._running("get_init_inputs()"):
            seed_all(seed)
            value = function()
        return init_arguments(value, self.namespace["Model"])

    def model(
        self, seed: int, device: str = "cpu", *, there: bool = False, more: Mapping[str, Any] | None = None,
        instead: Mapping[int | str, Any] | None = None,
    ) -> torch.nn.Module:  # fmt: skip
        """``Model(*init_inputs)`` built under ``seed`` on the CPU, as KernelBench does, then moved to ``device``.

        ``more``: keyword arguments beside those of the problem; ``instead``: others for its own, by place or name.
        ``there``: built on the device itself, which is quick for large models; its parameters are other random numbers then.
        Its mode is whatever the constructor leaves, which is training mode unless it calls ``eval``.
        Raises ProblemError where the constructor raises or returns something that is not an ``nn.Module``.
        """
        import torch

        args, kwargs = self.init_inputs(seed)
        args = [(instead or {}).get(place, value) for place, value in enumerate(args)]
        kwargs = {name: (instead or {}).get(name, value) for name, value in kwargs.items()}
        with self._running("Model(...)"):
            seed_all(seed)
            with torch.device(device) if there else contextlib.nullcontext():
                model = self.namespace["Model"](*args, **kwargs, **(more or {}))
            if not isinstance(model, torch.nn.Module):
                what = "Model(...) makes something that is no torch.nn.Module."
                raise ProblemError(what, where=_where(self.problem), fix="Derive the class: class Model(nn.Module).")
            if "_modules" not in vars(model):
                what = f"The constructor of {type(model).__name__} does not make a module."
                raise ProblemError(what, where=_where(self.problem), fix="Call super().__init__() first in it.")
            return model if device == "cpu" else model.to(device)

    def inputs(self, seed: int, device: str = "cpu") -> list[Any]:
        """The inputs of ``forward``, drawn under ``seed``: tensors and whatever else the problem passes.

        On ``cuda`` they are drawn there (the random numbers differ from the CPU's); what the problem pinned to the CPU is moved, and
        where it cannot be drawn there at all (a generator or an array of the CPU), all is drawn on the CPU and moved.
        Raises ProblemError where get_inputs raises or does not return a list, tuple, dictionary or tensor.
        """
        import torch

        def draw(where: str) -> list[Any]:
            with self._running("get_inputs()"), torch.device(where):
                seed_all(seed)
                return input_list(self.namespace["get_inputs"](), self.problem)

        if device == "cpu":
            with self._running("get_inputs()"):
                seed_all(seed)
                return input_list(self.namespace["get_inputs"](), self.problem)
        try:
            values = draw(device)
        except ProblemError as error:
            if isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
            values = draw("cpu")
        with self._running("get_inputs()"):
            found: list[Any] = moved(values, device)
            return found

    @contextlib.contextmanager
    def running(self, stage: str = "forward") -> Iterator[None]:
        """Context for calling into the problem: one thread at a time, and errors become a ProblemError that names ``stage``."""
        with self._running(stage):
            yield

    def _execute(self) -> types.ModuleType:
        number = next(_numbers)
        filename = f"<problem {self.problem.name} #{number}>"
        name = f"kernelllm_problem_{number}"
        sizes.parse(self.source, _where(self.problem))
        self.source = with_gradients(self.source)
        module = types.ModuleType(name)
        folder, package = import_root(self.problem.path)
        module.__file__ = filename  # the key in linecache, for inspect.getsource and tracebacks
        module.__package__ = package
        lines = self.source.splitlines(keepends=True)
        linecache.cache[filename] = (len(self.source), None, lines, filename)
        sys.modules[name] = module  # dataclasses, pickle and torch.jit look classes up here
        weakref.finalize(self, _forget, name, filename)
        self._filename, self._folder = filename, folder
        with self._running("the file"):
            exec(compile(self.source, filename, "exec", dont_inherit=True), module.__dict__)
        return module

    @contextlib.contextmanager
    def _running(self, stage: str) -> Iterator[None]:
        try:
            with own_generators(), third_party_output(), importable(self._folder):
                yield
        except ProblemError:
            raise
        except MemoryError as error:
            raise ProblemError(f"There is not enough memory to run {stage} of the problem.", where=_where(self.problem)) from error
        except (Exception, SystemExit) as error:  # whatever the problem's own code raises is its own fault
            told = explain(error, stage, self.problem, self._filename)
            traceback.clear_frames(error.__traceback__)  # a generator that a frame holds keeps its context open: a checkpoint's hooks
            raise told from error


def with_gradients(source: str) -> str:
    """The same source; where its ``Model.forward`` takes gradients itself, with them enabled: problems are run without them.

    Lines keep their numbers where the line above ``forward`` is empty.
    """
    if "enable_grad" in source or not _TAKES_GRADIENTS.search(source):
        return source
    tree = syntax_tree(source)
    if not any(isinstance(n, ast.Import) and any(a.name == "torch" and a.asname is None for a in n.names) for n in tree.body):
        return source
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    forward = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None) if model else None
    if forward is None:
        return source
    lines = source.split("\n")
    at = min([forward.lineno, *(n.lineno for n in forward.decorator_list)]) - 1
    above = at - (at > 0 and not lines[at - 1].strip())
    lines[above:at] = [" " * forward.col_offset + "@torch.enable_grad()"]
    return "\n".join(lines)


def explain(error: BaseException, stage: str, problem: Problem, filename: str = "<problem") -> ProblemError:
    """What a problem's own code raised, as a ProblemError with its line and a next step."""
    text = (str(error).strip().splitlines() or [""])[0]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(filename)]
    line = f" on line {frames[-1].lineno}: {frames[-1].line}" if frames and frames[-1].line else ""
    cause = f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
    if any(mark in str(error).lower() for mark in _NEEDS_GPU):
        return ProblemError(
            f"The problem asks for a GPU in {stage}{line} and this machine has none.",
            where=_where(problem),
            fix="Remove .cuda() and device='cuda' from the problem; model and inputs are moved to the device for it.",
        )
    if isinstance(error, ImportError):
        fix = "Install that package, or put the module next to the problem's file."
    elif isinstance(error, TypeError) and "required positional argument" in text and stage.startswith("Model("):
        fix = "Return the constructor's arguments from get_init_inputs; for FILE.py:Class give them by --init."
    else:
        fix = "Run the file on its own to see the whole traceback."
    return ProblemError(f"The problem's reference fails in {stage}{line} ({cause}).", where=_where(problem), fix=fix)


def input_list(value: Any, problem: Problem) -> list[Any]:
    """What ``get_inputs`` returned, as the arguments of ``forward``. Raises ProblemError."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping | list | tuple):
        return list(value.values() if isinstance(value, Mapping) else value)
    what = f"get_inputs() returned {type(value).__name__}, not a list of inputs."
    raise ProblemError(what, where=_where(problem), fix="Return a list: [x, y].")


def init_arguments(value: Any, model: Any) -> tuple[list[Any], dict[str, Any]]:
    """What ``get_init_inputs`` returned, as positional and keyword arguments of the class ``model``."""
    if isinstance(value, Mapping):
        return [], dict(value)
    if value is None:
        return [], {}
    if not isinstance(value, list | tuple):
        return [value], {}
    if len(value) == 2 and isinstance(value[0], list | tuple) and isinstance(value[1], dict):
        args, kwargs = list(value[0]), dict(value[1])
        if _binds(model, args, kwargs):
            return args, kwargs
    return list(value), {}


def moved(value: Any, device: str) -> Any:
    """The same value with every tensor in it on ``device``."""
    return mapped(value, lambda tensor: tensor.to(device))


def import_root(path: str | None) -> tuple[str | None, str]:
    """The folder to put on ``sys.path`` for a file, and the package that relative imports in it start from ("" for none)."""
    if path is None:
        return None, ""
    folder = Path(path).resolve().parent
    parts: list[str] = []
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    return str(folder), ".".join(parts)


@contextlib.contextmanager
def importable(folder: str | None) -> Iterator[None]:
    """The folder first on ``sys.path`` while the problem runs; modules imported from it are forgotten afterwards.

    Two problems may each have a ``utils.py``; whoever imported one keeps it through its own reference.
    """
    if folder is None:
        yield
        return
    before = tuple(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
        same = len(sys.modules) == len(before) and next(reversed(sys.modules)) == before[-1]  # new ones come last
        for name in () if same else set(sys.modules).difference(before):
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder) and "site-packages" not in file:
                del sys.modules[name]


def _forget(name: str, filename: str) -> None:
    sys.modules.pop(name, None)
    linecache.cache.pop(filename, None)


def _binds(function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def _where(problem: Problem) -> str:
    return problem.path or problem.name
