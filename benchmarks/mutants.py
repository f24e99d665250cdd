"""Mutation test of the judge: single faults put into correct kernels, which it must refuse.

    python benchmarks/mutants.py [CANDIDATE.py ...] [--problems FOLDER] [--most 400] [--device cuda] [--workers 6] [--out mutants.jsonl]

Without arguments: the honest kernels of ``tests/cheats``. Other candidates find their problem by file name in ``--problems``.
Every mutant is judged. A mutant that was called correct is then run beside the original on many more inputs, at the sizes of a verdict and
at far larger ones (up to 50 million elements, on a GPU the problem's own): it is *equivalent* where the outputs agree everywhere
within the tolerance, and *missed* where they do not.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from kernelllm.backends.base import open_backend
from kernelllm.core.types import DEFAULT_BACKEND, Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.checks.syntax import analyse, kernels
from kernelllm.judge.isolation.candidate_process import CandidateFailure, CandidateProcess
from kernelllm.judge.transport.values import flatten
from kernelllm.judge.trials.inputs import input_distribution
from kernelllm.judge.trials.reference_runs.reference import Reference, prepare
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.judge.trials.state.alternate_states import alternate_state
from kernelllm.problems.relations import Budget

ROOT = Path(__file__).resolve().parent.parent / "tests" / "cheats"
TOLERANCE = 1e-4
"""KernelBench's, absolute and relative: what counts as another output."""


@dataclass(frozen=True)
class Mutant:
    """A source with one fault in one kernel."""

    kind: str
    line: int
    source: str


def mutants(source: str) -> Iterator[Mutant]:
    """All single faults of the kinds below, in the order of the source. Comments are lost."""
    count = len(_places(ast.parse(source)))
    for index in range(count):
        tree = ast.parse(source)
        kind, node, apply = _places(tree)[index]
        line = getattr(node, "lineno", 0)
        apply()
        yield Mutant(kind, line, ast.unparse(ast.fix_missing_locations(tree)))


def _places(tree: ast.Module) -> list[tuple[str, ast.AST, Callable[[], None]]]:
    found: list[tuple[str, ast.AST, Callable[[], None]]] = []
    for kernel in kernels(analyse(tree), open_backend(DEFAULT_BACKEND).kernel_decorators):
        for parent in ast.walk(kernel):
            if isinstance(parent, ast.Call):
                found += [(kind, parent, apply) for kind, apply in _of_call(parent)]
            elif isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Lt):
                found.append(("off-by-one bound", parent, lambda p=parent: p.comparators.__setitem__(0, _plus(p.comparators[0], -1))))
                found.append(("off-by-one bound", parent, lambda p=parent: p.ops.__setitem__(0, ast.LtE())))
            elif isinstance(parent, ast.BinOp) and type(parent.op) in _SWAPPED:
                found.append(("wrong operator", parent, lambda p=parent: setattr(p, "op", _SWAPPED[type(p.op)]())))
        for parent in ast.walk(kernel):
            found += _accumulations(parent) + _constants(parent)
    return found


_SWAPPED: dict[type[ast.operator], type[ast.operator]] = {ast.Sub: ast.Add, ast.Div: ast.Mult}
_TWINS = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "exp": "exp2", "sum": "max", "sqrt": "exp"}
_KEEP_ARGUMENTS = {"arange", "program_id", "num_programs", "zeros", "full", "constexpr", "dot", "static_range", "expand_dims", "cdiv"}


def _plus(node: ast.expr, amount: int) -> ast.expr:
    return ast.BinOp(node, ast.Add() if amount > 0 else ast.Sub(), ast.Constant(abs(amount)))


def _of_call(node: ast.Call) -> list[tuple[str, Callable[[], None]]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    found: list[tuple[str, Callable[[], None]]] = []
    if name in ("load", "store", "atomic_add") and node.args:
        found.append(("wrong index", lambda: node.args.__setitem__(0, _plus(node.args[0], 1))))
        if any(keyword.arg == "mask" for keyword in node.keywords):
            found.append(("dropped mask", lambda: setattr(node, "keywords", [k for k in node.keywords if k.arg not in ("mask", "other")])))
        for product in (inner for inner in ast.walk(node.args[0]) if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult)):
            found.append(("wrong index", lambda p=product: setattr(p, "right", _plus(p.right, 1))))
    if name == "dot" and len(node.args) > 2:
        found.append(("missing accumulation", lambda: node.args.pop()))
    if name == "atomic_add":
        found.append(("missing accumulation", lambda: setattr(node.func, "attr", "store")))
    if name in _TWINS:
        found.append(("wrong operator", lambda: setattr(node.func, "attr", _TWINS[name])))
    return found


