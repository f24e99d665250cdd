"""Turns a candidate's failure (its worker's reply, or how the worker ended) into a status and a message."""

from __future__ import annotations

import signal

from kernelllm.core.types import Status
from kernelllm.judge.isolation.limits import Ended
from kernelllm.judge.transport import protocol as p

_REFUSALS = ("ValueError", "TypeError", "NotImplementedError", "AssertionError")
"""What code raises that was not written for the arguments it is given."""
_SIGNALS = {
    signal.SIGSEGV: "segmentation fault", signal.SIGBUS: "bus error", signal.SIGABRT: "abort", signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction", signal.SIGKILL: "killed",
}  # fmt: skip


class CandidateFailure(Exception):
    """The candidate did not do what was asked. ``line``: of its source, 0 if none. ``check``: the check that saw it, empty if none did."""

    def __init__(self, status: Status, message: str, line: int = 0, trace: str = "", *, check: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.line, self.trace, self.check = status, message, line, trace, check
        self.refused = False
        """The candidate itself raised that it was not written for these arguments."""

    def kept(self) -> CandidateFailure:
        """This failure without the frames it came through, which hold tensors of the trial and make a cycle with what keeps it."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


def failure(reply: p.Failed) -> CandidateFailure:
    """A failed command as status and message. Everything in the reply was written by the worker: text only."""
    place = f" (line {reply.line})" if reply.line > 0 else ""
    text = reply.message.strip()[:3000]
    match reply.kind:
        case "invalid":
            fix = "" if "ModelNew" in text else " Send Python source that defines ModelNew."
            return CandidateFailure(
                Status.INVALID, f"{reply.error}: {text}{place}{fix}" if reply.error != "NotACandidate" else text + fix, reply.line
            )
        case "compile":
            return CandidateFailure(Status.COMPILE_ERROR, f"A kernel does not compile{place}: {text}", reply.line, reply.trace)
        case "memory":
            return CandidateFailure(
                Status.OUT_OF_MEMORY,
                f"The candidate ran out of memory{place}: {text}. Allocate less, or reuse buffers.",
                reply.line,
                reply.trace,
            )
        case "not_plain":
            return CandidateFailure(Status.CHEATING, text, reply.line, reply.trace, check="lazy_tensors")
        case "illegal_access":
            shown = text if text.startswith(("illegal memory access", "a race:", "a false hint:")) else f"illegal memory access: {text}"
            return CandidateFailure(Status.RUNTIME_ERROR, f"{shown}{place}", reply.line, reply.trace)
        case "asserted":
            cause = "torch was given an index that is out of bounds, or a kernel's own tl.device_assert does not hold"
            return CandidateFailure(Status.RUNTIME_ERROR, f"An assertion failed on the GPU{place}: {cause}.", reply.line, reply.trace)
        case "not_here":
            told = f"This cannot be run here, which is no error of the candidate: {text}{place}"
            return CandidateFailure(Status.RUNTIME_ERROR, told, reply.line)
        case _:
            trace = f"\n{reply.trace[:2000]}" if reply.trace else ""
            message = f"The candidate raised {reply.error[:100]}: {text}{place}{trace}"
            found = CandidateFailure(Status.RUNTIME_ERROR, message, reply.line, reply.trace)
            found.refused = reply.error in _REFUSALS
            return found


def death(ended: Ended) -> CandidateFailure:
    """Why a worker that was doing a command is gone."""
    said = ended.printed.decode(errors="replace").strip()[-600:]
    told = f" It had printed: {said}" if said else ""
    if ended.reason == "memory":
        return CandidateFailure(Status.OUT_OF_MEMORY, "The candidate used more memory than allowed and was stopped. Allocate less.")
    if ended.reason == "processes":
        return CandidateFailure(
            Status.RUNTIME_ERROR, "The candidate started more processes than allowed and was stopped. Do not start processes."
        )
    if ended.reason == "disk":
        return CandidateFailure(Status.RUNTIME_ERROR, "The candidate filled its folder and was stopped. Do not write files.")
    if ended.reason.startswith("sandbox"):
        return CandidateFailure(Status.RUNTIME_ERROR, f"The worker could not be confined: {ended.reason.removeprefix('sandbox: ')}")
    if ended.signal == signal.SIGXCPU:
        return CandidateFailure(Status.TIMEOUT, "The candidate used more processor time than allowed.")
    if ended.signal == signal.SIGXFSZ:
        return CandidateFailure(Status.RUNTIME_ERROR, "The candidate wrote a larger file than allowed (SIGXFSZ). Do not write files.")
    if ended.signal:
        try:
            name = signal.Signals(ended.signal).name
        except ValueError:
            name = f"signal {ended.signal}"
        what = _SIGNALS.get(ended.signal, "signal")  # type: ignore[call-overload]
        return CandidateFailure(Status.RUNTIME_ERROR, f"The candidate's process died of {name} ({what}).{told}")
    if ended.code is not None:
        text = f"The candidate ended its process (exit code {ended.code}) instead of returning.{told} Remove calls that exit."
        return CandidateFailure(Status.RUNTIME_ERROR, text)
    return CandidateFailure(Status.RUNTIME_ERROR, f"The candidate's process disappeared ({ended.reason or 'no reason given'}).{told}")
