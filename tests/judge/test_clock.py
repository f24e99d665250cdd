"""The worker's clock against the judge's, on a clock of the test's own."""

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.timing import fresh_inputs, measure
from kernelllm.judge.timing.contestants import TimedCandidate, TimingMethod
from kernelllm.judge.timing.launch_lead import LaunchLead
from kernelllm.judge.transport.protocol import TimedBatch
from kernelllm.judge.trials.comparison.compare import Expected, Rules


class Machine:
    """A candidate on a machine: what its runs take, what a run costs the host, what it reports."""

    input_sets = 1

    def __init__(self, run_ms: float, *, host_ms: float = 0.0, told: float = 1.0, graphs: bool = True, hiccups: int = 0) -> None:
        self.run_ms, self.host_ms, self.told, self.graphs, self.hiccups = run_ms, host_ms, told, graphs, hiccups
        self.now = 0.0
        self.clocked: dict[int, Any] = {}

    def batch(self, order: Sequence[int], *, flush: bool, graph: bool = False, keep: tuple[int, ...] = ()) -> tuple[Any, dict[int, Any]]:
        if graph and not self.graphs:
            raise CandidateFailure(Status.RUNTIME_ERROR, "cannot be captured")
        each = self.run_ms if graph else max(self.run_ms, self.host_ms)
        self.now += (len(order) * each + (120.0 if graph else 0.5)) / 1000
        if self.hiccups > 0 and len(order) > 2:
            self.hiccups -= 1
            self.now += 1.0
        return SimpleNamespace(times_ms=[self.run_ms * self.told] * len(order)), {}

    def judged(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: self.now, sleep=lambda seconds: None))
        return [f.check for f in measure.clock_findings(self, self.run_ms * self.told, 2, random.Random(0))]