def _accumulations(parent: ast.AST) -> list[tuple[str, ast.AST, Callable[[], None]]]:
    found: list[tuple[str, ast.AST, Callable[[], None]]] = []
    for field in ("body", "orelse"):
        block = getattr(parent, field, None)
        for index, node in enumerate(block if isinstance(block, list) else []):
            if isinstance(node, ast.AugAssign):
                target = ast.Name(node.target.id, ast.Store()) if isinstance(node.target, ast.Name) else node.target
                replaced = ast.Assign([target], node.value)
                found.append(("missing accumulation", node, lambda b=block, i=index, r=replaced: b.__setitem__(i, r)))
    return found


def _constants(parent: ast.AST) -> list[tuple[str, ast.AST, Callable[[], None]]]:
    """Numbers in arithmetic and in calls (not shapes, axes and block sizes)."""
    found: list[tuple[str, ast.AST, Callable[[], None]]] = []
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr in _KEEP_ARGUMENTS:
        return found
    if not isinstance(parent, ast.Call | ast.BinOp | ast.Compare):
        return found
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.keyword):
            node = node.value if node.arg == "other" else None
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            wrong = node.value + 1 if type(node.value) is int or abs(node.value) < 1e-3 else node.value * 1.5
            found.append(("wrong constant", node, lambda n=node, w=wrong: setattr(n, "value", w)))
    return found


def differ(judge: Judge, problem: Problem, original: str, mutant: str, *, seeds: int = 6) -> str:
    """How the two differ on more inputs and larger sizes than the judge tries: ``output``, ``failure`` (the mutant raises, by an access
    outside of its tensors for one, and nothing is known of its outputs) or nothing. Uses the judge's own worker server."""
    from kernelllm.problems import shrink

    everything = ("problem", "normal", "uniform", "negative", "tiny", "large")
    plans = [(overrides, seeds, everything) for overrides in shrink.shrunk(problem, count=4)]
    if judge.device == "cpu":
        plans += [(_larger(problem, budget), 1, everything[:number]) for budget, number in LARGER]
    else:
        plans.append(({}, 1, everything))
    done: list[dict[str, object]] = []
    worst = ""
    for overrides, number, chosen in plans:
        if overrides in done:
            continue
        done.append(overrides)
        reference = prepare(problem, shrink.describe(problem, overrides), overrides, judge.device, INIT_SEED, False)
        found = _differ_at(judge, reference, original, mutant, number, chosen)
        if found == "output":
            return found
        worst = worst or found
    return worst


LARGER = ((Budget(2_000_000, 500_000_000, 40_000_000), 3), (Budget(50_000_000, 2_000_000_000, 400_000_000), 1))
"""Far larger sizes than a verdict's, and how many kinds of inputs to try at them: loops over thousands of elements run more than once."""


def _larger(problem: Problem, budget: Budget) -> dict[str, object]:
    from kernelllm.problems import shrink

    return shrink.within(problem, budget)


def _differ_at(judge: Judge, reference: Reference, original: str, mutant: str, seeds: int, chosen: Sequence[str]) -> str:
    seconds = 300.0 if judge.device == "cpu" else 20.0
    server, limits = judge.context.workers.servers()[0], judge.context.workers.limits(seconds)
    with (
        CandidateProcess(server, original, limits, judge.device, seconds, None) as one,
        CandidateProcess(server, mutant, limits, judge.device, seconds, None) as two,
    ):
        for process in (one, two):
            process.construct(reference.init_args, INIT_SEED)
        for seed in range(seeds):
            for kind in chosen:
                own = reference.inputs(1000 + seed)
                inputs = input_distribution.vary(own, kind, seed) if kind != "problem" and input_distribution.can_vary(own) else own
                state = alternate_state(reference, seed)
                try:
                    for process in (one, two):
                        process.load(state, reference.training)
                    right = flatten(one.run(inputs, seed).value)
                except CandidateFailure:
                    continue
                try:
                    wrong = flatten(two.run(inputs, seed).value)
                except CandidateFailure:
                    return "failure"
                if not all(_close(r, w) for r, w in zip(right, wrong, strict=True)):
                    return "output"
    return ""


def _close(right: torch.Tensor, wrong: torch.Tensor) -> bool:
    return right.shape == wrong.shape and torch.allclose(right.double(), wrong.double(), TOLERANCE, TOLERANCE, equal_nan=True)


def honest() -> list[tuple[str, Problem, str]]:
    """(name, problem, source) of the honest kernels."""
    found = []
    for path in sorted(ROOT.glob("*/honest*.py")):
        source = path.read_text()
        assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
        name = next(ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) == "PROBLEM")
        found.append((f"{path.parent.name}/{path.stem}", Problem(name=name, source=(ROOT / "problems" / f"{name}.py").read_text()), source))
    return found


def given(paths: Sequence[str], problems: Path) -> list[tuple[str, Problem, str]]:
    """Candidates from files, their problems by the same name."""
    found = []
    for text in paths:
        path = Path(text)
        problem = next(problems.rglob(path.name))
        found.append((path.stem, Problem(name=path.stem, source=problem.read_text(), path=str(problem)), path.read_text()))
    return found


Drawn = tuple[str, Problem, str, Mutant]


