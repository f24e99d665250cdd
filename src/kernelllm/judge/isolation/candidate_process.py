"""The judge's side of one candidate: a worker, its arenas and its time, with every way to fail turned into a :class:`CandidateFailure`."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import torch

from kernelllm.core.types import Status
from kernelllm.judge.isolation.forkserver import ForkServer
from kernelllm.judge.isolation.limits import Ended, Limits
from kernelllm.judge.timing.device_lease import DeviceLease
from kernelllm.judge.transport import arenas, values
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport.arenas import Arena

_FIRST_OUTPUT = 2**16
MOST_OUTPUT = 2**38
TOTAL = 8
_SIGNALS = {
    signal.SIGSEGV: "segmentation fault", signal.SIGBUS: "bus error", signal.SIGABRT: "abort", signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction", signal.SIGKILL: "killed",
}  # fmt: skip


R = TypeVar("R")


class CandidateFailure(Exception):
    """The candidate did not do what was asked. ``line``: of its source, 0 if none."""

    def __init__(self, status: Status, message: str, line: int = 0, trace: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.line, self.trace = status, message, line, trace

    def kept(self) -> CandidateFailure:
        """This failure without the frames it came through, which hold tensors of the trial and make a cycle with what keeps it."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


@dataclass(frozen=True)
class CandidateRun:
    """One run as the judge saw it."""

    value: Any
    mutated: tuple[int, ...]
    types: tuple[str, ...]
    launches: int
    busy_ms: float
    wall_ms: float
    ops: dict[str, int]
    flops: dict[str, float]
    """Of this run, where it was watched apart."""


