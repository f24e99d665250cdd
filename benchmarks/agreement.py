"""What the judge's verdicts and times agree with: KernelBench's own harness, themselves, and triton.testing.do_bench.

    python benchmarks/agreement.py harness --problems kernelbench/level1/1-20 --kb-src PATH --out agreement.jsonl [--budget 200]
    python benchmarks/agreement.py itself --problems builtin [--times 8]
    python benchmarks/agreement.py dobench --problems builtin

``harness`` takes four candidates a problem: the compiler's, one with a single fault in a kernel, one that raises, and one that does its
work twice. What both call correct is judged --repeats times by either, in turns. The medians of the mean times are compared, and how far
each side's own times are apart is told beside them. KernelBench's harness gets problems that draw their inputs on the GPU, as this judge
does. One JSON line a candidate; run again with the same --out, it goes on where it stopped. The table at the end lists every candidate on
which the two differ. ``itself`` judges the compiler's candidates several times. ``dobench`` times them in this process as well. Times
need a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import random
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from mutants import mutants

from kernelllm.core.errors import KernelLLMError
from kernelllm.core.types import Candidate, Problem, Severity
from kernelllm.core.writer import open_writer
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.pool.local import LocalPool, Slot
from kernelllm.suites import open_suite

_STUBS: Mapping[str, Mapping[str, Any]] = {
    "dotenv": {"load_dotenv": lambda *a, **k: None},
    "openai": {"OpenAI": object},
    "litellm": {"completion": None},
}
_STUBS_IF_MISSING: Mapping[str, Mapping[str, Any]] = {"requests": {}, "tqdm": {"tqdm": lambda items, *a, **k: items}}


SLOW = '''


_Honest = ModelNew


class ModelNew(_Honest):
    def forward(self, *args):
        super().forward(*args)
        return super().forward(*args)
'''

RAISING = '''


_Honest = ModelNew


class ModelNew(_Honest):
    def forward(self, *args):
        super().forward(*args)
        raise ValueError("this candidate fails on purpose")
'''


def with_tail(source: str, tail: str) -> str:
    """The candidate with another ModelNew around its own."""
    # a class that names itself in super() would find the new class under its name
    return source.replace("super(ModelNew, self)", "super()").rstrip() + "\n" + tail


ON_GPU = """
_on_cpu = get_inputs


def get_inputs():
    with torch.device("cuda"):
        return _on_cpu()
"""
KINDS = ("compiler", "mutant", "raising", "slow")


def chosen(options: argparse.Namespace) -> Iterator[Problem]:
    """The problems of all suites that were named."""
    for suite in options.problems:
        yield from open_suite(suite).problems()


def compiled(problem: Problem) -> str:
    """The compiler's first candidate; empty where it writes none."""
    try:
        return next((c.source for c in open_writer("compiler").write(problem, 1)), "")
    except KernelLLMError as error:
        print(f"not compiled: {problem.name}: {error}", flush=True)
        return ""


def settings(device: str, **changes: Any) -> JudgeSettings:
    return JudgeSettings(profile="kernelbench", device=device, cache=False, memory_limit_bytes=2**36, **changes)


# -- beside KernelBench's harness ----------------------------------------------------------------

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


class Harness:
    """Builds KernelBench's evaluation in a process of its own: a broken candidate breaks that process's CUDA context."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, slot: Slot) -> Any:
        return load(Path(self.folder))


def work(function: Any, item: tuple[str, str]) -> dict[str, Any]:
    """The pool's function: one evaluation, and whether the process's CUDA context survived it."""
    row = evaluate(function, *item)
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        row["poisoned"] = True
    return row


class Theirs:
    """KernelBench's harness in a process that is replaced when a candidate broke it."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._pool: LocalPool[tuple[str, str], dict[str, Any]] | None = None

    def evaluate(self, reference: str, source: str) -> dict[str, Any]:
        """As :func:`evaluate`; ``status`` is ``died`` where the candidate took the process with it."""
        if self._pool is None:
            self._pool = LocalPool(Harness(self._folder), work, devices=["cuda:0"])
        done = self._pool.call((reference, source))
        row = done.result or {"status": "died", "message": done.error[-300:], "ms": None, "seconds": 0.0}
        if done.result is None or row.pop("poisoned", False):
            self.close()
        return row

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def candidates(one: Problem, source: str) -> Iterator[tuple[str, str]]:
    """(kind, source) of the candidates of a problem."""
    yield "compiler", source
    faults = list(mutants(source))
    if faults:
        yield "mutant", random.Random(one.name).choice(faults).source
    yield "raising", with_tail(source, RAISING)
    yield "slow", with_tail(source, SLOW)


