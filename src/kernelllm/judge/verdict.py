"""From what was seen to one verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelllm.core.types import Finding, KernelUse, Severity, Status
from kernelllm.judge import protocol as p
from kernelllm.judge.candidate import CandidateFailure
from kernelllm.judge.protocol import LAUNCH

_HEAVY_SHARE = 0.999


def decide(failure: CandidateFailure | None, findings: Sequence[Finding], compile_failure: CandidateFailure | None) -> tuple[Status, str]:
    """Status and message.

    What the runs showed comes first; a wrong result of a candidate that cheats is still called cheating, since that is what to mend.
    """
    fatal = [f for f in findings if f.severity is Severity.FAIL and f.check != "precision"]
    if fatal and (failure is None or failure.status in (Status.INCORRECT, Status.CHEATING)):
        first = fatal[0]
        place = f" (line {first.line})" if first.line else ""
        return Status.CHEATING, f"{first.message}{place}"
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
            if kernel.error.startswith(LAUNCH):
                return CandidateFailure(
                    Status.RUNTIME_ERROR, f"Kernel {kernel.name!r} cannot be launched: {kernel.error.removeprefix(LAUNCH)}"
                )
            return CandidateFailure(
                Status.COMPILE_ERROR, f"Kernel {kernel.name!r} does not compile for {target}{place}: {kernel.error}", line
            )
    return None


def merge_kernels(
    ran: Sequence[p.CompiledKernel], compiled: Sequence[p.CompiledKernel], target: str
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


def coverage(candidate: Mapping[str, float], reference: Mapping[str, float], launches: int) -> float | None:
    """Share of the reference's heavy FLOPs that the candidate did not leave to ATen; None when the reference has none."""
    total = sum(reference.values())
    if total <= 0:
        return None
    left = min(sum(v for v in candidate.values() if v > 0), total)
    return round(max(0.0, 1.0 - left / total), 4) if launches else 0.0
