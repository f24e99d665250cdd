"""One file of a package: its classes and factories are built and run, and every module that ran becomes a problem.

For a process of its own: what nn.Module does is replaced while it records, and the code of others runs.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import itertools
import logging
import os
import re
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from kernelllm.core.errors import UsageError
from kernelllm.core.types import to_json
from kernelllm.pairs import guessed_arguments
from kernelllm.pairs.canonical import fingerprint
from kernelllm.pairs.package_module import OWN_FORMS, scope_of
from kernelllm.pairs.recording import ModuleRecorder, positional
from kernelllm.pairs.stand_ins import imported
from kernelllm.pairs.standalone import ModuleUse, Way, problem_of
from kernelllm.pairs.variations import variations

MOST_USES: Final = 4
"""Uses of one class that are tried, over all files."""
MOST_MODULES: Final = 40
"""Layers in one problem."""
MOST_FACTORIES: Final = 6
VARIED: Final = 8
"""Other arguments of a constructor that are tried, one at a time."""
FORMS: Final = 8
"""Problems that differ in numbers alone."""
SECONDS: Final = 12
"""For building and running one class."""


class TooLong(Exception):
    """The time of one class is over."""


class HarvestedFile:
    """What one file gave. ``out`` is the folder of problems; marks below it keep what other processes must not do again."""

    def __init__(self, module: str, out: Path, licences: Callable[[str], bool]) -> None:
        self.module, self.out, self._allowed = module, out, licences
        self.reasons: Counter[str] = Counter()
        self.found: dict[str, dict[str, Any]] = {}

    def run(self) -> None:
        """Import the file and harvest it; reasons are counted, nothing is raised."""
        torch.set_num_threads(1)
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        try:
            with time_limit(4 * SECONDS):
                loaded = imported(self.module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - packages raise anything where an optional part is missing
            self.reasons[f"its file cannot be imported ({_missing(error)})"] += 1
            return
        found: list[Callable[..., Any]] = [*self._classes(loaded), *self._factories(loaded)]
        for make in found:
            recorder = ModuleRecorder()
            told = ""
            try:
                with time_limit(SECONDS):
                    told = run_once(make, recorder)
            except TooLong:
                told = "it takes too long"
            except Exception as error:  # noqa: BLE001 - the code of others raises what it likes
                told = f"it fails ({type(error).__name__})"
            if told and isinstance(make, type):
                self.reasons[told] += 1
            self._keep(recorder)

    def _keep(self, recorder: ModuleRecorder) -> None:
        for module, call in list(recorder.calls.values()):
            built, given = recorder.constructor(module), positional(module, call)
            cls = type(module)
            if built is None or given is None or not self._allowed(cls.__module__.partition(".")[0]) or cls.__module__ in OWN_FORMS:
                self.reasons["its call cannot be written"] += built is not None and given is None
                continue
            if sum(1 for _ in module.modules()) > MOST_MODULES:
                self.reasons["it is a whole model"] += 1
                continue
            key = repr((cls.__qualname__, _short(built), given))
            if not self._first(f"{cls.__module__}.{cls.__qualname__}", key):
                continue
            try:
                with time_limit(SECONDS / 3):
                    source, packages, way = problem_of(ModuleUse(cls, built, given, recorder.constructor), self._allowed)
                    self._write(cls, source, packages)
            except UsageError as error:
                self.reasons[error.what] += 1
            except TooLong:
                self.reasons["its text takes too long"] += 1
            except Exception as error:  # noqa: BLE001 - as above
                self.reasons[f"its text cannot be made ({type(error).__name__})"] += 1
            else:
                self._vary(ModuleUse(cls, built, given, recorder.constructor), way)

    def _vary(self, use: ModuleUse, way: Way) -> None:
        """The class with other arguments; those that do not fit are nothing lost."""
        with suppress(TooLong), time_limit(SECONDS / 3):
            for other in itertools.islice(variations(use.cls, use.constructor), VARIED):
                try:
                    self._write(use.cls, *problem_of(replace(use, constructor=other), self._allowed, way)[:2])
                except TooLong:
                    raise
                except Exception:  # noqa: BLE001 - the code of others raises what it likes
                    continue

    def _first(self, name: str, key: str) -> bool:
        """Whether this use of the class is new, and not one too many."""
        mark = self.out / ".classes" / name
        told = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:12]
        known = mark.read_text().split() if mark.exists() else []
        if told in known or len(known) >= MOST_USES:
            return False
        with mark.open("a") as out:
            out.write(told + "\n")
        return True

    def _write(self, cls: type, source: str, packages: set[str]) -> None:
        same, marks = fingerprint(source)[:16], self.out / ".texts"
        if not _made(marks / same) or not any(_made(marks / f"{fingerprint(source, numbers=False)[:16]}.{i}") for i in range(FORMS)):
            self.reasons["the same module"] += 1
            return
        name = f"{cls.__module__}.{cls.__qualname__}.{same[:4]}"
        (self.out / f"{name}.py").write_text(source, encoding="utf-8")
        self.found[name] = {"module_name": cls.__qualname__, "packages": sorted(packages)}
        self.note("part")  # whatever ends this process, what was written has its origin

    def note(self, ending: str) -> None:
        """Leave what was found and why the rest was not in ``.files``."""
        told = to_json({"found": self.found, "reasons": dict(self.reasons)})
        (self.out / ".files" / f"{self.module}.{ending}").write_text(told, encoding="utf-8")

    def _classes(self, loaded: Any) -> Iterator[type]:
        found = [c for c in vars(loaded).values() if isinstance(c, type) and issubclass(c, torch.nn.Module) and c.__module__ == self.module]
        return reversed([c for c in found if "forward" in dir(c)])  # the last are the whole models, which hold the others

    def _factories(self, loaded: Any) -> list[Callable[..., Any]]:
        """Functions that give a module without being told anything: a few of a file, from all over it."""
        classes = {c.__name__ for c in vars(loaded).values() if isinstance(c, type) and issubclass(c, torch.nn.Module)}
        found = []
        for name, node in scope_of(self.module).nodes.items():
            make = getattr(loaded, name, None)
            if not isinstance(node, ast.FunctionDef) or not inspect.isfunction(make) or make.__module__ != self.module:
                continue
            parameters = inspect.signature(make).parameters.values()
            if any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
                continue
            called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            if not name.startswith("_") and (called & classes or any(re.match("_[a-z]", c) for c in called)):
                found.append(make)
        step = max(1, len(found) / MOST_FACTORIES)
        return [found[int(i * step)] for i in range(min(len(found), MOST_FACTORIES))]


def run_once(make: Callable[..., Any], recorder: ModuleRecorder) -> str:
    """Build something and run it once, watched. Says why it did not run; "" where it did."""
    built = 0
    with recorder.watching(), torch.no_grad():
        for args, kwargs in guessed_arguments.constructors(make):
            try:
                with _without_init():
                    model = make(*args, **kwargs)
                if not isinstance(model, torch.nn.Module):
                    return "it is no module"
                built += 1
                if _ran(model):
                    return ""
            except TooLong:
                raise
            except Exception:  # noqa: BLE001 - the code of others raises what it likes; the next guess follows
                continue
            if built > 3:
                break
    return "no inputs were found with which it runs" if built else "no arguments were found with which it is built"


@contextmanager
def _without_init() -> Iterator[None]:
    """Parameters are left as the memory is: only shapes matter, and large models are built at once."""
    fill = {n: f for n, f in vars(torch.nn.init).items() if n.endswith("_") and not n.startswith("_") and inspect.isfunction(f)}
    drawn = {n: getattr(torch.Tensor, n) for n in ("normal_", "uniform_", "erfinv_")}
    for name in fill:
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    for name in drawn:
        setattr(torch.Tensor, name, lambda tensor, *_, **__: tensor)
    try:
        yield
    finally:
        for name, function in fill.items():
            setattr(torch.nn.init, name, function)
        for name, function in drawn.items():
            setattr(torch.Tensor, name, function)


def _ran(model: torch.nn.Module) -> bool:
    for args, kwargs in itertools.islice(guessed_arguments.inputs(model), guessed_arguments.CALLS):
        try:
            model(*args, **kwargs)
        except TooLong:
            raise
        except Exception:  # noqa: BLE001 - as above
            continue
        return True
    return False


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooLong in the main thread after that time of the processor, or three times as much on the clock, whatever else the machine
    does; and again each second where code of others swallows it."""

    def over(*_: object) -> None:
        raise TooLong

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, 3 * seconds))
    before = [signal.signal(number, over) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit, 1.0)
    try:
        yield
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
        for (number, _, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


def _short(value: Any) -> str:
    """Arguments as text, objects by their class."""
    if isinstance(value, list | tuple):
        return "[{}]".format(",".join(map(_short, value)))
    if isinstance(value, dict):
        return _short([*value.items()])
    return repr(value) if isinstance(value, bool | int | float | str | None) else type(value).__name__


def _made(mark: Path) -> bool:
    """Make a mark; False where it is there already."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _missing(error: BaseException) -> str:
    return f"needs {error.name}" if isinstance(error, ModuleNotFoundError) else type(error).__name__


def harvest_file(module: str, out: Path, licences: Callable[[str], bool]) -> None:
    """Harvest one file and leave what came of it in ``.files``. For a process of its own."""
    made = HarvestedFile(module, out, licences)
    try:
        made.run()
    finally:
        made.note("json")


