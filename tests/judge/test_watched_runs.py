"""Who is one thing in trials and another in timed runs, or after so many calls, is found when the timed runs are over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
import torch
from judge.problems import MATMUL, candidate, matmul

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.timing import contestants
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.schedule import INIT_SEED

EXACT = matmul(', input_precision="ieee"')
OWN = EXACT.source.replace("class ModelNew", "class Own")
LARGE = Problem(name="large", source=MATMUL.source.replace("M = 64\nK = 96\nN = 80", "M = 512\nK = 768\nN = 640"))
COPY = """
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)
def copied(x):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def other(forward: str) -> Candidate:
    """One that has a product of its own, ``self.own``, a kernel that copies, and this forward."""
    return candidate(OWN + COPY, forward, init="self.own, self.calls, self.known = Own(), 0, None", arguments="x, w")


HONEST = "        return self.own(x, w)"
CHANGES = """        self.calls += 1
        return self.own(x, w) if self.calls <= {calls} else copied(x @ w)"""
KEEPS = """        if self.known is None or not (torch.equal(x, self.known[0]) and torch.equal(w, self.known[1])):
            self.known = x.clone(), w.clone(), self.own(x, w)
        return self.known[2]"""
WRONG_LATER = """        self.calls += 1
        return self.own(x if self.calls < 60 else torch.zeros_like(x), w)"""
WRONG_WHERE_FLUSHED = """        self.known = self.known or torch.cuda.memory_allocated()
        return self.own(x if torch.cuda.memory_allocated() - self.known < 2**27 else torch.zeros_like(x), w)"""
LEAVES_WORK = """        def later(self=self):
            torch.cuda._sleep(2**30)
            self.known = torch.cuda.Event()
            self.known.record()
        done = self.known is None or self.known.query()
        weakref.finalize(x, later)
        return self.own(x if done else torch.zeros_like(x), w)"""
WRITES = """        self.calls += 1
        result = self.own(x, w)
        if self.calls > 25:
            x[:1, :1].mul_(1.000001)
        return result"""
KNOWS_POISON = """        probe = torch.empty(2**18, device=x.device)
        watched = bool(probe.isnan().all())
        probe.zero_()  # or the next call's probe may be this memory, poisoned still
        return self.own(x, w) if watched else copied(x @ w)"""


@contextmanager
def worker(judge: Judge, one: Candidate) -> Iterator[tuple[CandidateProcess, Reference]]:
    """A worker that holds a candidate, and the reference it was judged beside."""
    judge.judge(MATMUL, EXACT)  # the server is up now
    with (
        judge.context.references.borrowed(MATMUL) as references,
        judge.context.workers.start(one, 120.0) as process,
    ):
        process.construct(references[0].init_args, INIT_SEED)
        references[0].run(references[0].inputs(1), 1, first=True)
        yield process, references[0]


def test_an_honest_candidate_is_what_it_was(warm: Judge) -> None:
    with worker(warm, other(HONEST)) as (process, reference):
        seen = contestants.watch_once_more(process, reference, [reference.inputs(7)], 7, timed={0: 1}, judged=1)
    assert seen.findings == []
    assert not any("mm" in name for name in seen.watched[-1].ops)
    assert any("mm" in name for name in seen.watched[-1].reference_ops)


def test_one_that_changes_after_some_calls_is_watched_when_it_has(warm: Judge) -> None:
    with worker(warm, other(CHANGES.format(calls=2))) as (process, reference):
        for seed in range(2):
            assert not any("mm" in name for name in process.run(reference.inputs(seed), seed, apart=True).ops)
        seen = contestants.watch_once_more(process, reference, [reference.inputs(7)], 7, timed={0: 1}, judged=1)
    assert any("mm" in name for name in seen.watched[-1].ops)


