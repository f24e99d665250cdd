"""Judging from a pool of judges on one GPU, and a verdict in one line. Not a program: benchmarks/judge_gpu.py uses it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kernelbench_harness import say

from kernelllm.core.types import Candidate, Problem, Severity, Verdict
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.pool.local import LocalPool, Slot

Item = tuple[Problem, str]


def told(verdict: Verdict) -> str:
    ratios = verdict.timing.speedups if verdict.timing else {}
    speeds = "".join(f" {n} {r.value:.2f}x{' (tie)' if r.tie else ''}" for n, r in ratios.items())
    ms = f" {verdict.timing.candidate.median_ms:.3f} ms" if verdict.timing else ""
    findings = [f.check for f in verdict.findings if f.severity is not Severity.INFO]
    return f"{verdict.status.value}{ms}{speeds}{f' {findings}' if findings else ''}{'' if verdict.correct else ' ' + verdict.message[:120]}"


def from_pool(items: Sequence[Item], settings: JudgeSettings, *, slots: int) -> float:
    """Seconds that ``slots`` judges on one GPU take for all items but the first, which each of them judges before to be warm."""
    chosen = items[1:]
    with LocalPool(partial(_judge, settings), _work, devices=("cuda:0",), per_device=slots) as pool:
        for _ in pool.run([items[0]] * slots):
            pass
        start = time.perf_counter()
        done = list(pool.run(chosen))
        seconds = time.perf_counter() - start
    wrong = [d for d in done if d.result != "correct"]
    for d in wrong:
        say(f"  {d.item[0].name}: {d.result or d.error[-300:]}")
    head = f"  {len(done)} first verdicts from a pool of {slots}, {'+'.join(settings.baselines)}"
    say(f"{head}: {seconds:.1f} s, {3600 * len(done) / seconds:.0f} a GPU-hour, {len(done) - len(wrong)} correct")
    return seconds


def _judge(settings: JudgeSettings, slot: Slot) -> Judge:
    return Judge(replace(settings, side_by_side=slot.alone))


def _work(judge: Judge, item: Item) -> str:
    verdict = judge.judge(item[0], Candidate(source=item[1]))
    return "correct" if verdict.correct else f"{verdict.status.value}: {verdict.message[:200]}"
