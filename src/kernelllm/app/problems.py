"""Finding problems by what a person writes on a command line, and describing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernelllm.core import registry
from kernelllm.core.types import Problem


def find(spec: str) -> Iterator[Problem]:
    """The problems of a file, a folder, or a registered suite (``name`` or ``name/rest``, where ``rest`` is the suite's own business).

    Raises UsageError, ProblemError or UnknownName where there is none.
    """
    name, _, rest = spec.partition("/")
    if Path(spec).is_dir():
        name, rest = "folder", spec
    elif spec.endswith(".py") or Path(spec).exists():
        name, rest = "file", spec
    suite = registry.resolve("suites", name)
    yield from (suite(rest) if rest else suite()).problems()


def rows(found: Iterable[Problem]) -> list[dict[str, str]]:
    """Name, origin and tags of each problem."""
    return [{"name": problem.name, "origin": problem.origin, "tags": " ".join(problem.tags)} for problem in found]


def describe(problem: Problem) -> dict[str, Any]:
    """All that is known of a problem without running it at full size: a JSON object."""
    from kernelllm.suites import shrink, sizes

    return {
        "name": problem.name,
        "origin": problem.origin,
        "path": problem.path or "",
        "digest": problem.digest,
        "tags": list(problem.tags),
        "constants": sizes.constants(problem),
        "inputs": list(shrink.describe(problem, {}).inputs),
        "source": problem.source,
    }


def shrunk(problem: Problem, count: int) -> list[tuple[dict[str, tuple[Any, Any]], tuple[str, ...]]]:
    """For each smaller setting: constant to (original, used), and the inputs that result. Raises ProblemError where none works."""
    from kernelllm.suites import shrink

    found = [shrink.describe(problem, overrides) for overrides in shrink.shrunk(problem, count=count)]
    return [(sizes.changed, sizes.inputs) for sizes in found]
