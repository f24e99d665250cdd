"""The judge's figures on a GPU: speed, spread, agreement with do_bench, fixtures, degenerate problems.

    python benchmarks/judge_gpu.py --kernelbench PATH [--kb-src PATH] [--from sweep.jsonl] [--budget 25] [SECTION ...]

PATH holds ``level1`` to ``level3``. Sections: relu, aa, dobench, fixtures, degenerate, speed (default: all). A section that fails
prints its error and the next one runs; each ends after about ``--budget`` seconds and says how far it came. ``--from`` takes
candidates out of a file of benchmarks/sweep.py, which saves writing them. ``--problems 1/1 2/12`` replaces a section's list.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.util
import itertools
import pstats
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from judge_candidates import RELU, replaying, zeroing
from judge_pool import from_pool, told
from kernelbench_harness import compiled, evaluate, load, problem, say

from kernelllm.core.types import Candidate, Problem, Severity, SizeSet, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.timing import measure
from kernelllm.judge.trials.compare import Rules
from kernelllm.judge.trials.examiner import INIT_SEED
from kernelllm.judge.trials.reference import Reference, prepare

MEDIUM = [
    "1/10", "1/88", "1/95", "1/73", "1/50", "2/6", "2/24", "2/36", "2/69", "2/12",
]  # fmt: skip
"""Eager takes 0.4 to 3 ms on an H200, inputs are below 0.6 GB."""
MIXED = [f"{level}/{number}" for number in range(1, 100, 10) for level in (1, 2)]
"""Every tenth problem of two levels."""
DEGENERATE = [
    "1/23", "1/37", "2/9", "2/23", "2/36", "2/38", "2/42", "2/65", "2/80", "2/83", "3/3", "3/7", "3/11", "3/12", "3/18", "3/28",
    "3/35",
]  # fmt: skip
AS_KERNELBENCH = {"seeds": 5, "timed_runs": 100}
BASELINES = (("eager",), ("eager", "compile"))
WARM_UP = "1/88"
"""Judged first and not counted."""
LISTS = {"relu": ["1/19"], "aa": MEDIUM, "dobench": MEDIUM, "degenerate": DEGENERATE, "speed": MIXED}

NEEDS_COMPILER = ("dobench", "degenerate", "speed")
ROOT = Path(__file__).resolve().parent.parent


class Context:
    """What the sections share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.sources: dict[str, str] = {}
        self.deadline = 0.0

    def problems(self, section: str) -> list[Problem]:
        return [problem(self.options.kernelbench, name) for name in self.options.problems or LISTS[section]]

    def in_time(self) -> bool:
        return time.monotonic() < self.deadline


def settings(**changes: Any) -> JudgeSettings:
    return replace(JudgeSettings(device="cuda", cache=False, memory_limit_bytes=2**36), **changes)


# -- one verdict ---------------------------------------------------------------------------------


def relu(context: Context) -> None:
    """Seconds of a verdict on level 1 #19, with a judge that is fresh and with one that is warm; at least 100 timed runs."""
    one, candidate = context.problems("relu")[0], Candidate(source=RELU)
    torch.cuda.init()
    for baselines in BASELINES:
        start = time.perf_counter()
        with Judge(settings(baselines=baselines, **AS_KERNELBENCH)) as judge:
            for label in ("cold", "warm", "warm"):
                start = start if label == "cold" else time.perf_counter()
                verdict = judge.judge(one, candidate)
                seconds = time.perf_counter() - start
                runs = verdict.timing.candidate.runs if verdict.timing else 0
                say(f"  {label} {seconds:6.2f} s  {len(verdict.trials)} trials  {runs} runs  {'+'.join(baselines)}: {told(verdict)}")
            if context.options.profile and baselines == ("eager",):
                with cProfile.Profile() as profile:
                    judge.judge(one, candidate)
                pstats.Stats(profile, stream=sys.stdout).sort_stats("cumulative").print_stats(25)
    if context.options.kb_src:
        row = evaluate(load(context.options.kb_src), one.source, RELU)
        say(f"  KernelBench's harness, 5 trials, 100 timed runs: {row['seconds']:.2f} s  {row['status']} {row['ms']} ms {row['message']}")


# -- times ---------------------------------------------------------------------------------------


