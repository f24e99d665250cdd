"""Keeps verdicts that were given once: in memory, and where asked for in files of the user's cache folder.

An entry is found by everything that decides a verdict: problem, candidate, settings, device, target, the versions of Python,
torch and Triton, and the text of the judge's own code. A verdict from here says so (``recorded``), because its times are of
then. Files are used only where candidates cannot write there: with none of Linux's means to confine files, a candidate could
leave itself a good verdict.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import platform
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec
import torch

import kernelllm
from kernelllm.backends.base import open_backend
from kernelllm.core import settings as user_settings
from kernelllm.core.file_cache import FileCache, code_digest
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import GRADIENTS, Candidate, Problem, Severity, Status, Verdict
from kernelllm.judge.isolation import landlock, sandbox
from kernelllm.judge.isolation.allowed_paths import plugin_of
from kernelllm.judge.judge_settings import JudgeSettings, capability, device_name, resolve_device
from kernelllm.judge.timing import device_rates

IN_MEMORY = 4096
"""Most verdicts that one judge holds in memory."""
_KEPT = (Status.CORRECT, Status.INCORRECT, Status.COMPILE_ERROR, Status.RUNTIME_ERROR, Status.CHEATING)
"""Time, memory and a reference that fails may be the machine's doing of the moment; an invalid candidate costs nothing."""
_CODE = ("judge", "problems", "core", "backends", "pool")


class Verdicts:
    """The verdicts of one judge. Safe for several threads; ``folder`` None keeps them in memory only."""

    def __init__(self, device: str, target: str, folder: Path | None = None) -> None:
        confined = folder is not None and (landlock.abi() > 0 or bool(sandbox.bubblewrap(gpu=device != "cpu")))
        self._files = FileCache(folder) if folder is not None and confined else None
        self._device, self._target = device, target
        self._lock = threading.Lock()
        self._memory: OrderedDict[str, Verdict] = OrderedDict()
        self._versions = ""

    def get(self, settings: JudgeSettings, problem: Problem, candidate: Candidate) -> Verdict | None:
        """The verdict of the same content, None where there is none or ``settings`` switch the cache off."""
        if not settings.cache:
            return None
        key = self._key(settings, problem, candidate)
        with self._lock:
            known = self._memory.get(key)
        if known is None and self._files is not None and not _needs_files(problem):
            with suppress(msgspec.DecodeError):
                known = msgspec.msgpack.decode(self._files.get(key) or b"", type=Verdict)
        return known

    def put(self, settings: JudgeSettings, problem: Problem, candidate: Candidate, found: Verdict) -> None:
        """Keep a verdict that would be the same another time."""
        if not settings.cache or found.status is Status.TIMEOUT:
            return
        key = self._key(settings, problem, candidate)
        recorded = _as_of(found, datetime.now(UTC).isoformat(timespec="seconds"))
        with self._lock:
            self._memory[key] = recorded
            while len(self._memory) > IN_MEMORY:
                self._memory.popitem(last=False)
        if self._files is not None and _lasting(found) and not _needs_files(problem):
            self._files.put(key, msgspec.msgpack.encode(recorded))

    def _key(self, settings: JudgeSettings, problem: Problem, candidate: Candidate) -> str:
        if not self._versions:
            name = device_name(self._device)
            self._versions = "\n".join([_versions(), self._device, name, self._target, str(device_rates.kept())])
        same = dataclasses.replace(settings, cache=True, keep_verdicts=False, side_by_side=True, backend=candidate.backend)
        chosen = dataclasses.asdict(same)
        gradients = str(GRADIENTS in problem.tags)
        parts = [gradients, self._versions, _language(candidate.backend), problem.digest, candidate.digest, repr(sorted(chosen.items()))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def opened(settings: JudgeSettings, device: str, target: str) -> Verdicts:
    """The cache that these settings ask for."""
    return Verdicts(device, target, folder() if settings.cache and settings.keep_verdicts else None)


def kept(settings: JudgeSettings, problem: Problem, candidate: Candidate) -> Verdict | None:
    """The kept verdict that a judge with these settings would give, found with no judge at hand. Raises UsageError for a wrong device."""
    if not (settings.cache and settings.keep_verdicts):
        return None
    device = resolve_device(settings.device)
    target = settings.target if device == "cpu" else capability(device)
    return opened(settings, device, target).get(settings, problem, candidate)


def folder() -> Path:
    """The folder of the verdicts that are kept."""
    return user_settings.load().cache / "verdicts"


@cache
def _versions() -> str:
    """Everything that may change a verdict without a change of its problem, candidate or settings."""
    import numpy

    root = Path(kernelllm.__file__).parent
    own = code_digest([root / room for room in _CODE])
    driver = getattr(torch._C, "_cuda_getDriverVersion", lambda: 0)() if torch.version.cuda else 0
    return "\n".join([
        kernelllm.__version__, own, sys.version, platform.machine(), platform.system(), str(torch.__version__),
        str(torch.version.cuda), str(driver), numpy.__version__,
    ])  # fmt: skip


@cache
def _language(name: str) -> str:
    """The same of a kernel language: its versions, what it sets for its workers, and its code where it is a plugin."""
    backend = open_backend(name)
    chosen = [sorted(backend.environment(mode, "").items()) for mode in sorted(backend.modes)]
    return repr((sorted(backend.versions().items()), chosen, code_digest([Path(path) for path in plugin_of(backend)])))


def _needs_files(problem: Problem) -> bool:
    """Whether a problem's source imports files beside it: what is in them is in no digest."""
    if problem.path is None:
        return False
    beside = Path(problem.path).parent
    try:
        tree = syntax_tree(problem.source)
    except (SyntaxError, ValueError):
        return True
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names}
    return any(not top or (beside / f"{top}.py").exists() or (beside / top).is_dir() for top in tops)


def _lasting(found: Verdict) -> bool:
    if found.status not in _KEPT or found.environment.get("sandbox") not in (None, "filesystem", "full"):
        return False
    # two clocks that disagreed may be a hiccup of the machine: not to be held against a candidate for ever
    return not any(f.check == "clock" and f.severity is Severity.FAIL for f in found.findings)


def _as_of(found: Verdict, when: str) -> Verdict:
    timing = None if found.timing is None else msgspec.structs.replace(found.timing, recorded=when)
    changed: Verdict = msgspec.structs.replace(found, recorded=when, timing=timing)
    return changed
