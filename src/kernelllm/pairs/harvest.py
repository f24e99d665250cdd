"""Problems out of installed packages: their ``nn.Module`` classes, each with what it needs, under licences that allow it."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kernelllm.core.errors import KernelLLMError, UsageError
from kernelllm.core.types import Problem

log = logging.getLogger(__name__)

ALLOWED: Final = ("MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense", "PSF-2.0", "CC0-1.0")
"""Licences under which modules may be kept (SPDX)."""
_CLASSIFIERS: Final = {"MIT": "MIT", "Apache": "Apache-2.0", "BSD": "BSD-3-Clause", "ISC": "ISC", "Python Software": "PSF-2.0"}


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a harvested module comes from."""

    repo_name: str
    """Distribution and version, e.g. ``timm 1.0.31``."""
    module_name: str
    file: str
    licenses: tuple[str, ...]
    repo_link: str = ""


class Harvest:
    """The problems of packages. ``dropped`` counts what did not become one, by reason."""

    def __init__(self, packages: list[str]) -> None:
        self.packages = packages
        self.dropped: Counter[str] = Counter()

    def problems(self) -> Iterator[tuple[Problem, Origin]]:
        """A problem for each class that can stand alone and whose arguments are found. Raises UsageError for an unknown package."""
        for package in self.packages:
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                raise UsageError(f"There is no installed package {package!r}.", fix="Install it, or name another.")
            licence, version, link = _metadata(package)
            if licence not in ALLOWED:
                self.dropped[f"licence {licence or 'unknown'} of {package}"] += 1
                continue
            root = Path(next(iter(spec.submodule_search_locations)))
            for file in sorted(root.rglob("*.py")):
                name = ".".join((package, *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
                for problem, class_name in self._of_file(name, file):
                    where = Origin(
                        repo_name=version, module_name=class_name, file=file.relative_to(root.parent).as_posix(), licenses=(licence,),
                        repo_link=link,
                    )  # fmt: skip
                    yield problem, where

    def _of_file(self, module: str, file: Path) -> Iterator[tuple[Problem, str]]:
        classes = _module_classes(file)
        if not classes:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - packages raise anything where an optional part is missing
            log.info("%s cannot be imported: %s", module, error)
            self.dropped["its file cannot be imported"] += len(classes)
            return
        for name in classes:
            cls = getattr(loaded, name, None)
            if isinstance(cls, type) and cls.__module__ == module:
                for problem in self._of_class(cls):
                    yield problem, name

    def _of_class(self, cls: Any) -> Iterator[Problem]:
        """The class with each way of building it that was found."""
        import torch

        from kernelllm.pairs.guessed_arguments import guessed
        from kernelllm.pairs.isolate import isolated

        if not issubclass(cls, torch.nn.Module):
            return
        try:
            text = isolated(cls)
        except KernelLLMError as error:
            self.dropped[re.sub(r"needs .*", "needs what is outside of torch and its package", error.what)] += 1
            return
        found = guessed(cls)
        if not found:
            self.dropped["no arguments were found with which it runs"] += 1
        taken = re.search(r"\bModel\b", text)
        body = f"{text}\n\nModel = {cls.__name__}\n" if taken else re.sub(rf"\b{cls.__name__}\b", "Model", text)
        head = "" if re.search(r"^import torch$", body, re.M) else "import torch\n"
        for number, arguments in enumerate(found):
            init = [_text(v) for v in arguments.constructor]
            if None in init:
                self.dropped["its constructor takes objects"] += 1
                continue
            name = f"{cls.__module__}.{cls.__name__}" + (f".{number}" if number else "")
            drawn = f"def get_inputs():\n    return [{', '.join(arguments.inputs)}]"
            source = f"{head}{body}\n\n{drawn}\n\n\ndef get_init_inputs():\n    return [{', '.join(map(str, init))}]\n"
            yield Problem(name=name, source=source, origin=f"harvest:{name}", tags=("harvest", cls.__module__.partition(".")[0]))


def _text(value: Any) -> str | None:
    if isinstance(value, type) and value.__module__.startswith("torch.nn"):
        return f"torch.nn.{value.__name__}"
    return repr(value) if isinstance(value, bool | int | float | str | None) else None


def _module_classes(file: Path) -> list[str]:
    """Top-level classes of a file that have a forward of their own, read from the text: most files need not be imported."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, OSError):
        return []
    return [
        c.name for c in tree.body
        if isinstance(c, ast.ClassDef) and any(isinstance(f, ast.FunctionDef) and f.name == "forward" for f in c.body)
    ]  # fmt: skip


def _metadata(package: str) -> tuple[str, str, str]:
    """(licence as SPDX, "name version", link) of the distribution that a package comes from."""
    names = importlib.metadata.packages_distributions().get(package) or [package]
    try:
        told = importlib.metadata.metadata(names[0]).json
    except importlib.metadata.PackageNotFoundError:
        return "", package, ""
    classifiers = [c for c in told.get("classifier", ()) if c.startswith("License")]
    stated = [str(told.get("license_expression", "")), *classifiers, str(told.get("license", ""))]
    licence = next((spdx for text in stated for key, spdx in _CLASSIFIERS.items() if key in text.split("\n")[0]), "")
    if stated[0] in ALLOWED:
        licence = stated[0]
    links = [u.partition(",")[2].strip() for u in told.get("project_url", ())]
    return licence, f"{told['name']} {told['version']}", str(told.get("home_page") or next((x for x in links if "git" in x), ""))
