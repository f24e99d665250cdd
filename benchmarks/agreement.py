"""The same candidates through this judge (profile ``kernelbench``) and through KernelBench's own harness.

    python benchmarks/agreement.py --kernelbench PATH --kb-src PATH --out agreement.jsonl [--budget 200] [--from sweep.jsonl]

Ten problems of levels 1 and 2, each with four candidates: the compiler's, one with a single fault in a kernel, one that raises, and one
that does its work twice. What both call correct is judged --repeats times by either, in turns: the medians of the mean times are compared,
and how far each side's own times are apart is told beside them. KernelBench's harness gets problems that draw their inputs on the GPU,
as this judge does: that is most of its time, and none of what it checks or times. One JSON line a candidate; run again with the same
--out, it goes on where it stopped. The table at the end lists every candidate on which the two differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from judge_candidates import raising, slow
from kernelbench_harness import compiled, evaluate, load, problem, say
from mutants import mutants

from kernelllm.core.types import Candidate, Problem, Severity
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.pool.local import LocalPool, Slot

PROBLEMS = [f"{level}/{number}" for level in (1, 2) for number in (1, 21, 41, 61, 81)]
ON_GPU = """
_on_cpu = get_inputs


def get_inputs():
    with torch.device("cuda"):
        return _on_cpu()
"""
KINDS = ("compiler", "mutant", "raising", "slow")


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
        """As :func:`kernelbench_harness.evaluate`; ``status`` is ``died`` where the candidate took the process with it."""
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
    yield "raising", raising(source)
    yield "slow", slow(source)


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
            judge.baselines.clear()  # the other harness needs the memory
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


def run(options: argparse.Namespace) -> None:
    """Judge what the file has not yet, until the budget ends."""
    rows = read(options.out)
    done = {(r["problem"], r["kind"]) for r in rows}
    problems = [problem(options.kernelbench, name) for name in options.problems or PROBLEMS]
    left = [p for p in problems if any((p.name, kind) not in done for kind in KINDS)]
    sources = compiled(left, options.known, options.processes)
    end, theirs = time.monotonic() + options.budget, Theirs(options.kb_src) if options.kb_src else None
    settings = JudgeSettings(
        profile="kernelbench", device=options.device, baselines=(), timed_runs=100, cache=False, memory_limit_bytes=2**36
    )  # fmt: skip
    try:
        with Judge(settings) as judge, options.out.open("a") as out:
            for one in left:
                for kind, source in candidates(one, sources[one.name]) if one.name in sources else ():
                    if (one.name, kind) in done:
                        continue
                    if time.monotonic() > end:
                        say("The budget is over; the same command goes on.")
                        return
                    row = {"problem": one.name, "kind": kind, "source": source if kind == "mutant" else ""}
                    row |= both(judge, theirs, one, source, options.repeats)
                    out.write(json.dumps(row) + "\n")
                    out.flush()
    finally:
        if theirs is not None:
            theirs.close()


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--kb-src", type=Path, help="folder that contains KernelBench's package; without it only this judge runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--from", dest="known", type=Path, help="candidates from a file of benchmarks/sweep.py")
    parser.add_argument("--problems", nargs="*", default=[], metavar="LEVEL/NUMBER")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=200.0, help="seconds after which no candidate is started")
    parser.add_argument("--repeats", type=int, default=3, help="judgements by either side of what both call correct")
    parser.add_argument("--processes", type=int, default=min(12, os.cpu_count() or 1), help="processes that write candidates")
    options = parser.parse_args()
    run(options)
    say(report(read(options.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