@contextmanager
def worker(judge: Judge, reference: Reference, source: str) -> Iterator[CandidateProcess]:
    """A worker that holds the candidate, built as the judge builds it before it measures."""
    with CandidateProcess(judge.servers()[0], source, judge.limits(), judge.device, 60.0, None) as process:
        process.construct(reference.init_args, INIT_SEED)
        have = set(process.state(tuple(reference.state())))
        process.load({n: t for n, t in reference.state().items() if n in have}, reference.training)
        yield process


def original(one: Problem, judge: Judge) -> Reference:
    return prepare(one, SizeSet(label="original"), {}, judge.device, INIT_SEED, False)


def aa(context: Context) -> None:
    """The reference against itself: what the spread of speed-ups is where there is no difference."""
    wanted, a_worker = context.options.aa, 4
    ratios: list[tuple[str, float, bool, float]] = []
    with Judge(settings()) as judge:
        problems = context.problems("aa")
        each = wanted // len(problems)
        share = context.options.budget * 2 / max(len(problems), 1)  # this section may take twice its share
        for one in problems:
            end = time.monotonic() + share
            try:
                reference, baselines = original(one, judge), measure.Baselines(("eager",), judge.device)
                mine: list[tuple[str, float, bool, float]] = []
                while len(mine) < each and time.monotonic() < end:
                    with worker(judge, reference, one.source + "\n\nModelNew = Model\n") as process:
                        for _ in range(min(a_worker, each - len(mine))):
                            found = measure.measure(one, process, reference, baselines, Rules("kernelbench", None),
                                                      budget_s=context.options.aa_budget, launches=50, keep=True)  # fmt: skip
                            assert found.timing is not None
                            ratio = found.timing.speedups["eager"]
                            mine.append((one.name, ratio.value, ratio.tie, found.timing.candidate.median_ms))
                            if time.monotonic() > end:
                                break
                baselines.clear()
                ratios += mine
                off = [abs(v - 1) for _, v, _, _ in mine]
                ties = sum(r[2] for r in mine)
                say(f"  {one.name:48} {mine[0][3]:7.3f} ms  {len(mine):3} times  worst {100 * max(off):.2f} %  ties {ties}")
            except Exception as error:  # noqa: BLE001 - the others still count
                say(f"  {one.name}: {type(error).__name__}: {error}")
            torch.cuda.empty_cache()
    large = [r for r in ratios if r[3] > 0.05]
    off = sorted(abs(r[1] - 1) for r in large)
    if off:
        p95 = off[min(len(off) - 1, int(0.95 * len(off)))]
        ties = sum(r[2] for r in large) / len(large)
        say(f"  {len(large)} measurements above 50 us: 95th percentile of |speed-up - 1| {100 * p95:.2f} %, ties {100 * ties:.1f} %")


def dobench(context: Context) -> None:
    """The judge's median of a candidate against triton.testing.do_bench in this process, and against itself in another worker."""
    from triton.testing import do_bench

    differences, repeats = [], []
    say("  ours (worker), again (another worker), do_bench: median ms")
    with Judge(settings()) as judge, tempfile.TemporaryDirectory() as folder:
        for one in context.problems("dobench"):
            source = context.sources.get(one.name)
            if source is None or not context.in_time():
                continue
            try:
                reference = original(one, judge)
                first, again = (_median(judge, one, reference, source) for _ in range(2))
                model = _imported(source, Path(folder)).ModelNew(*reference.init_args[0], **reference.init_args[1]).to("cuda")
                inputs = reference.inputs(7)
                with torch.no_grad():
                    theirs = do_bench(lambda m=model, i=inputs: m(*i), warmup=50, rep=200, return_mode="median")
                del model, inputs
                torch.cuda.empty_cache()
                say(f"  {one.name:48} {first:8.4f} {again:8.4f} {theirs:8.4f}  {100 * (first / theirs - 1):+.2f} %")
                if theirs > 0.05:
                    differences.append(abs(first / theirs - 1))
                    repeats.append(abs(again / first - 1))
            except Exception as error:  # noqa: BLE001 - the others still count
                say(f"  {one.name}: {type(error).__name__}: {str(error)[:200]}")
    if differences:
        worst, most_again = 100 * max(differences), 100 * max(repeats)
        say(f"  {len(differences)} kernels above 50 us: worst difference {worst:.2f} %, worst repeat {most_again:.2f} %")


def _median(judge: Judge, one: Problem, reference: Reference, source: str) -> float:
    none = measure.Baselines((), judge.device)
    with worker(judge, reference, source) as process:
        found = measure.measure(one, process, reference, none, Rules("kernelbench", None), budget_s=2.0, launches=50)
    assert found.timing is not None
    return found.timing.candidate.median_ms


