"""Builds the candidate at every size and runs it once there, which compiles its kernels: with several workers at all sizes at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernelllm.judge.device_share import DeviceShare
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import values
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import writes_twice
from kernelllm.judge.trials.schedule import INIT_SEED, TrialSeeds
from kernelllm.judge.trials.trial import CandidateCall, call_candidate


class FirstRun:
    """The candidate built at one size with the reference's state, and its first call there.

    ``missing``: names of the reference's state that the candidate lacks, or has in another shape.
    """

    def __init__(self, missing: tuple[str, ...], call: CandidateCall) -> None:
        self.missing = missing
        self._call: CandidateCall | None = call

    def take_call(self) -> CandidateCall:
        """The call, once: its tensors may be large, and are kept no longer than needed."""
        call, self._call = self._call, None
        assert call is not None
        return call


@dataclass(frozen=True)
class FirstRuns:
    """How first runs are made. ``processes``: one worker for all sizes, or one for each. Only the last size needs the reserved memory."""

    processes: Sequence[CandidateProcess]
    references: Sequence[Reference]
    seeds: TrialSeeds
    share: DeviceShare

    @contextlib.contextmanager
    def started(self) -> Iterator[list[Callable[[], FirstRun]]]:
        """For each size a call that returns its first run. With a worker for each size all of them start now, side by side."""
        positions = range(len(self.references))
        if len(self.processes) < len(self.references):
            yield [partial(self._run, position, self.share) for position in positions]
            return
        with ThreadPoolExecutor(len(self.references), "kernelllm-first-run") as pool:
            futures = [pool.submit(self._run_in_thread, position) for position in positions]
            try:
                yield [partial(self._wait, future) for future in futures]
            finally:
                self.share.cancel_waiting()
                for process, future in zip(self.processes, futures, strict=True):
                    if not future.done():
                        process.cut()
                # A thread may queue behind somebody who wants the device alone, and waits for what this one holds.
                with self.share.released() if not all(f.done() for f in futures) else contextlib.nullcontext():
                    wait(futures)

    def process(self, position: int) -> CandidateProcess:
        """The worker of a size."""
        return self.processes[min(position, len(self.processes) - 1)]

    def _wait(self, future: Future[FirstRun]) -> FirstRun:
        with self.share.released() if not future.done() else contextlib.nullcontext():
            return future.result()

    def _run_in_thread(self, position: int) -> FirstRun:
        with self.share.for_thread() as share:
            return self._run(position, share)

    def _run(self, position: int, share: DeviceShare) -> FirstRun:
        process, reference = self.process(position), self.references[position]
        last = position == len(self.references) - 1
        if last:
            share.wait_for_memory()
        share.acquire_shared()
        process.lease = share.lease(exclusive_allowed=last)
        missing = build(process, reference)
        seed = self.seeds.first(position)
        return FirstRun(missing, call_candidate(process, position, reference.inputs(seed), seed, self.seeds))


def _renames(process: CandidateProcess, reference: Reference, missing: tuple[str, ...]) -> bool:
    """Whether the candidate's own ``load_state_dict`` takes the reference's parameters, strictly, though it names them otherwise."""
    parameters, kept = dict(reference.model.named_parameters(remove_duplicate=False)), reference.model.state_dict()
    if not all(name in parameters and name in kept for name in missing):
        return False
    try:
        process.load({name: tensor.detach() for name, tensor in kept.items()}, reference.training, by="itself")
    except CandidateFailure:
        return False
    return True


def _writes_twice(
    process: CandidateProcess, reference: Reference, missing: tuple[str, ...], inputs: list[Any], seed: int
) -> bool:  # fmt: skip
    """Whether the reference does. Then the candidate's buffers are as they were, for another run."""
    several = writes_twice(reference, inputs, seed)
    buffers = {name: tensor for name, tensor in reference.buffers().items() if name not in missing}
    if several and buffers:
        process.load(buffers, reference.training)
    return several


def build(process: CandidateProcess, reference: Reference) -> tuple[str, ...]:
    """Build the candidate and give it the reference's state, as far as it has it; returns the names that it lacks."""
    process.reference_output_bytes = reference.output_bytes
    built = process.construct(reference.init_args, INIT_SEED, there=process.device != "cpu", gradients=reference.gradients)
    mine = {e.name: (tuple(e.shape), e.dtype) for e in built.state}
    state = reference.state()
    missing = tuple(n for n, t in state.items() if mine.get(n) != (tuple(t.shape), values.dtype_name(t.dtype)))
    process.renamed = {}
    if missing and _renames(process, reference, missing):
        process.renamed = {name: state[name] for name in missing}
        missing = ()
    if missing and process.device != "cpu":  # then both sides keep what the seed gives on a CPU
        process.construct(reference.init_args, INIT_SEED, gradients=reference.gradients)
        reference.as_seeded()
    process.load({n: t for n, t in state.items() if n not in missing}, reference.training)
    process.writes_twice = partial(_writes_twice, process, reference, missing)
    return missing
