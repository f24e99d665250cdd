"""``kernelbench``: KernelBench's problems from the user's own checkout, or from its Hugging Face data set.

Nothing of it is shipped. Selections: ``kernelbench`` (levels 1 to 3), ``kernelbench/level1``, ``kernelbench/level1/19``,
``kernelbench/level1/1-20``, ``kernelbench/level1,level2/5-7``. Level 4 needs the package transformers and the models' weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernelllm.core import settings
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Problem
from kernelllm.suites import contract, file

DATASET = "ScalingIntelligence/KernelBench"
LEVELS = (1, 2, 3, 4)
STANDARD = (1, 2, 3)


@dataclass(frozen=True)
class Part:
    """One piece of a selection: a level and the inclusive range of problem numbers in it."""

    level: int
    first: int = 0
    last: int = 10**9

    @property
    def whole(self) -> bool:
        """Whether it is the whole level."""
        return self == Part(self.level)


class KernelBench(contract.Suite):
    """KernelBench's problems as ``level1/19_ReLU``, in order, with the version of the checkout or data set.

    ``path`` is a checkout (default: the setting ``kernelbench``), which may be the repository or its folder with ``level1`` in it.
    Without one, the data set serves where the package datasets is installed. Raises UsageError for a wrong selection or path.
    """

    name = "kernelbench"
    summary = "KernelBench: kernelbench/level1, kernelbench/level1/19"

    @classmethod
    def lacks(cls) -> str:
        """A checkout, or the package that reads the data set."""
        if settings.load().kernelbench or find_spec("datasets"):
            return ""
        return "a checkout (clone it and set KERNELLLM_KERNELBENCH, or kernelbench in kernelllm.toml, to it) or pip install datasets"

    def __init__(self, selection: str = "", path: str | None = None) -> None:
        self.parts = parse(selection)
        given = path or settings.load().kernelbench
        self.root = _root(given) if given else None
        if self.root is None:
            _require_datasets()

    @cached_property
    def version(self) -> str:
        """``git:<commit>`` of the checkout, ``hf:<revision>`` of the data set, "" where neither is known."""
        if self.root is None:
            return _dataset_version()
        return next((f"git:{commit}" for folder in (self.root, self.root.parent) if (commit := contract.commit(folder))), "")

    def problems(self) -> Iterator[Problem]:
        """The selected problems by level and number. Raises UsageError where a selected level or number is not there."""
        for part in self.parts:
            found = 0
            for problem, number in self._level(part.level):
                if part.first <= number <= part.last:
                    found += 1
                    yield problem
            if not found:
                numbers = f"{part.first}" if part.first == part.last else f"{part.first} to {part.last}"
                raise UsageError(
                    f"Level {part.level} is empty." if part.whole else f"KernelBench has no problem {numbers} in level {part.level}.",
                    where=str(self.root or DATASET),
                    fix="Levels 1 and 2 have 100 problems, level 3 has 50, level 4 has 20.",
                )

    def _level(self, level: int) -> Iterator[tuple[Problem, int]]:
        if self.root is None:
            for row in _rows(level):
                number = int(row["problem_id"])
                yield _problem(level, number, str(row["name"]), str(row["code"]), None), number
            return
        folder = self.root / f"level{level}"
        if not folder.is_dir():
            raise UsageError(f"The KernelBench checkout has no level{level}.", where=str(self.root))
        for path in sorted(folder.glob("*.py"), key=lambda p: contract.natural(p.name)):
            head = re.match(r"(\d+)_", path.name)
            if head:
                number = int(head[1])
                yield _problem(level, number, path.stem, file.read(path), str(path.resolve())), number


def parse(selection: str) -> tuple[Part, ...]:
    """The parts of a selection such as ``level1,level2/5-7,9``; a bare number belongs to the level before it. Raises UsageError."""
    if not selection.strip():
        return tuple(Part(level) for level in STANDARD)
    parts: list[Part] = []
    level: int | None = None
    for item in selection.strip().strip("/").split(","):
        match = re.fullmatch(r"\s*(?:level[_ ]?(\d+))?/?(?:(\d+)(?:-(\d+)|_\w.*)?)?\s*", item)
        if match is None or not (match[1] or match[2]):
            raise UsageError(f"KernelBench selections look like level1, level1/19, level1/1-20 or level1,level2, not {selection!r}.")
        level = int(match[1]) if match[1] else level
        if level not in LEVELS:
            what = f"KernelBench has levels 1 to 4, not {match[1] or 'none'} in {selection!r}."
            raise UsageError(what, fix="For example: kernelbench/level1/19.")
        if match[3] and int(match[3]) < int(match[2]):
            raise UsageError(f"The range {match[2]}-{match[3]} runs backwards.", fix=f"Write {match[3]}-{match[2]}.")
        if match[2]:
            parts.append(Part(level, int(match[2]), int(match[3] or match[2])))
        else:
            parts.append(Part(level))
    return tuple(parts)


def _problem(level: int, number: int, stem: str, source: str, path: str | None) -> Problem:
    stem = stem.removesuffix(".py")
    name = stem if re.match(rf"{number}_", stem) else f"{number}_{stem}"
    origin = f"kernelbench:level{level}/{number}"
    return Problem(name=f"level{level}/{name}", source=source, origin=origin, path=path, tags=("kernelbench", f"level{level}"))


def _root(given: str) -> Path:
    """The folder that holds ``level1``. Raises UsageError where there is none."""
    root = Path(given).expanduser()
    for folder in (root, root / "KernelBench"):
        if any((folder / f"level{level}").is_dir() for level in LEVELS):
            return folder
    raise UsageError(
        f"There is no KernelBench checkout at {root}.",
        fix="Set kernelbench in kernelllm.toml (or KERNELLLM_KERNELBENCH) to a clone of the KernelBench repository.",
    )


def _require_datasets() -> None:
    if find_spec("datasets") is None:
        raise UsageError(
            "kernelllm does not know where KernelBench is.",
            fix="Clone it and set kernelbench in kernelllm.toml (or KERNELLLM_KERNELBENCH) to the clone, "
            f"or pip install datasets to read the data set {DATASET}.",
        )


def _rows(level: int) -> Iterator[dict[str, Any]]:
    from kernelllm.suites.hf_datasets import rows

    try:
        found = list(rows(DATASET, split=f"level_{level}"))
    except UsageError as error:
        fix = "Connect to the network, or set kernelbench in kernelllm.toml (or KERNELLLM_KERNELBENCH) to a clone of the repository."
        raise UsageError(error.what, where=error.where, fix=fix) from error
    yield from sorted(found, key=lambda row: int(row["problem_id"]))


def _dataset_version() -> str:
    from kernelllm.suites.hf_datasets import revision

    return revision(DATASET)
