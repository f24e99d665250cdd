"""Drives one candidate's worker from the judge's side, under time limits. Every way to fail becomes a :class:`CandidateFailure`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from kernelllm.backends.base import STORED_TWICE
from kernelllm.core.closing import Closing
from kernelllm.core.errors import WorkerError
from kernelllm.core.types import Status
from kernelllm.judge.device_share import DeviceLease
from kernelllm.judge.isolation.candidate_failure import CandidateFailure, death, failure
from kernelllm.judge.isolation.forkserver import START_SECONDS, ForkServer
from kernelllm.judge.isolation.limits import Ended, Limits
from kernelllm.judge.transport import arenas, values
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport.arenas import Arena

_FIRST_OUTPUT = 2**16
OUTPUT_ROOM, OUTPUT_FACTOR = 2**26, 4
"""A candidate's outputs may take so many bytes, and so many times what the reference's take, before they are known to be wrong."""
TOTAL = 8
_MOST_TRACED = 16
R = TypeVar("R")
_Packed = tuple[Any, tuple[p.TensorSpec, ...], Arena]
"""A value's tree, and where its tensors lie."""


class CandidateRun(p.RunStatistics, frozen=True, kw_only=True):
    """One run as the judge saw it, with what the worker counted."""

    value: Any
    mutated: dict[int, torch.Tensor]
    """The inputs that it changed, by position, as they were after it."""
    wall_ms: float


@dataclass(frozen=True)
class SampledRun:
    """What some programs of each launch wrote of the outputs: see :class:`kernelllm.judge.transport.protocol.Sampled`."""

    shapes: tuple[tuple[int, ...], ...] | None
    """None where nothing came of it but the figures below."""
    parts: list[list[torch.Tensor]]
    unwritten: str
    kernels: tuple[str, ...]
    configurations_left: bool
    ops: dict[str, int]
    flops: dict[str, float]
    unwritten_read: int


