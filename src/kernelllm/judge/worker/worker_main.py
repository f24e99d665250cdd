"""Holds one candidate in the worker, and does what the judge tells it.

Everything here may be subverted by the candidate; the judge relies on none of it.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch

from kernelllm.backends.base import Backend, DeviceAccess, IllegalAccess, Mode
from kernelllm.core.errors import WorkerError
from kernelllm.core.garbage_collection import collect_if_grown
from kernelllm.judge.call_traces import CallTraces, scattered
from kernelllm.judge.caller_settings import MULTIPROCESSORS
from kernelllm.judge.gradient_outputs import Differentiated
from kernelllm.judge.isolation.allowed_paths import packages_of
from kernelllm.judge.kept_outputs import HeldTensors
from kernelllm.judge.operator_counter import OperatorCounter, add_host_reads
from kernelllm.judge.transport import arenas, trusted_torch, values, wire
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.worker import cuda_questions, failures, fake_cuda, model_state
from kernelllm.judge.worker.construction import fake_tensors, rebuilt
from kernelllm.judge.worker.guard_regions import GuardRegions
from kernelllm.judge.worker.recorder import Recorder
from kernelllm.judge.worker.run_context import in_its_thread, last_call, run_context
from kernelllm.problems.seeds import seed_all

_synchronize = torch.cuda.synchronize  # taken before any candidate code runs
_LARGE = 2**27
"""Bytes of a model of which not many fit."""


class NotACandidate(Exception):
    """The file loads but is no candidate."""


def serve(sock: socket.socket, folder: str, mode: Mode, target: str, backend: Backend) -> None:
    """Answer commands until Quit or the end of the socket."""
    session = Session(sock, folder, mode, target, backend)
    while True:
        try:
            command, fds = wire.receive_command(sock)
        except (p.WorkerGone, OSError):
            return
        if isinstance(command, p.Quit):
            return
        try:
            session.accept(command, fds)
            reply = session.answer(command)
        except BaseException as error:  # noqa: BLE001 (the worker's border: whatever candidate code raises becomes a reply)
            reply = failures.describe(command.id, error, session.path, backend, mode)
        try:
            wire.send(sock, reply)
        except WorkerError:
            return
        collect_if_grown()


class Session:
    """State of one worker: module, model, open arenas, outputs of the last run."""

    def __init__(self, sock: socket.socket, folder: str, mode: Mode, target: str, backend: Backend) -> None:
        self._sock = sock
        self._command = 0  # the one that is being done, 0 between commands
        self.path = str(Path(folder) / f"{fake_cuda.CANDIDATE}{backend.suffix}")
        self.mode, self.target, self.backend = mode, target, backend
        self.module: ModuleType | None = None
        self.model: Any = None
        self.called: Any = None  # in a run: the model, with its backward where that is wanted
        self._made: tuple[Any, Any, int] = (), {}, 0
        self._stays: tuple[Any, Any] = None, None  # both of a model that was built before
        self._loaded: set[str] = set()
        self.recorder = Recorder(self.request_access)
        self.recorder.listen(packages_of(backend))
        self._arenas: dict[int, arenas.Arena] = {}
        self._outputs: tuple[Any, list[torch.Tensor]] = (None, [])
        self._held: tuple[Any, list[torch.Tensor]] = (None, [])  # of an earlier run, to be read again later
        self._kept = HeldTensors()
        self._given: tuple[Any, Any] = (None, None)  # what identifies the inputs of the last run, and the inputs
        self._busy_ms, self._launches, self._run_flops = 0.0, 0, 0.0
        self._beside: tuple[tuple[int, ...], tuple[str, ...]] = (), ()
        """Inputs that the last run wrote into, and what it left behind."""
        self._apart: tuple[dict[str, int], dict[str, float]] = {}, {}
        self._forward_part: tuple[dict[str, int], dict[str, float], int] = {}, {}, 0
        """Operators and FLOPs of the last run, where it was watched, and of its forward, where it has a backward; with launches."""
        self._first_launches: tuple[str, ...] = ()
        self._ops, self._flops, self._kernel_flops = Counter[str](), Counter[str](), Counter[str]()
        """Operators, FLOPs of the heavy ones and FLOPs of kernels, of all observed runs together."""
        self._handlers: dict[type[Any], Callable[[Any], p.Reply]] = {
            p.Construct: self.construct, p.LoadState: self.load_state, p.SetAttribute: self.set_attribute, p.SamplePrograms: self.sample,
            p.RunOnce: in_its_thread(self.run), p.OpenArena: lambda command: p.Done(command.id),  # decoding the message has opened it
            p.Collect: self.collect, p.ReadState: self.read_state, p.TimeRuns: self.time_runs,
            p.Compile: self.compile, p.ReadReport: self.report,
        }  # fmt: skip
        if mode is Mode.CUDA:
            from kernelllm.judge.worker import gpu

            gpu.install(self.recorder)
        self.launches = backend.watch(mode, self.recorder)

    def accept(self, command: Any, fds: list[int]) -> None:
        """Open the arenas that a command brings."""
        refs = [command.output] if hasattr(command, "output") else []
        for name in ("args", "values", "inputs"):
            bag = getattr(command, name, None)
            refs += [b.arena for b in (bag if isinstance(bag, tuple) else (bag,)) if b is not None]
        for ref in refs:
            if ref.key in self._arenas:
                continue
            if ref.device >= 0:
                self._arenas[ref.key] = arenas.CudaArena(ref.size, ref.device, ref.handle, ref.key)
            elif ref.fd >= 0:
                self._arenas[ref.key] = arenas.HostArena(ref.size, fds[ref.fd], ref.key)
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)

    def answer(self, command: p.Command) -> p.Reply:
        self._command = command.id
        try:
            reply = self._handlers[type(command)](command)
            if self.mode is Mode.CUDA:  # also what was started as the command's objects went: others are timed next
                _synchronize()
            return reply
        finally:
            self._command = 0

    def request_access(self, access: DeviceAccess) -> None:
        """Have the judge change how this worker holds the device, and wait until it is so."""
        if self._command:
            wire.send(self._sock, p.AccessRequest(self._command, access))
            wire.receive_command(self._sock)

    def decode(self, bag: p.Values) -> Any:
        """A value whose tensors lie in an arena of the judge."""
        arena = self._arenas[bag.arena.key]
        opened: dict[int, torch.Tensor] = {}

        def tensor(index: int) -> torch.Tensor:
            if index not in opened:
                opened[index] = arena.view(bag.tensors[index])
            return opened[index]

        return values.decode(bag.tree, tensor)

    @contextlib.contextmanager
    def candidate_code(self, phase: str, *, noise: Callable[[torch.Tensor], None] | None = None) -> Iterator[None]:
        """A context manager for every call into candidate code."""
        self.recorder.begin(phase)
        try:
            if self.mode is Mode.CUDA:
                with fake_cuda.Noise(noise) if noise else contextlib.nullcontext():
                    yield
            else:
                with fake_cuda.CudaOnCpu(noise, self.recorder.values_read, has_host=phase == "run"):
                    yield
        finally:
            self.recorder.end()

    def construct(self, command: p.Construct) -> p.Reply:
        """Load the file once, then build ModelNew."""
        if self.module is None:
            with self.candidate_code("import"):
                self.module = self.backend.load(Path(self.path), fake_cuda.CANDIDATE)
        kind = getattr(self.module, "ModelNew", None)
        if kind is None:
            raise NotACandidate("The candidate defines no ModelNew.")
        args, kwargs = self.decode(command.args)
        self._made = args, kwargs, command.seed
        self.launches.begin_at(command.turn)
        around: contextlib.AbstractContextManager[Any] = fake_tensors() if command.fake else GuardRegions(guards=False)
        self._stays = (self.model, self.called) if command.beside or command.copied else (None, None)
        if sum(tensor.nbytes for tensor, _ in trusted_torch.named_state(self.model).values()) > _LARGE:
            gc.collect()  # models in cycles; two of them may be all that there is room for
        with self.candidate_code("construct"), around:
            self.model = copy.deepcopy(self.model) if command.copied else self._built(kind, args, kwargs, command)
            if self.mode is Mode.CUDA and isinstance(self.model, torch.nn.Module):
                self.model = self.model.cuda()
        if not callable(self.model):
            raise NotACandidate("ModelNew objects cannot be called; derive it from torch.nn.Module and define forward.")
        self.called = Differentiated(self.model, command.gradients) if command.gradients else self.model
        return p.Constructed(command.id, model_state.entries(self.model), bool(getattr(self.model, "training", True)))

    @staticmethod
    def _built(kind: Any, args: list[Any], kwargs: dict[str, Any], command: p.Construct) -> Any:
        if command.there:
            seed_all(command.seed)
            with contextlib.suppress(Exception), torch.device("cuda"):
                return kind(*args, **kwargs)
        seed_all(command.seed)
        return kind(*args, **kwargs)

    def load_state(self, command: p.LoadState) -> p.Reply:
        """Copy the given values into parameters and buffers, and set the mode."""
        if command.swap:
            (self.model, self.called), self._stays = self._stays, (self.model, self.called)
        self._loaded.update(command.names)
        model_state.load(self.model, command, self.decode(command.values))
        return p.Done(command.id)

    def set_attribute(self, command: p.SetAttribute) -> p.Reply:
        """Set one attribute of the model."""
        with self.candidate_code("run"):
            return p.Done(command.id, had=model_state.set_attribute(self.model, command.name, command.value))

    def _inputs(self, command: p.RunOnce) -> Any:
        """The inputs: the tensors of the run before, with other values, where the judge asks for that and they fit."""
        bag = command.inputs
        key = bag.arena.key, bag.tensors, bag.tree
        if not (command.again or command.same) or self._given[0] != key:
            self._given = key, self.decode(bag)
        elif not command.same:
            for tensor in {id(t): t for t in values.flatten(self._given[1])}.values():
                with torch.no_grad():
                    tensor.copy_(tensor)  # its memory has the new values: now its version says so
        return self._given[1]

    def run(self, command: p.RunOnce) -> p.Reply:
        values.corrupt(self._outputs[1] if command.spoiled else [])
        inputs, watched = self._inputs(command), command.observe or command.apart
        ops, flops = Counter[str](), Counter[str]()  # this run's own, out of reach of what the next one does
        note = None if isinstance(self.called, Differentiated) else self.recorder.did
        traces = self.recorder.traces = CallTraces(self.model, inputs)
        counter = OperatorCounter(ops, flops, lambda: self.recorder.in_launch, note, traces)
        outputs, called = list[torch.Tensor](), self._to_call(command)
        before, known_flops = self.recorder.launches, Counter(self.recorder.kernel_flops())
        read = self.recorder.floats_read, self.recorder.whole_read
        self.recorder.new_list()
        self.launches.suppress(command.suppress)
        self._forward_part = {}, {}, 0
        if isinstance(self.called, Differentiated):
            self.called.asked(command.frozen, command.backward, repeats=command.in_order)
            self.called.between = lambda: self._after_forward(ops, flops, before, command.suppress or command.suppress_backward)
        suppressed = command.suppress or command.suppress_backward
        guard_regions = None if command.bare or suppressed else GuardRegions(guards=watched and self.mode is Mode.CUDA)
        self.launches.begin_run(command.undefined, command.fill, in_order=command.in_order, exact_products=command.exact_products)
        seed_all(command.seed)
        start = time.perf_counter()
        try:
            with (
                run_context(command, self.model, inputs),
                self.candidate_code("run", noise=partial(fake_cuda.fill_noise, other=command.other_noise) if suppressed else None),
                guard_regions or contextlib.nullcontext(),
                counter if watched else contextlib.nullcontext(),
            ):
                # inside: a list that computes while it is read is candidate code as well
                self._outputs = values.encode(last_call(called, inputs, command), outputs, strict=True), outputs
                if watched and not counter.works():
                    self.recorder.switched_off = True
                if watched and note is not None:
                    self.recorder.returned(outputs, values.flatten(inputs))
            if watched:
                add_host_reads(ops, inputs, self.recorder.floats_read - read[0], self.recorder.whole_read - read[1])
            if self.recorder.fault:  # whatever the candidate made of it: on a GPU nothing would run after it
                raise IllegalAccess(self.recorder.fault)
            if cuda_questions.asked:  # the candidate knows now that this is no GPU, whatever it made of the error
                raise NotImplementedError(f"{cuda_questions.asked[0]} has no answer without a GPU; judge this with --device cuda.")
        finally:
            self.launches.suppress(False)
            self.recorder.fault = ""
        self._held = self._outputs if command.hold else self._held
        self._busy_ms = (time.perf_counter() - start) * 1000
        self._first_launches = self._first_launches or tuple(self.recorder.list)
        self._launches = self.recorder.launches - before
        self._beside = traces.written_inputs(), self._left(traces) if watched and note is not None else ()
        self._apart = dict(ops), {k: float(v) for k, v in flops.items()}  # nothing where it was not watched
        self._run_flops = float((of_kernels := Counter(self.recorder.kernel_flops()) - known_flops).total())
        if command.observe:
            self._ops.update(ops)
            self._flops.update(flops)
            self._kernel_flops.update(of_kernels)
        reply = self._deliver(command.id, self._arenas[command.output.key])
        if guard_regions:
            guard_regions.check()
        return reply

    def _to_call(self, command: p.RunOnce) -> Any:
        if command.setting == MULTIPROCESSORS:
            return rebuilt(self.backend, self.path, self.candidate_code, command.setting, self.model, self._made)
        return self.model if command.named or command.by_name else self.called

    def _left(self, traces: CallTraces) -> tuple[str, ...]:
        state = [tensor for name, (tensor, _) in trusted_torch.named_state(self.model).items() if name in self._loaded]
        others = *self._outputs[1], *self._held[1], *state, *(given := values.flatten(self._given[1]))
        return *traces.left(*self._outputs, state), *self._kept.told(self._outputs[1], given, others)

    def _after_forward(self, ops: Counter[str], flops: Counter[str], before: int, suppress: bool) -> None:
        self._forward_part = dict(ops), {k: float(v) for k, v in flops.items()}, self.recorder.launches - before
        self.launches.suppress(suppress)

    def sample(self, command: p.SamplePrograms) -> p.Reply:
        """One call of which launches run some of their programs."""
        from kernelllm.judge.worker import sampled_run

        inputs = self.decode(command.inputs)
        self.recorder.new_list()
        before = {name: seen.launches for name, seen in self.recorder.kernels.items()}
        seed_all(command.seed)
        with self.candidate_code("run"):
            found = sampled_run.run(self.model, inputs, command, self.launches, lambda: self.recorder.fault)
        outputs: list[torch.Tensor] = []
        tree = values.encode(found.tree, outputs)
        specs, size = arenas.layout(outputs, contiguous=True)
        arena = self._arenas[command.output.key]
        if self.recorder.read_after is not None or size > arena.size:
            return p.Sampled(command.id, ops=found.ops, flops=found.flops)
        arenas.put(arena, specs, outputs)
        names = tuple(name for name, seen in self.recorder.kernels.items() if seen.launches > before.get(name, 0))
        return msgspec.structs.replace(found, tree=tree, tensors=specs, kernels=names)

    def collect(self, command: p.Collect) -> p.Reply:
        """The same outputs again, to a larger arena, or those of the run that is held."""
        if command.held:
            self._outputs, self._held = self._held, (None, [])
        return self._deliver(command.id, self._arenas[command.output.key])

    def _deliver(self, number: int, arena: arenas.Arena) -> p.Reply:
        tree, outputs = self._outputs
        if len(outputs) > p.MAX_TENSORS:
            raise NotACandidate("The model returned too many tensors.")
        specs, size = arenas.layout(outputs, contiguous=True)
        if size > arena.size:
            return p.Grow(number, size)
        arenas.put(arena, specs, outputs)  # deliberately not synchronized before: work left on other streams must show as missing
        (ops, flops), (forward_ops, forward_flops, forward_launches) = self._apart, self._forward_part
        return p.Ran(
            number, tree, specs, launches=self._launches, busy_ms=self._busy_ms, ops=ops, flops=flops, forward_ops=forward_ops,
            forward_flops=forward_flops, forward_launches=forward_launches, kernel_flops=self._run_flops,
            backwards=self.launches.ran_backwards(), did=self.recorder.digest(), written=self._beside[0], left=self._beside[1],
            scattered=scattered(outputs),
        )  # fmt: skip

    def read_state(self, command: p.ReadState) -> p.Reply:
        """Parameters and buffers by name."""
        mine = model_state.own_state(self.model) if command.by_itself else trusted_torch.named_state(self.model)
        names = tuple(n for n in command.names if n in mine)
        found = [mine[n][0] for n in names]
        values.encode(found, [], strict=True)  # a buffer that computes while it is read is refused as an output would be
        specs, size = arenas.layout(found, contiguous=True)
        arena = self._arenas[command.output.key]
        if size > arena.size:
            return p.Grow(command.id, size)
        arenas.put(arena, specs, found)
        return p.ModelState(command.id, names, specs)

    def time_runs(self, command: p.TimeRuns) -> p.Reply:
        """A timed batch (GPU only)."""
        from kernelllm.judge.worker import gpu

        inputs = [self.decode(bag) for bag in command.inputs]
        if isinstance(self.called, Differentiated):
            self.called.layouts = False
        with self.candidate_code("time"):
            return gpu.time_runs(command, self.called, inputs, self._arenas[command.output.key], self.launches, self.recorder)

    def compile(self, command: p.Compile) -> p.Reply:
        from kernelllm.judge.worker import fake_run

        self.launches.compile_less(list_only=command.list_only, binary=command.binary)
        try:
            with self.candidate_code("run"):
                seen = fake_run.run(self.called, self._compile_inputs(command), command, self.recorder)
        except Exception as error:
            self.launches.raised(error)
            raise
        done = dict(seen.ops), {name: float(amount) for name, amount in seen.flops.items()}
        told = seen.cut, seen.unwritten, *done, self.recorder.narrow_offsets
        return p.Compiled(command.id, self.recorder.rows(), tuple(seen.launches), *told)

    def _compile_inputs(self, command: p.Compile) -> Any:
        if not (command.fake or command.hollow):
            return self.decode(command.inputs)
        specs = command.inputs.tensors
        return values.decode(command.inputs.tree, lambda i: ("fake", specs[i]))

    def report(self, command: p.ReadReport) -> p.Reply:
        r = self.recorder
        kernels = r.rows()
        events = tuple(p.AuditEvent(name, detail, count, phase) for (name, detail, phase), count in r.events.items())
        peak = torch.cuda.max_memory_allocated() if self.mode is Mode.CUDA else 0
        flops, kernel_flops = ({k: float(v) for k, v in all_runs.items()} for all_runs in (self._flops, self._kernel_flops))
        tampered = (*r.tampered(), *(["the count of launches"] if self.launches.disagreement() else []))
        return p.Reported(
            command.id, kernels, dict(r.bodies), dict(self._ops), flops, events, r.threads, r.streams, tampered, peak, kernel_flops,
            self._first_launches, self.launches.undefined_lanes(),
        )  # fmt: skip