def ours(judge: Judge, one: Problem, source: str) -> dict[str, Any]:
    """The judge's verdict as a row."""
    start = time.perf_counter()
    verdict = judge.judge(one, Candidate(source=source))
    measured = verdict.timing.candidate if verdict.timing else None
    return {
        "status": verdict.status.value,
        "message": "" if verdict.correct else verdict.message[:300],
        "findings": [f.check for f in verdict.findings if f.severity is Severity.FAIL],
        "ms": measured.mean_ms if measured else None,
        "median_ms": measured.median_ms if measured else None,
        "seconds": time.perf_counter() - start,
    }


def both(judge: Judge, theirs: Theirs | None, one: Problem, source: str, repeats: int) -> dict[str, Any]:
    """Both verdicts; where both are timed, that many times, each with ``all_ms`` and its median as ``ms``."""
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
    for _ in range(repeats):
        found["ours"].append(ours(judge, one, source))
        if judge.device != "cpu":
            judge.context.baselines.clear()  # the other harness needs the memory
        if theirs is None:
            break
        found["theirs"].append(theirs.evaluate(one.source + ON_GPU, source))
        if not all(rows[-1]["ms"] for rows in found.values()):
            break
    return {side: middle(rows) for side, rows in found.items()}


def middle(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first row, with the median of all times."""
    if not rows:
        return None
    times = [row["ms"] for row in rows if row["ms"]]
    return rows[0] | ({"ms": statistics.median(times), "all_ms": times} if times else {})


def spread(row: dict[str, Any]) -> float:
    """Largest over smallest of the times of one candidate, less one."""
    return max(row["all_ms"]) / min(row["all_ms"]) - 1


def beside_harness(options: argparse.Namespace) -> int:
    """Judge what the file has not yet, until the budget ends."""
    done = {(r["problem"], r["kind"]) for r in read(options.out)}
    end, theirs = time.monotonic() + options.budget, Theirs(options.kb_src) if options.kb_src else None
    try:
        with Judge(settings(options.device, baselines=(), timed_runs=100)) as judge, options.out.open("a") as out:
            for one in chosen(options):
                if all((one.name, kind) in done for kind in KINDS) or not (source := compiled(one)):
                    continue
                for kind, text in candidates(one, source):
                    if (one.name, kind) in done:
                        continue
                    if time.monotonic() > end:
                        print("The budget is over; the same command goes on.")
                        break
                    row = {"problem": one.name, "kind": kind, "source": text if kind == "mutant" else ""}
                    row |= both(judge, theirs, one, text, options.repeats)
                    out.write(json.dumps(row) + "\n")
                    out.flush()
    finally:
        if theirs is not None:
            theirs.close()
    print(report(read(options.out)))
    return 0


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(rows: list[dict[str, Any]]) -> str:
    """The table."""
    lines, differ, apart, by_median, spreads = [], [], [], [], []
    for row in rows:
        mine, other = row["ours"], row["theirs"] or {"status": "-", "ms": None, "message": ""}
        text = f"{row['problem']:48} {row['kind']:9} {mine['status']:14} {other['status']:14}"
        if mine["ms"] and other["ms"]:
            apart.append(mine["ms"] / other["ms"] - 1)
            by_median.append(mine["median_ms"] / other["ms"] - 1)
            spreads.append((spread(mine), spread(other)))
            text += f" {mine['ms']:9.4f} {other['ms']:9.4f} ms {100 * apart[-1]:+6.2f} %"
            text += " (own spread {:5.2f} %, {:5.2f} %)".format(*(100 * s for s in spreads[-1]))
        lines.append(text)
        if (mine["status"] == "correct") != (other["status"] == "correct") and row["theirs"]:
            differ.append(f"  {row['problem']} {row['kind']}: ours {mine['status']} {mine['findings']} {mine['message'][:200]!r}; "
                          f"theirs {other['status']} {other['message'][:200]!r}")  # fmt: skip
    lines.append(f"{len(rows)} candidates, {len(rows) - len(differ)} with the same verdict (correct or not)")
    if apart:
        worst, middle = max(map(abs, apart)), statistics.median(map(abs, apart))
        lines.append(f"{len(apart)} times in both: means differ by {100 * middle:.2f} % (median), {100 * worst:.2f} % (worst), "
                     f"{sum(abs(a) <= 0.03 for a in apart)} within 3 %; our median against their mean: "
                     f"{100 * statistics.median(map(abs, by_median)):.2f} % (median)")  # fmt: skip
        own = zip(("ours", "theirs"), zip(*spreads, strict=True), strict=True)
        told = "; ".join(f"{side} {100 * statistics.median(s):.2f} %, {100 * max(s):.2f} %" for side, s in own)
        lines.append(f"largest over smallest time of one candidate, median and worst: {told}")
        seconds = [sum(r[side]["seconds"] for r in rows if r["theirs"]) for side in ("ours", "theirs")]
        lines.append(f"seconds in all: ours {seconds[0]:.0f}, theirs {seconds[1]:.0f}")
    return "\n".join([*lines, "Differences:" if differ else "No differences.", *differ])


# -- beside itself, and beside do_bench ----------------------------------------------------------


def beside_itself(options: argparse.Namespace) -> int:
    """The same candidate several times, each in a worker of its own: how far its verdicts, times and speed-ups are apart."""
    spreads: dict[str, list[float]] = {"time": [], "speed-up": []}
    with Judge(settings(options.device, baselines=("eager",))) as judge:
        for one in chosen(options):
            if not (source := compiled(one)):
                continue
            verdicts = [judge.judge(one, Candidate(source=source)) for _ in range(options.times)]
            timings = [v.timing for v in verdicts if v.timing]
            found = {"time": [t.candidate.median_ms for t in timings], "speed-up": [t.speedups["eager"].value for t in timings]}
            apart = {name: max(values) / min(values) - 1 for name, values in found.items() if values}
            for name, value in apart.items():
                spreads[name].append(value)
            told = ", ".join(f"{name} {100 * value:.2f} %" for name, value in apart.items()) or "not timed"
            print(f"{one.name:48} {'/'.join(sorted({v.status.value for v in verdicts}))}  {told}", flush=True)
    for name, values in spreads.items():
        if values:
            middle, most = 100 * statistics.median(values), 100 * max(values)
            print(f"{name}: largest over smallest of one candidate {middle:.2f} % (median of {len(values)} problems), {most:.2f} % (worst)")
    return 0


def beside_dobench(options: argparse.Namespace) -> int:
    """The judge's median of a candidate, again in another worker, and triton.testing.do_bench in this process."""
    if not torch.cuda.is_available():
        print("There is no GPU here.", file=sys.stderr)
        return 2
    from triton.testing import do_bench

    with Judge(settings("cuda", baselines=())) as judge, tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate(chosen(options)):
            source = compiled(one)
            verdicts = [judge.judge(one, Candidate(source=source)) for _ in range(2)] if source else []
            if not verdicts or any(v.timing is None for v in verdicts):
                continue
            first, again = (v.timing.candidate.median_ms for v in verdicts if v.timing)
            scope = imported(one.source + "\n\n" + source, Path(folder) / f"candidate_{number}.py")
            with torch.device("cuda"):
                model, inputs = scope.ModelNew(*scope.get_init_inputs()).cuda(), scope.get_inputs()
            with torch.no_grad():
                theirs = do_bench(lambda m=model, i=inputs: m(*i), warmup=50, rep=200, return_mode="median")
            print(f"{one.name:48} {first:8.4f} {again:8.4f} {theirs:8.4f} ms  {100 * (first / theirs - 1):+.2f} %", flush=True)
    return 0


def imported(source: str, path: Path) -> Any:
    """A source as a module of this process (Triton reads kernels from their file)."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--problems", nargs="+", required=True, metavar="SUITE", help="as kernelllm bench takes them")
    shared.add_argument("--device", default="auto")
    parts = parser.add_subparsers(required=True, metavar="PART")
    harness = parts.add_parser("harness", parents=[shared], help="beside KernelBench's own harness")
    harness.add_argument("--kb-src", type=Path, help="folder that contains KernelBench's package; without it only this judge runs")
    harness.add_argument("--out", type=Path, required=True)
    harness.add_argument("--budget", type=float, default=200.0, help="seconds after which no candidate is started")
    harness.add_argument("--repeats", type=int, default=3, help="judgements by either side of what both call correct")
    harness.set_defaults(part=beside_harness)
    itself = parts.add_parser("itself", parents=[shared], help="the same candidates again")
    itself.add_argument("--times", type=int, default=4)
    itself.set_defaults(part=beside_itself)
    dobench = parts.add_parser("dobench", parents=[shared], help="beside triton.testing.do_bench")
    dobench.set_defaults(part=beside_dobench)
    options = parser.parse_args()
    return int(options.part(options))


if __name__ == "__main__":
    sys.exit(main())
