"""Decides a candidate's status and message, and sums up what its processes reported of kernels and limits."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from kernelllm.backends.base import LAUNCH, CompiledKernel
from kernelllm.core.types import Finding, KernelUse, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.isolation.limits import Ended
from kernelllm.judge.source_refusal import accusation
from kernelllm.judge.transport import protocol as p

N = TypeVar("N", int, float)
_DISK_IS_FULL = (f"[Errno {errno.ENOSPC}]", f"[Errno {errno.EDQUOT}]")


def decide(
    failure: CandidateFailure | None, findings: Sequence[Finding], compile_failure: CandidateFailure | None, *, passed: bool
) -> tuple[Status, str]:
    """Status and message. ``passed``: all trials were, and what failed came after them.

    What the runs showed comes first; a wrong result of a candidate that cheats is still called cheating, since that is what to mend.
    """
    cheats = accusation(findings)
    if cheats and (passed or failure is None or failure.status in (Status.INCORRECT, Status.CHEATING)):
        return Status.CHEATING, cheats
    if failure is not None and not (compile_failure is not None and failure.status is Status.RUNTIME_ERROR):
        return failure.status, failure.message
    if compile_failure is not None:
        return compile_failure.status, compile_failure.message
    return Status.CORRECT, ""


def compile_failure(kernels: Sequence[KernelUse], lines: Mapping[str, int], target: str) -> CandidateFailure | None:
    """The first kernel that the real compiler rejects, as a failure."""
    for kernel in kernels:
        if kernel.error:
            line = lines.get(kernel.name, 0)
            place = f" (line {line})" if line else ""
            if any(code in kernel.error for code in _DISK_IS_FULL):
                text = f"There is no room on the disk to compile kernel {kernel.name!r}. Free some, or set TMPDIR to another folder."
                return CandidateFailure(Status.OUT_OF_MEMORY, text)
            if kernel.error.startswith(LAUNCH):
                return CandidateFailure(
                    Status.RUNTIME_ERROR, f"Kernel {kernel.name!r} cannot be launched: {kernel.error.removeprefix(LAUNCH)}"
                )
            return CandidateFailure(
                Status.COMPILE_ERROR, f"Kernel {kernel.name!r} does not compile for {target}{place}: {kernel.error}", line
            )
    return None


def merge_kernels(
    ran: Sequence[CompiledKernel], compiled: Sequence[CompiledKernel], target: str
) -> tuple[tuple[KernelUse, ...], dict[str, int]]:
    """Kernels that ran, with what the compile says of them; and the lines of compile errors."""
    by_name = {k.name: k for k in compiled}
    uses, lines = [], {}
    for name in dict.fromkeys([*(k.name for k in ran), *by_name]):
        run = next((k for k in ran if k.name == name), None)
        known = by_name.get(name, run)
        assert known is not None
        uses.append(
            KernelUse(
                name=name[:200], launches=run.launches if run else 0, registers=known.registers, shared_bytes=known.shared_bytes,
                spills=known.spills, num_warps=known.num_warps, target=target if name in by_name else "", error=known.error[:4000],
            )
        )  # fmt: skip
        if known.error:
            lines[name] = known.line
    return tuple(uses), lines


def merge_reports(processes: Iterable[CandidateProcess]) -> p.Reported | None:
    """What the workers of one candidate noted, as if it had been one worker; those that are gone say nothing."""
    merged: p.Reported | None = None
    for process in processes:
        try:
            report = process.report()
        except CandidateFailure:
            continue
        merged = report if merged is None else _both(merged, report)
    return merged


def _both(a: p.Reported, b: p.Reported) -> p.Reported:
    kernels = {k.name: k for k in a.kernels}
    for k in b.kernels:
        known = kernels.get(k.name)
        if known is not None:
            k = msgspec.structs.replace(k, launches=k.launches + known.launches, error=known.error or k.error)
        kernels[k.name] = k
    return msgspec.structs.replace(
        a, kernels=tuple(kernels.values()), bodies={**a.bodies, **b.bodies}, ops=_sum(a.ops, b.ops), flops=_sum(a.flops, b.flops),
        events=(*a.events, *b.events), threads=max(a.threads, b.threads), streams=max(a.streams, b.streams),
        tampered=tuple(dict.fromkeys((*a.tampered, *b.tampered))), peak_bytes=max(a.peak_bytes, b.peak_bytes),
        kernel_flops=_sum(a.kernel_flops, b.kernel_flops),
    )  # fmt: skip


def _sum(a: Mapping[str, N], b: Mapping[str, N]) -> dict[str, N]:
    return dict(Counter(a) + Counter(b))


def merge_ended(ended: Sequence[Ended]) -> Ended:
    """How the workers of one candidate ended: the first's fate, what all of them printed, the most processes and memory of any."""
    return msgspec.structs.replace(
        ended[0], printed=b"".join(e.printed for e in ended), printed_bytes=sum(e.printed_bytes for e in ended),
        processes=max(e.processes for e in ended), peak_bytes=max(e.peak_bytes for e in ended),
    )  # fmt: skip
