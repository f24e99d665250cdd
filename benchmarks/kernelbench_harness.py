"""What the comparisons with KernelBench share: its problems by number, candidates for them, and its own evaluation.

Not a program. KernelBench's package is imported from a folder that contains ``kernelbench/``; the clients of model providers that it
imports, and does not need here, are replaced by empty modules.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import sys
import time
import types
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from kernelllm.core.types import Attempt, Problem, from_json

_STUBS: Mapping[str, Mapping[str, Any]] = {
    "dotenv": {"load_dotenv": lambda *a, **k: None},
    "openai": {"OpenAI": object},
    "litellm": {"completion": None},
}
_STUBS_IF_MISSING: Mapping[str, Mapping[str, Any]] = {"requests": {}, "tqdm": {"tqdm": lambda items, *a, **k: items}}


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def problem(root: Path, name: str) -> Problem:
    """``"1/19"`` to KernelBench's level 1 #19, named ``level1/19_ReLU``. Raises FileNotFoundError."""
    from kernelllm.suites.file import open_problem

    level, number = name.split("/")
    files = sorted((root / f"level{level}").glob(f"{number}_*.py"))
    if not files:
        raise FileNotFoundError(f"no level {level} #{number} in {root}")
    return msgspec.structs.replace(open_problem(str(files[0])), name=f"level{level}/{files[0].stem}")


def _write(one: Problem) -> tuple[str, str, str]:
    from kernelllm.core.errors import KernelLLMError
    from kernelllm.core.writer import open_writer as writer

    try:
        return one.name, next(iter(writer("compiler", extern="avoid").write(one, 1))).source, ""
    except (KernelLLMError, StopIteration) as error:
        return one.name, "", f"{type(error).__name__}: {error}"


def compiled(problems: Iterable[Problem], known: Path | None, processes: int) -> dict[str, str]:
    """Problem name to the compiler's candidate: out of a file of benchmarks/sweep.py where it has one, otherwise written now."""
    wanted = {p.name: p for p in problems}
    found: dict[str, str] = {}
    if known is not None and known.exists():
        for line in known.read_text().splitlines():
            attempt = from_json(line, Attempt)
            if attempt.problem in wanted and attempt.verdict.correct:
                found.setdefault(attempt.problem, attempt.candidate.source)
    missing = [p for name, p in wanted.items() if name not in found]
    if missing:
        start = time.perf_counter()
        with ProcessPoolExecutor(min(processes, len(missing)), mp_context=get_context("spawn")) as pool:
            for name, source, why in pool.map(_write, missing):
                if source:
                    found[name] = source
                else:
                    say(f"not compiled: {name}: {why[:160]}")
        say(f"{len(missing)} candidates written in {time.perf_counter() - start:.0f} s")
    return found


def load(folder: Path) -> Any:
    """KernelBench's ``eval_kernel_against_ref``. Raises ImportError."""
    for name, content in _STUBS.items():
        sys.modules[name] = _module(name, content)
    for name, content in _STUBS_IF_MISSING.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = _module(name, content)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module("kernelbench.eval").eval_kernel_against_ref


def _module(name: str, content: Mapping[str, Any]) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(content)
    return made


def evaluate(function: Any, reference: str, source: str, *, trials: int = 5, runs: int = 100, timed: bool = True) -> dict[str, Any]:
    """One evaluation by KernelBench's harness in this process: ``status``, ``message``, ``ms`` (its mean), ``seconds``."""
    start = time.perf_counter()
    row: dict[str, Any] = {"status": "error", "message": "", "ms": None, "reference_ms": None}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = function(
                reference, source, measure_performance=timed, num_correct_trials=trials, num_perf_trials=runs, backend="triton", device=0
            )
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        row["message"] = f"{type(error).__name__}: {error}"[:300]
    else:
        if result is None:
            row["message"] = "no result"
        else:
            facts = {k: str(v)[:200] for k, v in result.metadata.items()}
            if result.correctness:
                row["status"] = "correct"
            elif not result.compiled:
                row["status"] = "compile_error"
            else:
                row["status"] = "runtime_error" if "runtime_error" in facts else "incorrect"
            row["message"] = "" if result.correctness else str(facts)[:300]
            row["ms"] = result.runtime if result.runtime > 0 else None
            row["reference_ms"] = result.ref_runtime if result.ref_runtime > 0 else None
    row["seconds"] = time.perf_counter() - start
    return row
