"""Verdicts that the candidate's source alone decides. Nothing here needs torch, so that a syntax error is told at once."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import msgspec

import kernelllm
from kernelllm.backends.base import Backend, open_backend
from kernelllm.core.types import Candidate, Finding, Severity, Status, Verdict
from kernelllm.judge import checks as all_checks
from kernelllm.judge.candidate_source import why_invalid
from kernelllm.judge.judge_settings import JudgeSettings


class SourceRefusal(msgspec.Struct, frozen=True):
    """What the source tells. ``status`` None: nothing against it, it is to be run."""

    status: Status | None
    message: str = ""
    findings: tuple[Finding, ...] = ()


def read(source: str, checks: Sequence[Any], backend: Backend) -> SourceRefusal:
    """Whether a text is a candidate at all, and what the checks find in it."""
    reason = why_invalid(source)
    if reason:
        return SourceRefusal(Status.INVALID, reason)
    findings = tuple(all_checks.source_findings(checks, source, backend))
    cheats = accusation(findings) if any(f.severity is Severity.FAIL for f in findings) else ""
    return SourceRefusal(Status.CHEATING if cheats else None, cheats, findings)


def refused(candidate: Candidate, settings: JudgeSettings) -> Verdict | None:
    """The verdict where the source alone decides it, None where the candidate is to be run. Raises UnknownName for a check or backend."""
    found = read(candidate.source, all_checks.load(settings.checks), open_backend(candidate.backend))
    if found.status is None:
        return None
    environment = {"kernelllm": kernelllm.__version__, "profile": settings.profile, "python": platform.python_version()}
    return Verdict(status=found.status, message=found.message, findings=found.findings, environment=environment)


_WRONG = ("precision", "silently_different")
"""What they find is wrong, and no cheating."""


def accusation(findings: Sequence[Finding]) -> str:
    """What the first finding says that calls a candidate a cheat, with its line; empty where none does."""
    fatal = [f for f in findings if f.severity is Severity.FAIL and f.check not in _WRONG]
    return f"{fatal[0].message}{f' (line {fatal[0].line})' if fatal[0].line else ''}" if fatal else ""
