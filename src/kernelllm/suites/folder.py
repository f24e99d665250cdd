"""``folder/PATH``: every problem file below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernelllm.core.errors import ProblemError, UsageError
from kernelllm.core.types import Problem
from kernelllm.suites import contract
from kernelllm.suites.file import open_problem

_IGNORED = {"__pycache__", "site-packages", "node_modules"}


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