def test_an_honest_clock_is_believed_even_after_hiccups(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(1.0).judged(monkeypatch) == []
    assert Machine(1.0, hiccups=3).judged(monkeypatch) == []


def test_a_host_too_slow_for_the_gpu_is_not_a_forged_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(0.9, host_ms=2.1).judged(monkeypatch) == []


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("told", [0.3, 0.5])
def test_a_clock_that_tells_less_is_found_with_and_without_graphs(told: float, graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine(4.0, told=told, graphs=graphs).judged(monkeypatch) == ["clock"]


def test_a_clock_that_tells_the_truth_in_graphs_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sly(Machine):
        def batch(self, order: Sequence[int], *, graph: bool = False, **how: Any) -> tuple[Any, dict[int, Any]]:
            timed, kept = super().batch(order, graph=graph, **how)
            return (SimpleNamespace(times_ms=[self.run_ms] * len(order)) if graph else timed), kept

    assert Sly(4.0, told=0.4).judged(monkeypatch) == ["clock"]


class Memory:
    """A candidate that may keep results: what its first run on new inputs takes, and later ones."""

    def __init__(self, first: float, later: float, lost: int = 0, slow: int = 0) -> None:
        self.first, self.later, self.lost, self.slow = first, later, lost, slow
        """``lost``: pairs that the host held back; ``slow``: pairs whose first run something else slowed down."""

    def first_and_second(self, fresh: list[Any]) -> tuple[float, float] | None:
        if self.lost > 0:
            self.lost -= 1
            return None
        self.slow -= 1
        return self.first + 5.0 * (self.slow >= 0), self.later

    def told(self, reference: Any = None) -> list[str]:
        return [f.check for f in fresh_inputs.kept_results(self, lambda seed: [seed], self.later, random.Random(0), reference)]


def test_runs_on_new_inputs_take_as_long_as_on_those_that_come_again() -> None:
    assert Memory(1.0, 1.0).told() == []
    assert Memory(0.003, 0.002).told() == []  # less than can be told apart
    assert Memory(1.0, 0.98, slow=7).told() == []
    assert Memory(1.0, 0.1, lost=20).told() == []  # nothing is known
    assert Memory(1.0, 0.1, lost=3).told() == ["replay"]
    assert Memory(20.0, 0.1).told() == ["replay"]


def test_a_first_run_may_take_longer_as_far_as_the_reference_s_does() -> None:
    """Sizes that values decide: libraries choose anew."""
    assert Memory(7.0, 4.0).told(Memory(6.0, 4.0)) == []
    assert Memory(7.0, 4.0).told(Memory(4.0, 4.0)) == ["replay"]
    assert Memory(9.0, 4.0).told(Memory(6.0, 4.0)) == ["replay"]
    assert Memory(1.3, 1.0).told(Memory(0.5, 1.0)) == []  # a reference that is faster at first says nothing


class Turning:
    """A worker with a candidate that is wrong in the runs for which ``wrong`` holds, by their number and whether the cache is flushed;
    ``prepares``: wrong where no untimed call came before."""

    def __init__(self, wrong: Callable[[int, bool], bool], *, prepares: bool = False) -> None:
        self.wrong, self.prepares, self.runs = wrong, prepares, 0

    def time_runs(self, sets: list[Any], *, order: tuple[int, ...], keep: tuple[int, ...], **how: Any) -> tuple[Any, dict[int, Any]]:
        first, self.runs = self.runs, self.runs + len(order)
        surprised = self.prepares and how["warmup"] == 0
        kept = {position: not (surprised or self.wrong(first + position, "flush_bytes" in how)) for position in keep}
        return TimedBatch(0, times_ms=(1.0,) * len(order), launching_ms=(0.1,) * len(order)), kept


class Judging:
    """A reference beside which an output is right that is true. ``moves``: its calls count, and what it gives follows from that."""

    def __init__(self, *, moves: bool = False) -> None:
        self.moves, self.calls = moves, 0

    def run(self, inputs: Any, seed: int, *, refinable: bool = True) -> Any:
        before, self.calls = self.calls, self.calls + self.moves
        buffers = [{"calls": torch.tensor(n)} for n in (before, self.calls)]
        compared = lambda value, rules: SimpleNamespace(ok=value, message="")
        return SimpleNamespace(
            error="", compared=compared, by_rounding=lambda value, rules: False, mutated_inputs=(), before=buffers[0], buffers=buffers[1],
            expected=Expected(torch.tensor(float(self.calls))),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (lambda run, flushed: False, []),
        (lambda run, flushed: flushed, ["timed_output"]),  # it tells these runs from others by the memory that is in use
        (lambda run, flushed: run > 60, ["timed_output"]),  # once enough outputs were compared
    ],
)  # fmt: skip
def test_outputs_of_all_timed_runs_may_be_compared(wrong: Callable[[int, bool], bool], found: list[str]) -> None:
    assert told(Turning(wrong)) == found


def test_an_output_that_was_prepared_in_a_call_that_nobody_timed() -> None:
    assert told(Turning(lambda run, flushed: False, prepares=True)) == ["timed_output"]


def test_outputs_that_follow_from_how_many_calls_there_were_are_not_held_against_those_of_the_first() -> None:
    assert told(Turning(lambda run, flushed: True)) == ["timed_output"]
    assert told(Turning(lambda run, flushed: True), Judging(moves=True)) == []


def told(worker: Any, reference: Any = None) -> list[str]:
    method = TimingMethod(torch.empty(1), True, None, LaunchLead(0.1), 1.0)
    candidate = TimedCandidate(worker, [[]], method, random.Random(3), 3)
    for _ in range(20):
        candidate.times([0] * 4)
    candidate.once_more()
    assert measure.clock_findings(candidate, 1.0, 1, random.Random(0)) == []
    assert fresh_inputs.kept_results(candidate, lambda seed: [seed], 1.0, random.Random(0)) == []
    return sorted({f.check for f in measure._output_findings(candidate, reference or Judging(), Rules("strict", None), [[]])})