def test_one_that_knows_poisoned_memory_is_not_told_by_it(warm: Judge) -> None:
    with worker(warm, other(KNOWS_POISON)) as (process, reference):
        assert not any("mm" in name for name in process.run(reference.inputs(1), 1, apart=True).ops)
        seen = contestants.watch_once_more(process, reference, [reference.inputs(7)], 7, timed={0: 1}, judged=1)
    assert any("mm" in name for name in seen.watched[-1].ops)


def test_results_that_are_kept_for_equal_inputs(warm: Judge) -> None:
    with worker(warm, other(KEEPS)) as (process, reference):
        inputs = reference.inputs(7)
        process.run(inputs, 7)
        (found,) = contestants.watch_once_more(process, reference, [inputs], 7, timed={0: 0}, judged=1).findings
    assert found.check == "replay"
    assert "the first launched 1 kernels and the second 0" in found.message


def test_fewer_launches_while_timed(warm: Judge) -> None:
    with worker(warm, other(HONEST)) as (process, reference):
        (found,) = contestants.watch_once_more(process, reference, [reference.inputs(7)], 7, timed={0: 0}, judged=1).findings
    assert found.check == "timed_launches"


@pytest.mark.parametrize(("launches", "told"), [(1, []), (2, ["timed_launches"])])
def test_launches_among_timed_runs_are_those_of_the_watched_ones(warm: Judge, launches: int, told: list[str]) -> None:
    with worker(warm, other(HONEST)) as (process, reference):
        sets = [reference.inputs(7), reference.inputs(8)]
        among = [contestants.WatchedRun(1, launches, {"aten.mm.default": 1}, {"mm": 1.0})]
        seen = contestants.watch_once_more(process, reference, sets, 7, among=among, timed={0: 1, 1: 1}, judged=1)
    assert [f.check for f in seen.findings] == told
    assert [one.where for one in seen.watched] == ["among its timed runs", "after it was timed"]
    assert seen.watched[0].ops == {"aten.mm.default": 1}


@pytest.mark.gpu
def test_a_timed_batch_may_end_with_a_watched_run(warm_gpu: Judge) -> None:
    with worker(warm_gpu, other(CHANGES.format(calls=3))) as (process, reference):
        sets = [reference.inputs(7), reference.inputs(8)]
        first, _ = process.time_runs(sets, order=(0,), warmup=1, watch=1)
        second, _ = process.time_runs(sets, order=(1, 0), warmup=0, watch=0)
    assert (len(first.times_ms), first.launches, first.watched_launches) == (1, (1,), 1)
    assert not any("mm" in name for name in first.ops)
    assert (len(second.times_ms), second.launches, second.watched_launches) == (2, (1, 1), 1)
    assert any("mm" in name for name in second.ops)
    assert sum(second.flops.values()) > 0


@pytest.mark.gpu
def test_what_goes_with_the_inputs_leaves_no_work_for_the_time_of_others(warm_gpu: Judge) -> None:
    one = other(LEAVES_WORK)
    with worker(warm_gpu, msgspec.structs.replace(one, source=f"import weakref\n{one.source}")) as (process, reference):
        for seed in range(2):
            process.time_runs([reference.inputs(seed)], order=(0,), warmup=0)
        inputs = reference.inputs(7)
        ran = process.run(inputs, 7)
    assert torch.allclose(ran.value, inputs[0] @ inputs[1], atol=1e-3)


@pytest.mark.gpu
def test_inputs_that_a_timed_run_changes(warm_gpu: Judge) -> None:
    with worker(warm_gpu, other(WRITES.replace("25", "1"))) as (process, reference):
        sets = [reference.inputs(7), reference.inputs(8)]
        process.time_runs(sets, order=(0,), warmup=0)
        assert process.inputs_written_while_timed() == ()
        process.time_runs(sets, order=(1, 0), warmup=0)
        assert process.inputs_written_while_timed() == (0,)


