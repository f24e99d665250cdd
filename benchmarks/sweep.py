"""Write and judge candidates for every problem of some folders; one JSON line an attempt, a short table at the end.

    python benchmarks/sweep.py PATH/TO/KernelBench/level1 PATH/TO/level2 --out results.jsonl [--device cuda] [-n 4]

Run again with the same --out, it goes on where it stopped. Several GPUs are used at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kernelllm.bench import metrics, summary
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.types import Attempt, Candidate, Cost, Status, Verdict, from_json, to_json
from kernelllm.pool.local import LocalPool, Slot


@dataclasses.dataclass(frozen=True)
class Job:
    path: str
    n: int
    options: dict[str, str]
    judge: dict[str, object]


class State:
    """A slot's judge and writers, built when first needed."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._judges: dict[str, object] = {}

    def judge(self, settings: dict[str, object]):  # type: ignore[no-untyped-def]
        from kernelllm.judge import Judge, JudgeSettings

        key = repr(sorted(settings.items()))
        if key not in self._judges:
            self._judges[key] = Judge(JudgeSettings(**settings))  # type: ignore[arg-type]
        return self._judges[key]

    def close(self) -> None:
        for judge in self._judges.values():
            judge.close()  # type: ignore[attr-defined]


def work(state: State, job: Job) -> list[str]:
    """All attempts for one problem, as JSON."""
    from kernelllm.core.writer import open_writer as writer
    from kernelllm.suites.file import open_problem

    path = Path(job.path)
    name = f"{path.parent.name}/{path.stem}"
    problem = msgspec.structs.replace(open_problem(job.path), name=name)
    made: list[Attempt] = []
    start = time.monotonic()
    try:
        for sample, candidate in enumerate(writer("compiler", **job.options).write(problem, job.n)):
            wrote = time.monotonic() - start
            verdict = state.judge(job.judge).judge(problem, candidate)
            candidate = msgspec.structs.replace(candidate, sample=sample)
            cost = Cost(generate_s=wrote, judge_s=time.monotonic() - start - wrote)
            made.append(Attempt(problem=name, candidate=candidate, verdict=verdict, cost=cost))
            start = time.monotonic()
    except KernelLLMError as error:
        verdict = Verdict(status=Status.INVALID, message=f"not written: {error}")
        cost = Cost(generate_s=time.monotonic() - start)
        made.append(Attempt(problem=name, candidate=Candidate(source="", model="compiler", sample=len(made)), verdict=verdict, cost=cost))
    return [to_json(a, indent=0) for a in made]


def read(out: Path) -> list[Attempt]:
    return [from_json(line, Attempt) for line in out.read_text().splitlines()] if out.exists() else []


def jobs(arguments: argparse.Namespace, done: set[str]) -> Iterator[Job]:
    judge: dict[str, object] = {"device": arguments.device, "measure": not arguments.no_measure}
    files = [f for folder in arguments.folders for f in ([folder] if folder.is_file() else sorted(folder.glob("*.py"), key=_number))]
    for file in files[:: arguments.stride]:
        if f"{file.parent.name}/{file.stem}" not in done:
            yield Job(str(file), arguments.n, {"extern": arguments.extern}, judge)


def _number(file: Path) -> tuple[int, str]:
    head = file.stem.split("_")[0]
    return (int(head) if head.isdigit() else 0, file.stem)


def table(attempts: list[Attempt]) -> str:
    groups: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault(attempt.problem.partition("/")[0], []).append(attempt)
    lines = [summary.markdown(summary.by_group(metrics.outcomes(attempts), summary.level_of))]
    for level, members in sorted(groups.items()):
        solved = {a.problem for a in members if a.verdict.correct}
        whole = {a.problem for a in members if a.verdict.correct and (a.verdict.coverage is None or a.verdict.coverage > 0.999)}
        seconds: Counter[str] = Counter()
        for a in members:
            seconds[a.problem] += a.cost.generate_s + a.cost.judge_s  # type: ignore[assignment]
        lines.append(
            f"{level}: {len(solved)} of {len(seconds)} correct, {len(whole)} with every heavy operator in Triton, "
            f"median {statistics.median(seconds.values()):.1f} s, max {max(seconds.values()):.0f} s a problem"
        )
        for name in sorted(set(seconds) - solved):
            worst = next(a for a in members if a.problem == name)
            lines.append(f"  {name}: {worst.verdict.status.value}: {worst.verdict.message[:200]!r}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-n", type=int, default=1)
    parser.add_argument("--extern", default="avoid")
    parser.add_argument("--stride", type=int, default=1, help="take every k-th problem")
    parser.add_argument("--per-device", type=int, default=2)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no new problem is started")
    parser.add_argument("--no-measure", action="store_true")
    arguments = parser.parse_args()
    devices = ["cpu"]
    if arguments.device == "cuda":
        import torch

        devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    done = {a.problem for a in read(arguments.out)}
    start = time.monotonic()
    todo = (j for j in jobs(arguments, done) if time.monotonic() - start < arguments.budget)
    with LocalPool[Job, list[str]](State, work, devices=devices, per_device=arguments.per_device) as pool, arguments.out.open("a") as out:
        for count, finished in enumerate(pool.run(todo), start=1):
            for line in finished.result or ():
                out.write(line + "\n")
            out.flush()
            name = Path(finished.item.path)
            kinds = [from_json(line, Attempt).verdict.status.value for line in finished.result or ()]
            note = finished.error.strip().splitlines()[-1] if finished.error else " ".join(kinds)
            sys.stderr.write(f"[{time.monotonic() - start:6.0f} s] {count} {name.parent.name}/{name.stem}: {note}\n")
    sys.stdout.write(table(read(arguments.out)) + "\n")


if __name__ == "__main__":
    main()
