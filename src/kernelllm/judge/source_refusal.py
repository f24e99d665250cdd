"""Gives the verdicts that the candidate's source alone decides, without torch, so that a syntax error is told at once."""

from __future__ import annotations

import ast
import io
import platform
import tokenize
from collections.abc import Sequence
from typing import Any

import msgspec

import kernelllm
from kernelllm.backends.base import Backend, open_backend
from kernelllm.core.types import Candidate, Finding, Severity, Status, Verdict
from kernelllm.judge import checks as all_checks
from kernelllm.judge.checks.syntax import as_imported
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


_ENCODINGS = ("utf-8", "utf-8-sig", "ascii")
_WRONG = ("precision", "silently_different")
"""What they find is wrong, and no cheating."""


def accusation(findings: Sequence[Finding]) -> str:
    """What the first finding says that calls a candidate a cheat, with its line; empty where none does."""
    fatal = [f for f in findings if f.severity is Severity.FAIL and f.check not in _WRONG]
    return f"{fatal[0].message}{f' (line {fatal[0].line})' if fatal[0].line else ''}" if fatal else ""


def why_invalid(source: str) -> str:
    """Why a text is no candidate, empty when it may be one."""
    if not source.strip():
        return "The candidate is empty. Send Python source that defines ModelNew."
    try:
        tree = as_imported(source)
        encoding = _declared_encoding(source)
    except SyntaxError as error:
        return f"The candidate is not Python: {error.msg} (line {error.lineno}). Send plain source without prose or code fences."
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The candidate cannot be parsed: {error}."
    if encoding not in _ENCODINGS:
        return f"The candidate declares the encoding {encoding}: what Python runs is not the text that is read here. Save it as UTF-8."
    if any(_defines_model(node) for node in ast.walk(tree)):
        return ""
    return "The candidate defines no ModelNew. Define class ModelNew(torch.nn.Module) with the reference's constructor and forward."


def _declared_encoding(source: str) -> str:
    """Raises SyntaxError where Python knows no such encoding."""
    lines = source.replace("\r\n", "\n").replace("\r", "\n")
    return tokenize.detect_encoding(io.BytesIO(lines.encode(errors="replace")).readline)[0]


def _defines_model(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name == "ModelNew"
    if isinstance(node, ast.Name):
        return node.id == "ModelNew" and isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.alias) and (node.asname or node.name) == "ModelNew"