class CandidateProcess(Closing):
    """A worker that holds one candidate. ``seconds``: what one command may take; all together may take :data:`TOTAL` times that.

    A worker that is lost is replaced when the model is built again.
    """

    def __init__(self, server: ForkServer, source: str, limits: Limits, device: str, seconds: float, sandbox: str | None) -> None:
        self.device, self.left, self.seconds = device, seconds * TOTAL, seconds
        self._spawn = partial(server.spawn, source, limits, sandbox)
        self._worker, self._opened = self._spawn(), False
        self._closed = self.lost = False
        """``lost``: whether every later command would fail, whatever the candidate does, as where the context on the GPU is dead."""
        self.lease = DeviceLease()
        """To the device; what it waits there counts for no limit."""
        self._arenas: dict[str, Arena] = {}
        self._timed_sets: dict[str, list[Any]] = {}
        """Input sets of timed batches that lie in arenas, by the arena's role."""
        self._state_bytes = 0
        self.reference_output_bytes: Callable[[], int] = lambda: 0
        """What the reference's outputs take at the sizes at hand. Asked only of a candidate that needs more than :data:`OUTPUT_ROOM`."""
        self.writes_twice: Callable[[list[Any], int], bool] = lambda inputs, seed: False
        """Whether the reference does so on these inputs. Asked where the candidate writes different values to one place."""
        self.in_order = False
        """Whether the programs of every launch run from the first to the last."""
        self.exact_products = False
        """Whether the interpreter rounds no operands of products to TF32, where a kernel asks for that."""
        self.turn = 0
        """Of each autotuned kernel, the configuration that its first launch has."""
        self.renamed: dict[str, torch.Tensor] = {}
        """State that the model has under other names and takes by its own ``load_state_dict``, with the latest values."""
        self.ended: list[Ended] = []
        """How its workers ended, the first one first."""

    def cut(self) -> None:
        """Have the worker killed, from any thread; a command that is under way then fails."""
        self._worker.cut()

    def restart(self, turn: int) -> None:
        """Have another worker build the next model, in which autotuned kernels begin with the configuration of this number."""
        self.turn, self.lost = turn, True

    def close(self) -> None:
        """Kill the worker with all it started; free what it saw."""
        if not self._closed:
            self._closed = True
            self._end_worker()

    def _end_worker(self) -> None:
        self.ended.append(self._worker.close())
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()
        self._timed_sets.clear()

    def _arena(self, role: str, size: int) -> Arena:
        """The arena of a role, replaced by a larger one where ``size`` does not fit."""
        old = self._arenas.get(role)
        if old is not None and old.size >= size:
            return old
        if old is not None:
            self._arenas.pop(role).close()
        self._arenas[role] = arenas.create(max(size, _FIRST_OUTPUT), self.device)
        return self._arenas[role]

    def _pack(self, value: Any, role: str, *, guarded: bool = True) -> _Packed:
        found: list[torch.Tensor] = []
        try:
            tree = values.encode(value, found, attributes=role == "arguments")
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

    def _open(self, arena: Arena) -> None:
        """Have a new worker open its device, which takes long where many do: no candidate code is there yet whose time that could be."""
        if not self._opened:
            _expect(self.ask(p.OpenArena, (arena,), own_time=True, output=self._worker.ref(arena, (arena,))), p.Done)
            self._opened = True

    def ask(self, kind: type[Any], arenas: tuple[Arena, ...], *, own_time: bool = False, **fields: Any) -> Any:
        """One command; its reply if it succeeded. Raises CandidateFailure. ``own_time``: the worker's, which counts for no limit."""
        _synchronize(self.device)  # what was copied into arenas is there before the worker looks
        start = time.monotonic()
        try:
            with self.lease.command():
                deadline = start + (START_SECONDS if own_time else max(min(self.left, self.seconds), 0.01))
                reply = self._worker.ask(kind, deadline, arenas=arenas, on_request=self.lease.request, **fields)
        except p.WorkerTimeout as error:
            self.lost = True
            if own_time:
                raise WorkerError(f"A worker did not open its device in {START_SECONDS:g} s.") from error
            raise CandidateFailure(Status.TIMEOUT, self._timeout_text()) from error
        except p.ProtocolError as error:
            raise CandidateFailure(Status.RUNTIME_ERROR, f"{error} Candidates must not touch the worker's files and sockets.") from error
        except p.WorkerGone as error:
            self.lost = True
            raise death(self._worker.fate()) from error
        finally:
            self.left -= 0.0 if own_time else time.monotonic() - start - self.lease.waited
        if isinstance(reply, p.Failed):
            self.lost = self.lost or reply.device_lost
            raise failure(reply)
        return reply

    def _timeout_text(self) -> str:
        fix = "Look for a loop that never ends, or raise the limit with --time-limit."
        return f"The candidate did not finish within {self.seconds:g} s. {fix}"

    def construct(
        self, init: tuple[list[Any], dict[str, Any]], seed: int, *, there: bool = False, fake: bool = False,
        gradients: p.Gradients | None = None, beside: bool = False, copied: bool = False,
    ) -> p.Constructed:
        """Build the model; ``there``: on the GPU where that works; ``beside``: the one before stays (see :meth:`load`); ``copied``: and is
        copied."""
        if self.lost:
            self._end_worker()
            self._worker, self.lost, self._opened = self._spawn(), False, False
        tree, specs, arena = self._pack([list(init[0]), dict(init[1])], "arguments")  # the model may keep them
        self._open(arena)
        bag = p.Values(tree, specs, self._worker.ref(arena, (arena,)))
        fields: dict[str, Any] = {"seed": seed, "there": there, "fake": fake, "gradients": gradients, "beside": beside, "copied": copied}
        reply = self.ask(p.Construct, (arena,), args=bag, turn=self.turn, **fields)
        return _expect(reply, p.Constructed)

    def load(
        self, state: Mapping[str, torch.Tensor], training: bool, dtype: str = "", swap: bool = False, by: str = ""
    ) -> None:
        """Copy values into the model's parameters and buffers, and set train or eval mode. ``dtype``: what floating ones become first;
        ``swap``: of the model that stayed when another was built beside it, and that is called from now on; ``by``: ``itself``, by the
        model's own ``load_state_dict``, or ``data``, through ``.data``."""
        if not by and state.keys() & self.renamed.keys():  # all that it names otherwise: several of those may be one of its own
            self.renamed |= {name: tensor for name, tensor in state.items() if name in self.renamed}
            state, by = {**state, **self.renamed}, "renamed"
        self._state_bytes = max(self._state_bytes, sum(t.numel() * t.element_size() for t in state.values()))
        tree, specs, arena = self._pack(list(state.values()), "state", guarded=False)  # the model copies them
        bag = p.Values(tree, specs, self._worker.ref(arena, (arena,)))  # one index each, even where two names share a tensor
        fields: dict[str, Any] = {"names": tuple(state), "values": bag, "training": training, "dtype": dtype, "swap": swap, "by": by}
        _expect(self.ask(p.LoadState, (arena,), **fields), p.Done)

    def set_attribute(self, name: str, value: Any) -> bool:
        """Set an attribute of the model, whose name has the path of its module before it; whether there was one of that name."""
        return bool(_expect(self.ask(p.SetAttribute, (), name=name, value=value), p.Done).had)

    def run(self, inputs: list[Any], seed: int, *, hold: bool = False, named: dict[str, Any] | None = None, **flags: Any) -> CandidateRun:
        """One call on a copy of the inputs; the flags are those of :class:`kernelllm.judge.transport.protocol.RunOnce`.

        Its outputs are private copies: nothing the worker does later changes them.
        """
        left = _MOST_TRACED  # each kernel is traced once in each order
        while True:
            try:
                return self._run(inputs, seed, hold, {"named": named or {}, "in_order": self.in_order, **flags})
            except CandidateFailure as failure:
                if not (left := left - 1) or not failure.message.startswith(STORED_TWICE) or not self.writes_twice(inputs, seed):
                    raise

    def _run(self, inputs: list[Any], seed: int, hold: bool, flags: dict[str, Any]) -> CandidateRun:
        originals = values.flatten(inputs)
        self._timed_sets.clear()
        tree, specs, arena = self._pack(inputs, "held inputs" if hold else "inputs")  # outputs may be views of them
        output = self._arena("output", _FIRST_OUTPUT)
        output.poison()
        _synchronize(self.device)
        both, start = (arena, output), time.perf_counter()
        bag = p.Values(tree, specs, self._worker.ref(arena, both))
        fields: dict[str, Any] = {"seed": seed, "hold": hold, "exact_products": self.exact_products, **flags}
        reply = self.ask(p.RunOnce, both, inputs=bag, output=self._worker.ref(output, both), **fields)
        counted: dict[str, Any] = {"wall_ms": (time.perf_counter() - start) * 1000}
        ran, output = self._grown(reply, p.Ran, output)
        (value,) = self._take(ran.tensors, output, ran.tree)
        _intact(arena, specs)
        mutated = {i: now.clone() for i, t in enumerate(originals) if _differs(now := arena.view(specs[i]), t)}
        counted |= {name: getattr(ran, name) for name in p.RunStatistics.__struct_fields__}
        return CandidateRun(value=value, mutated=mutated, **counted)

    def sample(self, inputs: list[Any], seed: int, seconds: float, output_bytes: int, programs: tuple[float, ...] = ()) -> SampledRun:
        """One call of which launches run some programs. ``output_bytes``: room for what they wrote; ``programs``: some that run."""
        tree, specs, arena = self._pack(inputs, "inputs", guarded=False)
        both = (arena, output := self._arena("output", output_bytes))
        bag = p.Values(tree, specs, self._worker.ref(arena, both))
        told: dict[str, Any] = {"seed": seed, "seconds": seconds, "programs": programs}
        reply = self.ask(p.SamplePrograms, both, inputs=bag, output=self._worker.ref(output, both), **told)
        sampled = _expect(reply, p.Sampled)
        parts = [] if sampled.shapes is None else self._take(sampled.tensors, output, sampled.tree)[0]
        left, done = sampled.configurations_left, (sampled.ops, sampled.flops, sampled.unwritten_read)
        return SampledRun(sampled.shapes, parts, sampled.unwritten, sampled.kernels, left, *done)

    def held_output(self) -> Any:
        """What the run that was told to hold its outputs returned, as it is now."""
        output = self._arena("output", _FIRST_OUTPUT)
        reply = self.ask(p.Collect, (output,), output=self._worker.ref(output, (output,)), held=True)
        ran, output = self._grown(reply, p.Ran, output)
        return self._take(ran.tensors, output, ran.tree)[0]

    def _grown(self, reply: Any, kind: type[Any], output: Arena) -> tuple[Any, Arena]:
        if isinstance(reply, p.Grow):
            self._check_size(reply)
            output = self._arena("output", reply.bytes)
            output.poison()
            _synchronize(self.device)
            reply = self.ask(p.Collect, (output,), output=self._worker.ref(output, (output,)))
        return _expect(reply, kind), output

    def _check_size(self, reply: p.Grow, runs: int = 1) -> None:
        """Refuse outputs that cannot be the reference's, before the judge gives them memory."""
        if reply.bytes > runs * OUTPUT_ROOM:
            theirs = self.reference_output_bytes()
            if reply.bytes > runs * (OUTPUT_ROOM + OUTPUT_FACTOR * theirs):
                text = f"The candidate's outputs take {reply.bytes / runs:.0f} bytes, the reference's {theirs}: their shapes are wrong."
                raise CandidateFailure(Status.INCORRECT, text)

    def _take(self, specs: tuple[p.TensorSpec, ...], arena: Arena, *trees: Any) -> list[Any]:
        """Private copies of what a worker delivered, one value for each tree. Raises CandidateFailure for anything malformed."""
        copies: dict[int, torch.Tensor] = {}

        def tensor(index: int) -> torch.Tensor:
            if index not in copies:
                copies[index] = arenas.take(arena, specs[index])
            return copies[index]

        try:
            arenas.check_delivered(arena, specs)
            return [values.decode(tree, tensor) for tree in trees]
        except (values.ValueProblem, p.ProtocolError) as error:
            raise CandidateFailure(Status.RUNTIME_ERROR, f"The worker sent a malformed output ({error})") from error

    def state(self, names: tuple[str, ...], *, by_itself: bool = False) -> dict[str, torch.Tensor]:
        """The model's parameters and buffers of these names (those it has); ``by_itself``: as its own ``state_dict`` gives them."""
        output = self._arena("output", _FIRST_OUTPUT)
        asked: dict[str, Any] = {"names": names, "by_itself": by_itself}
        reply = self.ask(p.ReadState, (output,), output=self._worker.ref(output, (output,)), **asked)
        if isinstance(reply, p.Grow):
            if reply.bytes > OUTPUT_ROOM + OUTPUT_FACTOR * self._state_bytes:
                raise CandidateFailure(Status.INCORRECT, "The candidate's parameters and buffers have other shapes after a run.")
            output = self._arena("output", reply.bytes)
            reply = self.ask(p.ReadState, (output,), output=self._worker.ref(output, (output,)), **asked)
        state = _expect(reply, p.ModelState)
        if len(state.names) != len(state.tensors) or not set(state.names) <= set(names):
            raise CandidateFailure(Status.RUNTIME_ERROR, "The worker sent other parameters and buffers than it was asked for.")
        found = self._take(state.tensors, output, *(["t", index] for index in range(len(state.names))))
        return dict(zip(state.names, found, strict=True))

    def compile(
        self, tree: Any, specs: tuple[p.TensorSpec, ...], target: str, fake: bool, inputs: list[Any] | None = None, *,
        list_only: bool = False, binary: bool = True, hollow: bool = False,
    ) -> p.Compiled:  # fmt: skip
        """Compile what a run launches; on fake tensors of these specs, on ``hollow`` ones, or on real ``inputs``."""
        arena = self._arena("inputs", 1)
        if not fake and inputs is not None:
            tree, specs, arena = self._pack(inputs, "inputs")
        bag = p.Values(tree, specs, self._worker.ref(arena, (arena,)))
        flags = {"fake": fake, "hollow": hollow, "list_only": list_only, "binary": binary}
        return _expect(self.ask(p.Compile, (arena,), inputs=bag, target=target, **flags), p.Compiled)

    def report(self) -> p.Reported:
        """What the worker recorded of all its runs."""
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
            role = f"timed-{number}" if number else "inputs"  # inputs may be large, and no trial needs those of another now
            known = self._timed_sets.get(role)
            arena = self._arena(role, size)
            if known is not inputs:
                arenas.put(arena, specs, found)
                arenas.guard(arena, specs)
                self._timed_sets[role] = inputs
            bags.append((tree, specs, arena))
            filled.append(arena)
        output = self._arena("output", _FIRST_OUTPUT)
        reply = self._ask_timed(bags, filled, output, fields)
        if isinstance(reply, p.Grow):
            self._check_size(reply, max(len(fields.get("keep", ())), 1))
            output = self._arena("output", reply.bytes)
            reply = self._ask_timed(bags, filled, output, fields)
        timed = _expect(reply, p.TimedBatch)
        runs, kept = len(fields["order"]), tuple(sorted(fields.get("keep", ())))
        fits = tuple(sorted(timed.kept)) == kept and len(timed.trees) == len(kept)
        if not fits or len(timed.times_ms) != runs or len(timed.launches) not in (0, runs):
            raise CandidateFailure(Status.RUNTIME_ERROR, "The worker's timing reply does not fit what was asked.")
        return timed, dict(zip(timed.kept, self._take(timed.tensors, output, *timed.trees), strict=True))

    def inputs_written_while_timed(self) -> tuple[int, ...]:
        """Positions of the inputs that timed runs changed. Raises CandidateFailure where one wrote beside them."""
        _synchronize(self.device)
        written: set[int] = set()
        for role, inputs in self._timed_sets.items():
            found: list[torch.Tensor] = []
            values.encode(inputs, found)
            specs, _ = arenas.layout(found, start=arenas.GUARD)
            arena = self._arenas[role]
            _intact(arena, specs)
            written |= {i for i, t in enumerate(found) if _differs(arena.view(specs[i]), t)}
        return tuple(sorted(written))

    def _ask_timed(self, bags: list[_Packed], filled: list[Arena], output: Arena, fields: dict[str, Any]) -> Any:
        if fields.get("keep"):
            output.poison()
        _synchronize(self.device)
        beside = (*filled, output)
        sets = tuple(p.Values(tree, specs, self._worker.ref(arena, beside)) for tree, specs, arena in bags)
        return self.ask(p.TimeRuns, beside, inputs=sets, output=self._worker.ref(output, beside), **fields)


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
