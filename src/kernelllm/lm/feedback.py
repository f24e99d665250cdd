"""The feedback that a model gets on its last version: the verdict with its evidence, trimmed to what helps."""

from __future__ import annotations

import re

from kernelllm.core import verdict_words
from kernelllm.core.gpus import Gpu
from kernelllm.core.types import Attempt, KernelUse, Severity, Status, Timing, Verdict

MAX_CHARS = 2400
"""Longest error text that goes into a prompt."""
MAX_ANSWER = 4000
"""Most characters of an answer without code that go into one."""

_SAYS = {
    Status.INCORRECT: "The results differ from the reference.",
    Status.COMPILE_ERROR: "A kernel does not compile.",
    Status.RUNTIME_ERROR: "It raised an error when it ran.",
    Status.TIMEOUT: "It ran longer than the time limit.",
    Status.OUT_OF_MEMORY: "It ran out of memory.",
    Status.CHEATING: "It does not do the work that it was asked to do.",
    Status.INVALID: "No usable code was found in the answer.",
    Status.PROBLEM_ERROR: "The reference could not be run.",
}


def of(verdict: Verdict, source: str, gpu: Gpu | None = None) -> str:
    """A verdict as text for the model that wrote ``source``."""
    parts = [_success(verdict, gpu)] if verdict.correct else [_failure(verdict, source)]
    findings = [f for f in verdict.findings if f.severity is not Severity.INFO]
    for finding in findings[:6]:
        where = f" (line {finding.line}: `{_line(source, finding.line)}`)" if finding.line else ""
        parts.append(f"- {finding.check}: {finding.message}{where}")
    return "\n".join(p for p in parts if p)


def version(attempt: Attempt) -> str:
    """A version as the next prompt shows it: its code, or how the answer begins where that has none."""
    return attempt.candidate.source.strip() or attempt.answer.strip()[:MAX_ANSWER]


def headline(verdict: Verdict) -> str:
    """One line: the status, or the time and the speed-ups."""
    if verdict.timing is None:
        return str(verdict.status)
    ratios = [f"{ratio.value:.2f}x over {name}" for name, ratio in verdict.timing.speedups.items()]
    return ", ".join([f"{verdict.timing.candidate.median_ms:.4g} ms", *ratios])


def one_line(verdict: Verdict) -> str:
    """A verdict in one line: what repair pairs hold, and what a model is told that was trained with them."""
    if verdict.correct:
        time = f", {verdict.timing.candidate.median_ms:.4g} ms" if verdict.timing else ""
        return f"correct{time}. Make it faster."
    return f"{verdict.status}: {' '.join(trim(verdict.message, 600).split())}"


def _failure(verdict: Verdict, source: str) -> str:
    lines = [f"{_SAYS[verdict.status]} Status: {verdict.status}.", trim(verdict.message)]
    number = _own_line(verdict.message)
    if number and _line(source, number):
        lines.append(f"Line {number} of your code: `{_line(source, number)}`")
    if verdict.status is Status.INCORRECT and (error := verdict_words.error(verdict)):
        lines.append(f"Error: {error}.")
    for trial in [t for t in verdict.trials if not t.ok][:3]:
        sizes = next((" ".join(s.inputs) for s in verdict.shapes if s.label == trial.sizes), trial.sizes)
        if trial.message and trial.message not in verdict.message:
            lines.append(f"- inputs {sizes} ({trial.kind}): {trim(trial.message, 600)}")
        else:
            lines.append(f"- fails with inputs {sizes} ({trial.kind})")
    passed = sum(t.ok for t in verdict.trials)
    if passed and verdict.status is Status.INCORRECT:
        lines.append(f"{passed} of {len(verdict.trials)} comparisons agree.")
    lines.extend(f"- kernel {k.name}: {trim(k.error, 1200)}" for k in verdict.kernels if k.error)
    return "\n".join(lines)


def _success(verdict: Verdict, gpu: Gpu | None) -> str:
    lines = [f"All {len(verdict.trials)} comparisons agree." if verdict.trials else ""]
    if verdict.timing is not None:
        lines.extend(_times(verdict.timing))
    floor = verdict.floor
    if floor is not None and not floor.below_any_launch:
        percent = verdict.timing.floor_percent if verdict.timing else None
        share = f"; you are at {percent:.0f} % of it" if percent is not None else ""
        needs = f"{floor.ms:.4g} ms ({floor.bound} bound, {floor.bytes / 1e6:.4g} MB moved)"
        lines.append(f"The least time this device needs is {needs}{share}.")
    if verdict.coverage is not None and verdict.coverage < 1:
        share = verdict_words.percent(verdict.coverage)
        lines.append(f"{share} of the work runs in your kernels; the rest is still PyTorch's.")
    lines.extend(_kernel(k, gpu) for k in verdict.kernels[:8])
    return "\n".join(line for line in lines if line)


def _times(timing: Timing) -> list[str]:
    lines = [f"Time on {timing.device}: {timing.candidate.median_ms:.4g} ms (median of {timing.candidate.runs} runs)."]
    for name, measured in timing.baselines.items():
        ratio = timing.speedups.get(name)
        factor = f": a speed-up of {ratio.value:.2f}x" + (" (a tie within the noise)" if ratio.tie else "") if ratio else ""
        lines.append(f"The reference ({name}) takes {measured.median_ms:.4g} ms{factor}.")
    return lines


def _kernel(kernel: KernelUse, gpu: Gpu | None) -> str:
    parts = [f"launched {kernel.launches} times" if kernel.launches != 1 else "launched once"]
    if kernel.registers is not None:
        parts.append(f"{kernel.registers} registers a thread")
    if kernel.shared_bytes is not None:
        most = f" of {gpu.shared_bytes}" if gpu else ""
        parts.append(f"{kernel.shared_bytes}{most} bytes of shared memory")
    if kernel.spills:
        parts.append(f"{kernel.spills} spilled registers: too much state for one thread")
    if kernel.num_warps is not None:
        parts.append(f"{kernel.num_warps} warps")
    return f"- kernel {kernel.name}: " + ", ".join(parts) + "."


def trim(text: str, limit: int = MAX_CHARS) -> str:
    """An error text cut to ``limit`` characters: library frames dropped, the first lines and the last ones kept."""
    kept: list[str] = []
    lines = text.strip().split("\n")
    skip = False
    for line in lines:
        frame = re.match(r'\s*File "(?P<file>[^"]+)"', line)
        if frame:
            skip = "site-packages" in frame["file"] or frame["file"].startswith("<frozen")
        elif skip and not line.startswith((" ", "\t")):
            skip = False
        if not skip:
            kept.append(line)
    text = "\n".join(kept)
    if len(text) <= limit:
        return text
    head = limit // 3
    return text[:head].rstrip() + "\n[...]\n" + text[-(limit - head) :].lstrip()


def _own_line(message: str) -> int:
    """The line of the candidate that an error names, 0 when it names none."""
    found = re.findall(r"(?:line |at |candidate\.py:|\(line )(\d+)", message)
    return int(found[-1]) if found else 0


def _line(source: str, number: int) -> str:
    lines = source.split("\n")
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
