"""From rows to a set: duplicates go, benchmarks' problems go, families are split. Every row that goes is counted with its reason."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kernelllm.core.types import Problem, digest
from kernelllm.pairs import canonical, operator_graph
from kernelllm.pairs.row import Pair
from kernelllm.pairs.similar import Similar

EXAMPLES = 3
"""Dropped rows that the report shows for each reason."""
HELD_OUT = {"validation": 0.05, "test": 0.05}
"""Splits beside ``train``, and the share of rows that each has at most."""
LARGE = 0.01
"""Families with a larger share of the rows are for training."""


class CleaningReport(msgspec.Struct, kw_only=True):
    """What was kept and what went, and why."""

    rows: int = 0
    kept: int = 0
    dropped: dict[str, int] = {}
    """Reason to rows."""
    examples: dict[str, list[str]] = {}
    """Reason to ``row: what it is like``."""
    benchmarks: dict[str, int] = {}
    """Suite to the problems that rows were held against."""
    splits: dict[str, int] = {}
    families: int = 0

    def drop(self, reason: str, row: str, like: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES:
            shown.append(f"{row}: {like}")

    def add(self, part: CleaningReport) -> None:
        """What went when a part of the set was made."""
        self.rows += part.rows - part.kept
        for reason, count in part.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            self.examples[reason] = [*self.examples.get(reason, ()), *part.examples.get(reason, ())][:EXAMPLES]


class Benchmarks:
    """The problems that no row may be like: by text without names, by text without names and numbers, by graph, by runs of tokens."""

    def __init__(self, suites: Iterable[tuple[str, Iterable[Problem]]]) -> None:
        self.counts: Counter[str] = Counter()
        self._exact: dict[str, str] = {}
        self._numberless: dict[str, str] = {}
        self._graphs: dict[str, str] = {}
        self._similar = Similar()
        for suite, problems in suites:
            for problem in problems:
                self.counts[suite] += 1
                key = f"{suite}:{problem.name}"
                self._exact[canonical.fingerprint(problem.source)] = key
                self._numberless[canonical.fingerprint(problem.source, numbers=False)] = key
                graph, operators = operator_graph.graph_hash(problem)
                if len(operators) > 1:  # a single operator is no problem of anybody's
                    self._graphs[graph] = key
                self._similar.add(key, problem.source)

    def like(self, row: Pair) -> tuple[str, str]:
        """(in what way, which problem) a row is like one of a benchmark; ("", "") where it is like none."""
        if found := self._exact.get(row.fingerprint):
            return "in a benchmark: same text", found
        if found := self._numberless.get(canonical.fingerprint(row.python_code, numbers=False)):
            return "in a benchmark: same text but for numbers", found
        if found := self._graphs.get(row.graph):
            return "in a benchmark: same operators in the same graph", found
        if found := self._similar.nearest(row.python_code):
            return "in a benchmark: nearly the same text", found
        return "", ""


def cleaned(
    rows: Iterable[Pair], benchmarks: Benchmarks | None, *, per_module: int = 1, per_form: int = 1
) -> tuple[list[Pair], CleaningReport]:
    """The rows that stay, split by family, and the report. At most ``per_module`` kernels stay for one module, and ``per_form`` modules
    with nearly the same text and the same operators, numbers aside."""
    report = CleaningReport(benchmarks=dict(benchmarks.counts) if benchmarks else {})
    kept: list[Pair] = []
    modules: Counter[str] = Counter()
    texts: set[tuple[str, str]] = set()
    near = Similar(0.95)
    graphs: dict[str, str] = {}
    forms: Counter[str] = Counter()
    for row in rows:
        report.rows += 1
        text = (row.fingerprint, digest(row.triton_code))
        if text in texts:
            report.drop("the same pair", row.name, "an earlier row")
            continue
        texts.add(text)
        if modules[row.fingerprint] >= per_module:
            report.drop("the same module", row.name, f"more than {per_module} kernels for it")
            continue
        if benchmarks is not None:
            reason, problem = benchmarks.like(row)
            if reason:
                report.drop(reason, row.name, problem)
                continue
        if not modules[row.fingerprint]:
            like = near.nearest(row.python_code)
            if like and row.graph and graphs[like] == row.graph:  # the same form with other operators is worth keeping
                forms[like] += 1
                if forms[like] >= per_form:
                    report.drop("nearly the same module", row.name, like)
                    continue
            else:
                near.add(row.uuid, row.python_code)
                graphs[row.uuid] = row.graph
        modules[row.fingerprint] += 1
        kept.append(row)
    done = _split(kept)
    report.kept, report.families = len(done), len({r.family for r in done})
    report.splits = dict(Counter(r.split for r in done))
    return done, report


def in_order(rows: Iterable[Pair]) -> list[Pair]:
    """The rows of several sets in an order of their own, of a module the fastest kernel first, then the shortest. No other writings."""
    plain = {row.uuid: row for row in rows if not row.augmented_from}.values()
    return sorted(plain, key=lambda r: (r.fingerprint, r.kernel_ms or float("inf"), len(r.triton_code), r.uuid))


def _split(rows: Sequence[Pair]) -> list[Pair]:
    """Each family in one split. Small families fill the held-out splits in an order that their names decide, the same in every build."""
    sizes = Counter(row.family for row in rows)
    splits: dict[str, str] = {}
    left = {name: share * len(rows) for name, share in HELD_OUT.items()}
    for family in sorted(sizes, key=lambda name: random.Random(name).random()):
        size = sizes[family]
        open_splits = [name for name, rest in left.items() if size <= rest and size <= max(1, LARGE * len(rows))]
        if open_splits:
            splits[family] = max(open_splits, key=lambda name: left[name])
            left[splits[family]] -= size
    return [msgspec.structs.replace(row, split=splits.get(row.family, "train")) for row in rows]