_numbers = itertools.count()


def _imported(source: str, folder: Path) -> Any:
    """The candidate as a module of this process (Triton reads kernels from their file)."""
    name = f"candidate_{next(_numbers)}"
    (folder / f"{name}.py").write_text(source)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# -- right and wrong -----------------------------------------------------------------------------


def fixtures(context: Context) -> None:
    """Every fixture of tests/cheats; what misses is judged once more, alone."""
    sys.path.insert(0, str(ROOT))
    from tests.judge.test_checks import FIXTURES, header, label
    from tests.judge.test_checks import ROOT as CHEATS

    local = threading.local()
    judges: list[Judge] = []
    base = settings(seeds=2, measure=False, memory_limit_bytes=2**33)

    def one(path: Path) -> tuple[Path, bool, str, float]:
        if not hasattr(local, "judge"):
            local.judge = Judge(base)
            judges.append(local.judge)
        wanted, start = header(path), time.perf_counter()
        local.judge.settings = replace(base, track=wanted.get("TRACK"), time_limit_s=5.0 if "timeout" in wanted["EXPECT"] else 60.0)
        text = (CHEATS / "problems" / f"{wanted['PROBLEM']}.py").read_text()
        verdict = local.judge.judge(Problem(name=wanted["PROBLEM"], source=text), Candidate(source=path.read_text()))
        failed = {f.check for f in verdict.findings if f.severity is Severity.FAIL} if verdict.status is Status.CHEATING else set()
        as_told = bool({verdict.status.value, *failed} & set(wanted["EXPECT"]))
        return path, as_told, f"expected {'/'.join(wanted['EXPECT'])}, got {told(verdict)} {sorted(failed)}", time.perf_counter() - start

    def late(path: Path) -> tuple[Path, bool, str, float] | None:
        return one(path) if context.in_time() else None

    context.deadline += context.options.budget
    with ThreadPoolExecutor(context.options.threads) as pool:
        done = [row for row in pool.map(late, FIXTURES) if row is not None]
    missed = [one(path) for path, fine, _, _ in done if not fine]
    for judge in judges:
        judge.close()
    missed = [row for row in missed if not row[1]]
    for path, _, text, _ in missed:
        say(f"  {label(path)}: {text}")
    for kind in ("cheat", "honest"):
        total, bad = sum(r[0].name.startswith(kind) for r in done), sum(r[0].name.startswith(kind) for r in missed)
        say(f"  {kind}: {total - bad} of {total} as they should be")
    if done:
        seconds = [r[3] for r in done]
        say(f"  {len(done)} of {len(FIXTURES)} judged; median {statistics.median(seconds):.2f} s, most {max(seconds):.1f} s")


def degenerate(context: Context) -> None:
    """All-zero and replaying candidates must not be correct where the reference hardly depends on its input; honest ones must be."""
    fooled, refused, skipped, told_so = [], [], [], []
    say("  compiler / all zero / first output replayed")
    with Judge(settings(measure=False)) as judge:
        for one in context.problems("degenerate"):
            source = context.sources.get(one.name)
            if source is None or not context.in_time():
                skipped.append(one.name)
                continue
            texts = []
            for kind, text in (("compiler", source), ("zero", zeroing(source)), ("replay", replaying(source))):
                try:
                    verdict = judge.judge(one, Candidate(source=text))
                except Exception as error:  # noqa: BLE001 - the others still count
                    texts.append(f"{type(error).__name__}: {error}")
                    continue
                texts.append(told(verdict))
                marked = any(f.check == "degenerate_problem" for f in verdict.findings)
                if verdict.correct and kind != "compiler":
                    (told_so if marked else fooled).append(f"{one.name} ({kind})")
                if kind == "compiler" and not verdict.correct:
                    refused.append(one.name)
            say(f"  {one.name:44} " + " / ".join(texts))
    say(f"  called correct though they are not: {fooled or 'none'}")
    say(f"  called correct with the finding degenerate_problem (right only where zero is the answer): {told_so or 'none'}")
    say(f"  compiler's candidates not correct: {refused or 'none'}; not reached: {skipped or 'none'}")


# -- speed ---------------------------------------------------------------------------------------


