"""Holds the checks: one file recognises one way to cheat.

A check is a class with ``name``, ``describe`` and any of ``source(tree, backend) -> list[Finding]`` (the candidate's syntax
tree, and its kernel language) and ``observed(observation) -> list[Finding]`` (what judge and worker saw). A finding of
severity ``fail`` decides the verdict; the source alone fails a candidate only where it leaves no doubt.
docs/explanation/checks.md lists them all. Start with ``no_kernel.py``, a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kernelllm.backends.base import Backend
from kernelllm.core import registry
from kernelllm.core.text import printable
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import as_imported
from kernelllm.judge.observation import Observation

_ORDER = {Severity.FAIL: 0, Severity.WARN: 1, Severity.INFO: 2}


def load(names: Iterable[str] | None = None) -> list[Any]:
    """The checks of these names (None: all of them), one instance each. Raises UnknownName for a name that no registry row has."""
    return [registry.resolve("checks", name)() for name in (registry.names("checks") if names is None else names)]


def source_findings(checks: Sequence[Any], text: str, backend: Backend) -> list[Finding]:
    """What the source alone tells, worst first. Raises SyntaxError where ``text`` is not Python."""
    try:
        tree = as_imported(text)
        found = [finding for check in checks if hasattr(check, "source") for finding in check.source(tree, backend)]
    except (RecursionError, MemoryError):
        return [Finding(check="dynamic_code", message="The source is nested too deeply to be read.")]
    except ValueError as error:  # a null byte, which Python would refuse as well
        raise SyntaxError(str(error)) from error
    return tidy(found)


def observed_findings(checks: Sequence[Any], observation: Observation) -> list[Finding]:
    """What the runs tell, worst first."""
    return tidy([finding for check in checks if hasattr(check, "observed") for finding in check.observed(observation)])


_ALL = ("inputs_as_drawn", "limits", "silently_different", "tampering")
"""Checks of which one finding must not hide another."""


def tidy(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without repetitions (one for a check and line; of some checks all), worst first. They quote the candidate, so their text is
    made printable."""
    kept: dict[tuple[str, int, Severity, str], Finding] = {}
    for finding in findings:
        shown = msgspec.structs.replace(finding, message=printable(finding.message))
        kept.setdefault((finding.check, finding.line, finding.severity, shown.message if finding.check in _ALL else ""), shown)
    return sorted(kept.values(), key=lambda f: (_ORDER[f.severity], f.check, f.line))