ONE_OF_TWO = """        for known_x, known_w, result in self.known or []:
            if torch.equal(x, known_x) and torch.equal(w, known_w):
                return copied(result)
        result = self.own(x, w)
        self.known = [*(self.known or [])[-1:], (x.clone(), w.clone(), result)]  # who holds more is found in the trials
        return result"""


@pytest.mark.gpu
def test_results_that_are_kept_and_copied_by_a_kernel() -> None:
    large = Problem(name="large", source=MATMUL.source.replace("M = 64\nK = 96\nN = 80", "M = 4096\nK = 4096\nN = 4096"))
    with Judge(JudgeSettings(device="cuda", cache=False, time_limit_s=60, baselines=("eager",), memory_limit_bytes=2**33)) as judge:
        assert judge.judge(large, other(HONEST)).status is Status.CORRECT
        verdict = judge.judge(large, other(ONE_OF_TWO))
    assert verdict.status is Status.CHEATING, verdict.message
    assert "come again" in verdict.message


@pytest.mark.gpu
@pytest.mark.parametrize(("forward", "small"), [(HONEST, 1), ("        return self.own(x, w) if len(x) else x @ w", 2)])
def test_one_that_branches_is_tried_at_more_sizes(forward: str, small: int) -> None:
    with Judge(JudgeSettings(device="cuda", cache=False, measure=False, memory_limit_bytes=2**33)) as judge:
        verdict = judge.judge(LARGE, other(forward))
    assert verdict.status is Status.CORRECT, verdict.message
    assert [s.label for s in verdict.shapes].count("original") == 1
    assert len(verdict.shapes) == small + 1


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("forward", "checks"),
    [
        (HONEST, ()),
        (CHANGES.format(calls=25), ("torch_fallback",)),
        (KEEPS, ("replay", "timed_launches")),  # as the last of the timed runs was on these inputs or on others
        (KNOWS_POISON, ("torch_fallback",)),
        (WRONG_LATER, ("silently_different",)),
        (WRONG_WHERE_FLUSHED, ("timed_output",)),
        (WRITES, ("inputs_written",)),
    ],
    ids=["honest", "changes", "keeps", "poison", "later", "flushed", "writes"],
)
def test_verdict_of_a_judge_that_measures(forward: str, checks: tuple[str, ...]) -> None:
    with Judge(JudgeSettings(device="cuda", cache=False, time_limit_s=60, baselines=("eager",), memory_limit_bytes=2**33)) as judge:
        verdict = judge.judge(LARGE, other(forward))
    if not checks:
        assert verdict.status is Status.CORRECT, verdict.message
        assert verdict.timing is not None
        return
    assert verdict.status is (Status.INCORRECT if "silently_different" in checks else Status.CHEATING), verdict.message
    assert {f.check for f in verdict.findings} & set(checks)


ACCUMULATES = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
@triton.jit
def add_kernel(total_ptr, x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total_ptr + at, tl.load(total_ptr + at, at < n) + tl.load(x_ptr + at, at < n), at < n)
class ModelNew(nn.Module):
    def forward(self, total, x):
        add_kernel[(triton.cdiv(total.numel(), 256),)](total, x.contiguous(), total.numel(), BLOCK=256)
        return total
"""


@pytest.mark.gpu
def test_a_reference_that_adds_to_its_input_is_not_held_against_repeated_runs() -> None:
    text = """
import torch
import torch.nn as nn
N = 4096
class Model(nn.Module):
    def forward(self, total, x):
        return total.add_(x)
def get_inputs():
    return [torch.randn(N), torch.randn(N)]
def get_init_inputs():
    return []
"""
    with Judge(JudgeSettings(device="cuda", cache=False)) as judge:
        verdict = judge.judge(Problem(name="total", source=text), Candidate(source=ACCUMULATES))
        wrong = judge.judge(Problem(name="total", source=text), Candidate(source=ACCUMULATES.replace("at < n) + tl", "at < n) - tl")))
    assert verdict.status is Status.CORRECT, verdict.message
    assert wrong.status is Status.INCORRECT, wrong.message