class CandidateProcess:
    """A worker that holds one candidate. ``seconds``: what one command may take; all together may take :data:`TOTAL` times that."""

    def __init__(self, server: ForkServer, source: str, limits: Limits, device: str, seconds: float, sandbox: str | None) -> None:
        self.device, self.left, self.seconds = device, seconds * TOTAL, seconds
        self._worker = server.spawn(source, limits, sandbox)
        self.lease = DeviceLease()
        """To the device; what it waits there counts for no limit."""
        self._arenas: dict[str, Arena] = {}
        self._broken = False
        self.ended: Ended | None = None

    def __enter__(self) -> CandidateProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def cut(self) -> None:
        """Have the worker killed, from any thread; a command that is under way then fails."""
        self._worker.cut()

    def close(self) -> Ended:
        """Kill the worker with all it started; free what it saw."""
        if self.ended is None:
            self.ended = self._worker.close()
            for arena in self._arenas.values():
                arena.close()
            self._arenas.clear()
        return self.ended

    def _arena(self, role: str, size: int) -> Arena:
        """The arena of a role, replaced by a larger one where ``size`` does not fit."""
        old = self._arenas.get(role)
        if old is not None and old.size >= size:
            return old
        if old is not None:
            old.close()
        self._arenas[role] = arenas.create(max(size, _FIRST_OUTPUT), self.device)
        return self._arenas[role]

    def _pack(self, value: Any, role: str, *, guarded: bool = True) -> tuple[Any, tuple[p.TensorSpec, ...], Arena]:
        found: list[torch.Tensor] = []
        try:
            tree = values.encode(value, found)
        except values.ValueProblem as error:
            raise CandidateFailure(
                Status.PROBLEM_ERROR, f"The problem uses arguments that cannot be handed to a candidate: {error}"
            ) from error
        specs, size = arenas.layout(found, start=arenas.GUARD)
        arena = self._arena(role, size)
        arenas.put(arena, specs, found)
        if guarded:
            arenas.guard(arena, specs)
        return tree, specs, arena

    def ask(self, kind: type[Any], arenas: tuple[Arena, ...], **fields: Any) -> Any:
        """One command; its reply if it succeeded. Raises CandidateFailure."""
        _synchronize(self.device)  # what was copied into arenas is there before the worker looks
        start = time.monotonic()
        try:
            with self.lease.command():
                deadline = start + max(min(self.left, self.seconds), 0.01)
                reply = self._worker.ask(kind, deadline, arenas=arenas, on_request=self.lease.request, **fields)
        except p.WorkerTimeout as error:
            raise CandidateFailure(Status.TIMEOUT, self._timeout_text()) from error
        except p.ProtocolError as error:
            raise CandidateFailure(Status.RUNTIME_ERROR, f"{error} Candidates must not touch the worker's files and sockets.") from error
        except p.WorkerGone as error:
            raise death(self._worker.fate()) from error
        finally:
            self.left -= time.monotonic() - start - self.lease.waited
        if isinstance(reply, p.Failed):
            raise failure(reply)
        return reply

    def _timeout_text(self) -> str:
        fix = "Look for a loop that never ends, or raise the limit with --time-limit."
        return f"The candidate did not finish within {self.seconds:g} s. {fix}"

    def construct(
        self, init: tuple[list[Any], dict[str, Any]], seed: int, class_name: str = "ModelNew", *, there: bool = False, fake: bool = False
    ) -> p.Constructed:
        """Build the model; ``there``: on the GPU where that works."""
        tree, specs, arena = self._pack([list(init[0]), dict(init[1])], "arguments")  # the model may keep them
        reply = self.ask(
            p.Construct,
            (arena,),
            args=p.Values(tree, specs, self._worker.ref(arena, (arena,))),
            seed=seed,
            class_name=class_name,
            there=there,
            fake=fake,
        )
        return _expect(reply, p.Constructed)

    def load(self, state: Mapping[str, torch.Tensor], training: bool) -> None:
        """Copy values into the model's parameters and buffers, and set train or eval mode."""
        tree, specs, arena = self._pack(list(state.values()), "state", guarded=False)  # the model copies them
        # one index each, even where two names share a tensor
        bag = p.Values(tree, specs, self._worker.ref(arena, (arena,)))
        _expect(self.ask(p.LoadState, (arena,), names=tuple(state), values=bag, training=training), p.Done)

    def run(
        self, inputs: list[Any], seed: int, *, suppress: bool = False, observe: bool = False, apart: bool = False, bare: bool = False
    ) -> CandidateRun:
        """One call on a copy of the inputs; the flags are those of :class:`kernelllm.judge.transport.protocol.RunOnce`.

        Its outputs are private copies: nothing the worker does later changes them.
        """
        originals = values.flatten(inputs)
        self._timed_sets.clear()
        tree, specs, arena = self._pack(inputs, "inputs")
        output = self._arena("output", _FIRST_OUTPUT)
        output.poison()
        _synchronize(self.device)
        both = (arena, output)
        start = time.perf_counter()
        reply = self.ask(
            p.RunOnce, both, inputs=p.Values(tree, specs, self._worker.ref(arena, both)), output=self._worker.ref(output, both), seed=seed,
            suppress=suppress, observe=observe, apart=apart, bare=bare,
        )  # fmt: skip
        wall_ms = (time.perf_counter() - start) * 1000
        ran, output = self._grown(reply, p.Ran, output)
        value = self._take(ran.tree, ran.tensors, output)
        _intact(arena, specs)
        mutated = tuple(i for i, t in enumerate(originals) if _differs(arena.view(specs[i]), t))
        return CandidateRun(value, mutated, tuple(n[:80] for n in ran.types[:64]), ran.launches, ran.busy_ms, wall_ms, ran.ops, ran.flops)

    def _grown(self, reply: Any, kind: type[Any], output: Arena) -> tuple[Any, Arena]:
        if isinstance(reply, p.Grow):
            if not 0 < reply.bytes <= MOST_OUTPUT:
                raise CandidateFailure(Status.OUT_OF_MEMORY, f"The candidate's outputs take {reply.bytes} bytes.")
            output = self._arena("output", reply.bytes)
            output.poison()
            _synchronize(self.device)
            reply = self.ask(p.Collect, (output,), output=self._worker.ref(output, (output,)))
        return _expect(reply, kind), output

    def _take(self, tree: Any, specs: tuple[p.TensorSpec, ...], arena: Arena) -> Any:
        copies: dict[int, torch.Tensor] = {}

        def tensor(index: int) -> torch.Tensor:
            if index not in copies:
                copies[index] = arenas.take(arena, specs[index])
            return copies[index]

        try:
            return values.decode(tree, tensor)
        except (values.ValueProblem, p.ProtocolError, IndexError) as error:
            raise CandidateFailure(Status.RUNTIME_ERROR, f"The worker sent a malformed output ({error}).") from error

    def state(self, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
        """The model's parameters and buffers of these names (those it has)."""
        output = self._arena("output", _FIRST_OUTPUT)
        reply = self.ask(p.ReadState, (output,), output=self._worker.ref(output, (output,)), names=names)
        if isinstance(reply, p.Grow):
            output = self._arena("output", min(reply.bytes, MOST_OUTPUT))
            reply = self.ask(p.ReadState, (output,), output=self._worker.ref(output, (output,)), names=names)
        state = _expect(reply, p.ModelState)
        return {n: arenas.take(output, spec) for n, spec in zip(state.names, state.tensors, strict=False) if n in names}

    def compile(self, tree: Any, specs: tuple[p.TensorSpec, ...], target: str, fake: bool, inputs: list[Any] | None = None) -> p.Compiled:
        """Compile what a run launches; on fake tensors of these specs, or on real ``inputs``."""
        arena = self._arena("inputs", 1)
        if not fake and inputs is not None:
            tree, specs, arena = self._pack(inputs, "inputs")
        bag = p.Values(tree, specs, self._worker.ref(arena, (arena,)))
        return _expect(self.ask(p.Compile, (arena,), inputs=bag, target=target, fake=fake), p.Compiled)

    def report(self) -> p.Reported:
        """What the worker noted."""
        return _expect(self.ask(p.ReadReport, ()), p.Reported)

    def time_runs(self, input_sets: list[list[Any]], **fields: Any) -> tuple[p.TimedBatch, dict[int, Any]]:
        """A timed batch (see :class:`kernelllm.judge.transport.protocol.TimeRuns`); the kept outputs by their position in ``order``.

        The input sets are copied to arenas on the first call with them and reused as long as the same lists are handed in.
        """
        bags, filled = [], []
        for number, inputs in enumerate(input_sets):
            found: list[torch.Tensor] = []
            tree = values.encode(inputs, found)
            specs, size = arenas.layout(found, start=arenas.GUARD)
            role = f"timed-{number}" if number else "inputs"  # they may be large, and no trial needs those of another now
            known = self._timed_sets.get(role)
            arena = self._arena(role, size)
            if known is not inputs:
                arenas.put(arena, specs, found)
                arenas.guard(arena, specs)
                self._timed_sets[role] = inputs
            bags.append((tree, specs, arena))
            filled.append(arena)
        output = self._arena("output", _FIRST_OUTPUT)
        if fields.get("keep"):
            output.poison()
        _synchronize(self.device)
        beside = (*filled, output)
        sets = tuple(p.Values(tree, specs, self._worker.ref(arena, beside)) for tree, specs, arena in bags)
        reply = self.ask(p.TimeRuns, beside, inputs=sets, output=self._worker.ref(output, beside), **fields)
        if isinstance(reply, p.Grow):
            output = self._arena("output", min(reply.bytes, MOST_OUTPUT))
            return self.time_runs(input_sets, **fields)
        timed = _expect(reply, p.TimedBatch)
        if len(timed.times_ms) != len(fields["order"]) or len(timed.kept) != len(timed.trees):
            raise CandidateFailure(Status.RUNTIME_ERROR, "The worker's timing reply does not fit what was asked.")
        kept = {position: self._take(tree, timed.tensors, output) for position, tree in zip(timed.kept, timed.trees, strict=True)}
        return timed, kept

    @property
    def _timed_sets(self) -> dict[str, Any]:
        found: dict[str, Any] = self.__dict__.setdefault("_timed_inputs", {})
        return found


def _expect(reply: Any, kind: type[R]) -> R:
    if not isinstance(reply, kind):
        raise CandidateFailure(Status.RUNTIME_ERROR, "The worker gave an answer that does not fit the question.")
    return reply


def _intact(arena: Arena, specs: tuple[p.TensorSpec, ...]) -> None:
    beside = arenas.broken(arena, specs) if specs else None
    if beside is not None:
        text = f"illegal memory access: a kernel wrote outside of the forward's inputs, beside tensor {beside + 1}."
        raise CandidateFailure(Status.RUNTIME_ERROR, f"{text} Mask the access or fix the offsets.")


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _differs(now: torch.Tensor, before: torch.Tensor) -> bool:
    if now.numel() == 0 or torch.equal(now, before):
        return False
    if not now.is_floating_point():
        return True
    return not torch.equal(torch.nan_to_num(now, nan=7.0), torch.nan_to_num(before, nan=7.0))


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
        case "illegal_access":
            shown = text if text.startswith("illegal memory access") else f"illegal memory access: {text}"
            return CandidateFailure(Status.RUNTIME_ERROR, f"{shown}{place}", reply.line, reply.trace)
        case _:
            trace = f"\n{reply.trace[:2000]}" if reply.trace else ""
            return CandidateFailure(
                Status.RUNTIME_ERROR, f"The candidate raised {reply.error[:100]}: {text}{place}{trace}", reply.line, reply.trace
            )


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