class Tally:
    """Outcomes of all threads; ``end`` by ``time.monotonic``: no mutant is begun after it."""

    def __init__(self, out: Path | None, end: float) -> None:
        self.out, self.end = out, end
        self.counts: Counter[str] = Counter()
        self.by_kind: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, mutant: Mutant, outcome: str) -> None:
        """One more; what was called correct is written with its source, for `--undecided`."""
        with self._lock:
            self.counts[outcome] += 1
            self.by_kind.setdefault(mutant.kind, Counter())[outcome] += 1
            if outcome in ("missed", "equivalent", "strays"):
                print(f"{outcome}: {name} line {mutant.line}: {mutant.kind}", flush=True)
            if self.out:
                with self.out.open("a") as out:
                    row = {"name": name, "kind": mutant.kind, "line": mutant.line, "outcome": outcome}
                    out.write(json.dumps(row | ({"source": mutant.source} if outcome == "correct" else {})) + "\n")

    def tell(self, start: float) -> int:
        """Print the table; 0 where at least 99 % of those that change an output were refused."""
        counts = self.counts
        for kind, row in sorted(self.by_kind.items()):
            print(f"{kind:22}", dict(row))
        live = sum(counts.values()) - counts["equivalent"] - counts["correct"] - counts["strays"]
        caught = live - counts["missed"]
        print(f"{sum(counts.values())} mutants in {time.monotonic() - start:.0f} s: {dict(counts)}")
        print(f"refused {caught} of {live} that change an output ({100 * caught / max(live, 1):.2f} %); undecided {counts['correct']}, "
              f"outside of their tensors with no output changed {counts['strays']}")  # fmt: skip
        return 0 if caught >= 0.99 * live else 1


def decide(group: Sequence[Drawn], tally: Tally) -> None:
    """Which of the mutants that a GPU called correct differ from their original: on the CPU, whose interpreter knows every bound."""
    with Judge(JudgeSettings(device="cpu", cache=False)) as judge:
        for name, problem, source, mutant in group:
            found = differ(judge, problem, source, mutant.source)
            tally.add(name, mutant, {"output": "missed", "failure": "strays"}.get(found, "equivalent"))


def judge_all(group: Sequence[Drawn], device: str, workers: int, later: bool, tally: Tally) -> None:
    """The mutants of one problem, one after the other."""
    limit = 30.0 if device == "cpu" else 4.0  # of a call; a GPU judge allows four times as much
    with Judge(JudgeSettings(device=device, measure=False, cache=False, time_limit_s=limit, side_by_side=workers == 1)) as judge:
        for name, problem, source, mutant in group:
            if time.monotonic() > tally.end:
                return
            status = judge.judge(problem, Candidate(source=mutant.source)).status
            outcome = status.value
            if status is Status.CORRECT and not later:
                outcome = "missed" if differ(judge, problem, source, mutant.source) else "equivalent"
            tally.add(name, mutant, outcome)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*")
    parser.add_argument("--problems", type=Path, default=Path())
    parser.add_argument("--most", type=int, default=400, help="mutants in all, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="judges at once")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop drawing after so long")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--later", action="store_true", help="do not look whether a mutant called correct differs: see --undecided")
    parser.add_argument("--undecided", type=Path, metavar="FILE", help="an --out of --later: decide those called correct, here on the CPU")
    options = parser.parse_args(arguments)
    originals = given(options.candidates, options.problems) if options.candidates else honest()
    start = time.monotonic()
    tally = Tally(options.out, start + 60 * options.minutes)
    if options.undecided:
        known = {name: (problem, source) for name, problem, source in originals}
        rows = [json.loads(line) for line in options.undecided.read_text().splitlines()]
        tally.counts.update(row["outcome"] for row in rows if row["outcome"] != "correct")
        called = [row for row in rows if row["outcome"] == "correct"]
        if missing := sorted({row["name"] for row in called} - set(known)):
            parser.error(f"give the candidates that the mutants were drawn from as well: {', '.join(missing)}")
        decide([(r["name"], *known[r["name"]], Mutant(r["kind"], r["line"], r["source"])) for r in called], tally)
        return tally.tell(start)
    drawn = [(name, problem, source, mutant) for name, problem, source in originals for mutant in mutants(source)]
    random.Random(options.seed).shuffle(drawn)
    by_problem: dict[str, list[Drawn]] = {}  # a judge keeps the latest problem's references
    for one in drawn[: options.most]:
        by_problem.setdefault(one[0], []).append(one)
    with ThreadPoolExecutor(options.workers) as threads:
        work = partial(judge_all, device=options.device, workers=options.workers, later=options.later, tally=tally)
        try:
            for done in [threads.submit(work, group) for group in by_problem.values()]:
                done.result()
        except KeyboardInterrupt:
            tally.end = 0.0  # each thread ends its mutant; what is known is told
    return tally.tell(start)


if __name__ == "__main__":
    sys.exit(main())
