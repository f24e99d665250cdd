"""Problems by their name on the command line: found, listed and described."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kernelllm.core import registry
from kernelllm.core.errors import ProblemError, UsageError
from kernelllm.core.types import Finding, Problem
from kernelllm.suites.contract import Suite


def find(spec: str) -> Iterator[Problem]:
    """The problems of a file, a folder, or a registered suite (``name`` or ``name/rest``, where ``rest`` is the suite's own business).

    Raises UsageError, ProblemError or UnknownName where there is none.
    """
    from kernelllm.suites import open_suite

    yield from open_suite(spec).problems()


def left_out(suite: Suite, *, whole: bool = False) -> list[str]:
    """Lines about what a suite left out while its problems were read: how many for each reason, or each one (``whole``)."""
    if whole:
        return [f"left out: {name}: {why}" for name, why in suite.skipped.items()]
    names: dict[str, list[str]] = {}
    for name, why in suite.skipped.items():
        names.setdefault(why, []).append(name)
    ordered = sorted(names.items(), key=lambda item: -len(item[1]))
    return [f"left out: {len(found)} like {found[0]}: {why}" for why, found in ordered]


def in_suite(spec: str) -> bool:
    """Whether ``spec`` names something in a registered suite, such as ``builtin/activation/mish``, and not a file."""
    name, slash, rest = spec.partition("/")
    return bool(slash and rest) and name in registry.names("suites") and not Path(spec).exists()


def single(spec: str) -> Problem:
    """The one problem that ``spec`` names in a suite. Raises UsageError where there are none or several."""
    found = list(find(spec))
    if len(found) != 1:
        raise UsageError(f"{spec} names {len(found) or 'no'} problems, and one is needed.", fix=f"See: kernelllm problems list {spec}")
    return found[0]


def lint(found: Iterable[Problem]) -> Iterator[dict[str, Any]]:
    """How each problem fails as a measure of kernels: JSON objects with ``problem``, ``clean``, ``findings``, ``numbers``."""
    from kernelllm.problems import lint as linting

    for problem in found:
        try:
            report = linting.lint(problem)
        except ProblemError as error:
            finding = Finding(check="reference", message=str(error))
            yield {"problem": problem.name, "clean": False, "findings": [msgspec.to_builtins(finding)], "numbers": {}}
            continue
        yield {**msgspec.to_builtins(report), "clean": report.clean}


def rows(found: Iterable[Problem]) -> list[dict[str, str]]:
    """Name, origin and tags of each problem."""
    return [{"name": problem.name, "origin": problem.origin, "tags": " ".join(problem.tags)} for problem in found]


def describe(problem: Problem) -> dict[str, Any]:
    """All that is known of a problem without running it at full size: a JSON object."""
    from kernelllm.problems import shrink, sizes

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
    from kernelllm.problems import shrink

    found = [shrink.describe(problem, overrides) for overrides in shrink.shrunk(problem, count=count)]
    return [(sizes.changed, sizes.inputs) for sizes in found]