def speed(context: Context) -> None:
    """Seconds a verdict on mixed problems, alone and from a pool; KernelBench's own harness on the same candidates.

    Only eager is timed beside the candidate, as KernelBench does; the last line adds torch.compile.
    """
    chosen = [p for p in context.problems("speed") if p.name in context.sources]
    alone: dict[str, float] = {}
    with Judge(settings(baselines=("eager",), **AS_KERNELBENCH)) as judge:
        first = problem(context.options.kernelbench, WARM_UP)
        judge.judge(first, Candidate(source=context.sources[first.name]))
        for one in chosen:
            start = time.perf_counter()
            verdict = judge.judge(one, Candidate(source=context.sources[one.name]))
            alone[one.name] = time.perf_counter() - start
            say(f"  {one.name:48} {alone[one.name]:6.2f} s  {told(verdict)}")
    mean, median = statistics.mean(alone.values()), statistics.median(alone.values())
    say(f"  {len(alone)} first verdicts, one at a time: mean {mean:.2f} s, median {median:.2f} s, {3600 / mean:.0f} a GPU-hour")
    torch.cuda.empty_cache()
    first = problem(context.options.kernelbench, WARM_UP)
    items = [(one, context.sources[one.name]) for one in (first, *chosen)]
    pooled = {names: from_pool(items, settings(baselines=names, **AS_KERNELBENCH), slots=context.options.slots) for names in BASELINES}
    if not context.options.kb_src:
        return
    function, theirs = load(context.options.kb_src), {}
    end = time.monotonic() + context.options.kb_budget
    for one in chosen:
        if time.monotonic() > end:
            break
        row = evaluate(function, one.source, context.sources[one.name])
        theirs[one.name] = row["seconds"]
        say(f"  KernelBench: {one.name:35} {row['seconds']:6.2f} s  {row['status']} {row['ms']} ms {row['message'][:100]}")
    total, ours = sum(theirs.values()), sum(alone[n] for n in theirs)
    say(f"  {len(theirs)} through both: KernelBench {total:.1f} s; ours one at a time {ours:.1f} s = {total / ours:.1f} times")
    if len(theirs) == len(chosen):
        for baselines, seconds in pooled.items():
            say(f"  from a pool, {'+'.join(baselines)}: {seconds:.1f} s = {total / seconds:.1f} times")


SECTIONS: dict[str, Callable[[Context], None]] = {
    "relu": relu, "aa": aa, "dobench": dobench, "fixtures": fixtures, "degenerate": degenerate, "speed": speed,
}  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--kb-src", type=Path, help="folder that contains KernelBench's package, kernelbench/")
    parser.add_argument("--from", dest="known", type=Path, help="candidates from a file of benchmarks/sweep.py")
    parser.add_argument("--problems", nargs="*", default=[], metavar="LEVEL/NUMBER")
    parser.add_argument("--budget", type=float, default=25.0, help="seconds a section (aa and fixtures: twice that)")
    parser.add_argument("--kb-budget", type=float, default=40.0, help="seconds for KernelBench's harness in `speed`")
    parser.add_argument("--aa", type=int, default=200, help="measurements")
    parser.add_argument("--aa-budget", type=float, default=0.6, help="seconds a measurement may take")
    parser.add_argument("--slots", type=int, default=8, help="judges at once for `speed`")
    parser.add_argument("--threads", type=int, default=6, help="judges at once for `fixtures`")
    parser.add_argument("--processes", type=int, default=12, help="processes that write candidates")
    parser.add_argument("--profile", action="store_true", help="profile of a warm verdict in `relu`")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {', '.join(sorted(unknown))}; known: {', '.join(SECTIONS)}")
    options.sections = options.sections or list(SECTIONS)
    return options


def main() -> int:
    options = arguments()
    if not torch.cuda.is_available():
        say("There is no CUDA device here.")
        return 1
    context, failed, began = Context(options), 0, time.monotonic()
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    needed = {p.name: p for name in options.sections if name in NEEDS_COMPILER for p in context.problems(name)}
    if "speed" in options.sections:
        warm_up = problem(options.kernelbench, WARM_UP)
        needed[warm_up.name] = warm_up
    if needed:  # at once, before the first section: their processes use all cores
        context.sources = compiled(needed.values(), options.known, options.processes)
    for name in options.sections:
        say(f"\n{name}")
        start = time.monotonic()
        context.deadline = start + options.budget
        try:
            SECTIONS[name](context)
        except Exception:  # noqa: BLE001 - the next section runs
            failed += 1
            say(traceback.format_exc())
        say(f"  ({time.monotonic() - start:.0f} s)")
    say(f"\n{time.monotonic() - began:.0f} s in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
