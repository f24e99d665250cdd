"""Holds two builds of this project against each other: what their compilers write, and what their judges say of the same files.

    python benchmarks/builds.py --old CHECKOUT --problems kernelbench/level1 builtin -n 4
    python benchmarks/builds.py --old CHECKOUT --problems kernelbench/level1/50-60 --judge --rounds 3
    python benchmarks/builds.py --old kernelbench:KernelBench/src --problems kernelbench/level1/1-20 --judge --rounds 3 --faults

Each build works in a process of its own, with its own package. First both write every problem, and the files are compared. With
``--judge`` the old build's files (``--files new``: the new build's) are then judged by both builds in turns, on one device, and the
seconds that judging took stand below the table. On a GPU a file is timed in a new worker each round; with ``--gpu-time`` the GPU alone
is timed, as in the profile ``strict``, whatever the profile of the verdicts. Where the two medians are more than 2 % apart, a third
process times the file with CUDA events alone, without either judge and without a sandbox: as a plain loop sees it, with the host's
launching kept out, and with each run waiting for the one before.
``kernelbench:FOLDER`` takes KernelBench's own harness as the old side: it writes nothing, so the new build's files are judged, by the
profile ``kernelbench``, and means are compared.
Sources, differences and one JSON line a judged file go to the folder ``--out``; the same command goes on where it stopped, and with
``--judge`` it judges what lies there: write first without it, where writing would disturb the times.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import importlib.util
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HARNESS = "kernelbench:"
FAR = 0.02
"""Distance of two medians from which on the independent clock is asked."""
AHEAD_CYCLES = 10_000_000
"""For so many cycles the GPU waits, about 5 ms, while the host enqueues a run's launches."""
SIDES = ("old", "new")
Row = dict[str, Any]

# -- in the process of a build: nothing but what all builds have ---------------------------------


def _tuples(given: Row) -> Row:
    """JSON knows lists alone."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def write(request: Row) -> Row:
    """The candidates of this build's compiler."""
    from kernelllm.core.types import Problem

    try:
        from kernelllm.core.writer import open_writer
    except ImportError:  # a build in which the compiler is opened elsewhere
        from kernelllm.generate import writer as open_writer
    written = open_writer("compiler").write(Problem(**_tuples(request["problem"])), request["count"])
    return {"candidates": [{"source": c.source, "parameters": dict(c.params)} for c in written]}


class Judging:
    """Asks this build's judge, which stays warm."""

    def __init__(self) -> None:
        self.judge: Any = None

    def __call__(self, request: Row) -> Row:
        from kernelllm.core.types import Candidate, Problem
        from kernelllm.judge import Judge, JudgeSettings

        start = time.perf_counter()
        if self.judge is None:
            if request.get("gpu_time"):
                _time_gpu_alone()
            self.judge = Judge(JudgeSettings(cache=False, **_tuples(request["settings"])))
        verdict = self.judge.judge(Problem(**_tuples(request["problem"])), Candidate(source=request["source"]))
        for owner in (self.judge, getattr(self.judge, "context", None)):
            if (baselines := getattr(owner, "baselines", None)) is not None and self.judge.device != "cpu":
                baselines.clear()  # the other build needs the memory
        found = {"status": verdict.status.value, "message": "" if verdict.correct else verdict.message[:300]}
        if verdict.timing:
            timed = verdict.timing.candidate
            found |= {"median_ms": timed.median_ms, "mean_ms": timed.mean_ms}
            found["baselines"] = {name: each.median_ms for name, each in verdict.timing.baselines.items()}
        return found | {"seconds": time.perf_counter() - start}


def _time_gpu_alone() -> None:
    """No timed run waits for the one before, whatever the profile: launching does not count."""
    earlier = importlib.util.find_spec("kernelllm.judge.measuring")  # where builds like 3090471 have it
    module = importlib.import_module("kernelllm.judge.measuring" if earlier else "kernelllm.judge.timing.measure")
    measure = module.measure
    module.measure = lambda *given, **options: measure(*given, **options | {"settle": False})


ON_GPU = "\n_on_cpu = get_inputs\n\n\ndef get_inputs():\n    with torch.device('cuda'):\n        return _on_cpu()\n"
_STUBS: dict[str, dict[str, Any]] = {
    "dotenv": {"load_dotenv": lambda *a, **k: None}, "openai": {"OpenAI": object}, "litellm": {"completion": None},
    "requests": {}, "tqdm": {"tqdm": lambda items, *a, **k: items},
}  # fmt: skip


def harness(request: Row) -> Row:
    """The verdict of KernelBench's harness. It gets problems that draw their inputs on the GPU, as this project's judge does."""
    for name, content in _STUBS.items():
        if name not in sys.modules and (content or importlib.util.find_spec(name) is None):
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(content)
    evaluate = importlib.import_module("kernelbench.eval").eval_kernel_against_ref
    start = time.perf_counter()
    found = evaluate(
        request["problem"]["source"] + ON_GPU, request["source"], measure_performance=True, num_correct_trials=5, num_perf_trials=100,
        backend="triton", device=0,
    )  # fmt: skip
    answer: Row = {"status": "error", "message": "no result", "seconds": time.perf_counter() - start}
    if found is not None:
        failed = "compile_error" if not found.compiled else "runtime_error" if "runtime_error" in found.metadata else "incorrect"
        answer |= {"status": "correct" if found.correctness else failed, "message": "" if found.correctness else str(found.metadata)[:300]}
        if found.runtime > 0:
            answer |= {"median_ms": found.runtime, "mean_ms": found.runtime, "baselines": {"eager": found.ref_runtime}}
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        answer["last"] = True  # the candidate broke this process's context
    return answer


def clock(request: Row) -> Row:
    """The median of 100 runs by CUDA events, each after the L2 cache was cleared; the same with the launches enqueued ahead, and with
    each run waiting for the one before, as the profile ``kernelbench`` times."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timed_candidate.py"  # Triton reads kernels from their file
        path.write_text(request["problem"]["source"] + "\n\n" + request["source"])
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ImportError(path)
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with torch.device("cuda"):
            model, inputs = module.ModelNew(*module.get_init_inputs()).cuda(), module.get_inputs()
        flush, found = torch.empty(2**28, dtype=torch.int8, device="cuda"), {}
        for name, lead in (("median_ms", 0), ("ahead_ms", AHEAD_CYCLES), ("settled_ms", 0)):
            events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(100)]
            with torch.no_grad():
                for _ in range(10):
                    model(*inputs)
                for begin, end in events:
                    flush.zero_()
                    if lead:
                        torch.cuda._sleep(lead)
                    begin.record()
                    model(*inputs)
                    end.record()
                    if name == "settled_ms":
                        torch.cuda.synchronize()
            torch.cuda.synchronize()
            found[name] = statistics.median(begin.elapsed_time(end) for begin, end in events)
    return found


def serve() -> int:
    """Answer requests, one JSON line each, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    tasks: dict[str, Callable[[Row], Row]] = {"write": write, "judge": Judging(), "harness": harness, "clock": clock}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = tasks[request["task"]](request)
        except Exception as error:  # noqa: BLE001 - whatever a build raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        if answer.get("last"):
            break
    return 0


# -- in this process -----------------------------------------------------------------------------


class Side:
    """A build's process: started when it is asked, again when it ended or took too long."""

    def __init__(self, build: str, limit_s: float) -> None:
        self.harness = build.startswith(HARNESS)
        folder = Path(build.removeprefix(HARNESS))
        self._path, self._limit_s = folder if self.harness else folder / "src", limit_s
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        if not self._path.is_dir():
            raise SystemExit(f"There is no folder {self._path}.")

    def ask(self, task: str, **request: Any) -> Row:
        """The answer; with ``error`` where there is none."""
        if self._process is None:
            paths = [str(self._path.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
            command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            self._answers = queue.Queue()
            threading.Thread(target=_pass_on, args=(self._process.stdout, self._answers), daemon=True).start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"task": task, **request}) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=self._limit_s)
        except queue.Empty:
            self._process.kill()
            line = json.dumps({"error": f"no answer in {self._limit_s:g} s", "last": True})
        except BrokenPipeError:
            line = ""
        answer: Row = json.loads(line) if line else {"error": "the process ended", "last": True}
        if answer.pop("last", False):
            self.close()
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
            self._process = None


def _pass_on(lines: Any, answers: queue.Queue[str]) -> None:
    for line in lines:
        answers.put(line)
    answers.put("")  # the process ended


def problems(suites: list[str]) -> Iterator[Row]:
    """All problems of the suites that were named, as plain data."""
    from kernelllm.suites import open_suite

    for suite in suites:
        for one in open_suite(suite).problems():
            yield {"name": one.name, "source": one.source, "path": one.path, "origin": one.origin, "tags": list(one.tags)}


def kept(name: str, side: str, options: argparse.Namespace) -> dict[str, Row]:
    """The candidates to be judged, where an earlier run wrote them."""
    paths = [options.out / f"{name.replace('/', '__')}.{number}.{side}.py" for number in range(options.n)]
    found = [{"source": path.read_text()} for path in paths if path.exists()]
    return {side: {"candidates": found}} if options.judge and found else {}


def compared(name: str, written: dict[str, Row], out: Path) -> tuple[str, int]:
    """What is different in a problem's candidates, empty where nothing is, and how many there are. Writes sources and differences."""
    stem, found = name.replace("/", "__"), []
    old, new = (written[side].get("candidates", []) for side in SIDES)
    for side in SIDES:
        for number, candidate in enumerate(written[side].get("candidates", [])):
            (out / f"{stem}.{number}.{side}.py").write_text(candidate["source"])
    errors = [written[side].get("error", "") for side in SIDES]
    if errors[0] != errors[1]:
        found.append(f"error {errors[0]!r} -> {errors[1]!r}")
    if len(old) != len(new):
        found.append(f"{len(old)} -> {len(new)} candidates")
    for number, (before, after) in enumerate(zip(old, new, strict=False)):
        if before["parameters"] != after["parameters"]:
            found.append(f"{number}: {before['parameters']} -> {after['parameters']}")
        if before["source"] != after["source"]:
            lines = list(difflib.unified_diff(before["source"].splitlines(), after["source"].splitlines(), *SIDES, lineterm=""))
            (out / f"{stem}.{number}.diff").write_text("\n".join(lines) + "\n")
            changed = sum(line[:1] in "+-" for line in lines) - 2
            found.append(f"{number}: {changed} lines, {out / f'{stem}.{number}.diff'}")
    return "; ".join(found), max(len(old), len(new))


def cost(rows: list[Row]) -> list[str]:
    """What judging took on each side: in all, without the first file, for which the judges start, and for one file."""
    first = {side: [row[side][0]["seconds"] for row in rows if row[side][0].get("seconds")] for side in SIDES}
    if not all(first.values()):
        return []
    parts = {"in all": sum, "without the first file": lambda taken: sum(taken[1:]), "for a file (median)": statistics.median}
    told = {part: [of(first[side]) for side in SIDES] for part, of in parts.items()}
    shown = (f"{part} {old:.1f} and {new:.1f} ({100 * (new / old - 1):+.0f} %)" for part, (old, new) in told.items() if old)
    return [f"seconds of judging, old and new, first round: {', '.join(shown)}"]


RAISING = "raise ValueError('this candidate fails on purpose')"
SLOW = "return super().forward(*args)"


def variants(name: str, source: str, faults: bool) -> Iterator[tuple[str, str]]:
    """(kind, source): the file; with ``faults`` also one with a single fault, one that raises, and one that does its work twice."""
    yield "written", source
    if not faults:
        return
    from mutants import mutants

    if made := list(mutants(source)):
        yield "fault", random.Random(name).choice(made).source
    for kind, end in (("raising", RAISING), ("slow", SLOW)):  # a class that names itself in super() would find the new one under its name
        tail = f"class ModelNew(_Honest):\n    def forward(self, *args):\n        super().forward(*args)\n        {end}\n"
        yield kind, source.replace("super(ModelNew, self)", "super()").rstrip() + f"\n\n\n_Honest = ModelNew\n\n\n{tail}"


def judged(sides: dict[str, Side], timer: Side, problem: Row, source: str, options: argparse.Namespace, *, turn: int) -> Row:
    """What both say of one file, in turns (the old build begins where ``turn`` is even), and the independent clock's time where they are
    far apart."""
    row: Row = {side: [] for side in SIDES}
    settings: Row = {"device": options.device, "baselines": ["eager"]}
    settings |= {name: getattr(options, name) for name in ("profile", "tolerance") if getattr(options, name)}
    if sides["old"].harness:
        settings |= {"profile": "kernelbench", "baselines": [], "timed_runs": 100, "memory_limit_bytes": 2**36}
    for number in range(options.rounds):
        for side in SIDES if (number + turn) % 2 == 0 else SIDES[::-1]:
            task = "harness" if sides[side].harness else "judge"
            asked: Row = {"problem": problem, "source": source, "settings": settings, "gpu_time": options.gpu_time}
            row[side].append(sides[side].ask(task, **asked))
        if not all(row[side][-1].get("median_ms") for side in SIDES):
            break
    apart = distance(row, sides["old"].harness)
    if apart is not None and abs(apart) > FAR:
        row["clock"] = timer.ask("clock", problem=problem, source=source)
        timer.close()
    return row


def milliseconds(row: Row, side: str, means: bool) -> list[float]:
    key = "mean_ms" if means else "median_ms"
    return [found[key] for found in row[side] if found.get(key)]


def distance(row: Row, means: bool) -> float | None:
    """New over old, less one, of the medians over all rounds."""
    old, new = (milliseconds(row, side, means) for side in SIDES)
    return statistics.median(new) / statistics.median(old) - 1 if old and new else None


def report(rows: list[Row], means: bool) -> str:
    """The table of judged files, and the distances in all."""
    head = f"{'problem':44} {'kind':9} {'old':14} {'new':14} {'old ms':>9} {'new ms':>9} {'distance':>9} {'spread old, new':>16}"
    lines, apart, differ, spreads = [f"{head} {'clock ms':>9} {'ahead':>9} {'settled':>9}"], [], [], []
    for row in rows:
        said = [row[side][0].get("status", "no verdict") for side in SIDES]
        text = f"{row['problem'][:44]:44} {row['kind']:9} {said[0][:14]:14} {said[1][:14]:14}"
        if (one := distance(row, means)) is not None:
            times = [milliseconds(row, side, means) for side in SIDES]
            spread = [max(each) / min(each) - 1 for each in times]
            clock_ms = [row["clock"][key] for key in ("median_ms", "ahead_ms", "settled_ms") if key in row.get("clock", {})]
            text += "".join(f" {statistics.median(each):9.4f}" for each in times) + f" {100 * one:+8.2f}%"
            text += f" {100 * spread[0]:7.2f}% {100 * spread[1]:6.2f}%" + "".join(f" {each:9.4f}" for each in clock_ms)
            apart.append(abs(one))
            spreads.append(spread)
        lines.append(text)
        if len({status == "correct" for status in said}) > 1 or "no verdict" in said:
            differ.append(f"  {row['problem']} {row['kind']}: {', '.join(f'{s} {row[s][0]}' for s in SIDES)}")
    lines.append(f"{len(rows)} files, {len(rows) - len(differ)} with the same verdict (correct or not)")
    if apart:
        ranked = sorted(apart)
        high = ranked[min(len(ranked) - 1, round(0.95 * len(ranked)))]
        lines.append(f"times of {len(apart)} files: distance {100 * statistics.median(apart):.2f} % (median), {100 * high:.2f} % (95th "
                     f"percentile), {sum(a > FAR for a in apart)} further than {100 * FAR:g} %")  # fmt: skip
        own = (f"{side} {100 * statistics.median(s):.2f} %" for side, s in zip(SIDES, zip(*spreads, strict=True), strict=True))
        lines.append(f"largest over smallest time of one file, median: {', '.join(own)}")
    lines += cost(rows)
    return "\n".join([*lines, *(["Verdicts that differ or are missing:", *differ] if differ else [])])


def run(options: argparse.Namespace) -> int:
    """Write, compare, judge."""
    options.out.mkdir(parents=True, exist_ok=True)
    sides, timer = {side: Side(getattr(options, side), options.limit) for side in SIDES}, Side(str(options.new), options.limit)
    log, end, counts = options.out / "judged.jsonl", time.monotonic() + options.budget, Counter[str]()
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {(row["problem"], row["kind"]) for row in rows}
    means = sides["old"].harness
    source_of = "new" if means else options.files
    writers = [side for side in SIDES if not sides[side].harness]
    try:
        with ThreadPoolExecutor(2) as pool, log.open("a") as out:
            for problem in problems(options.problems):
                if time.monotonic() > end:
                    print("The budget is over; the same command goes on.")
                    break
                name = problem["name"]
                written = kept(name, source_of, options)
                if not written:
                    ask = {side: pool.submit(sides[side].ask, "write", problem=problem, count=options.n) for side in writers}
                    written = {side: asked.result() for side, asked in ask.items()}
                    if not means:
                        different, count = compared(name, written, options.out)
                        counts.update({"differently" if different else "the same" if count else "by neither": 1, "candidates": count})
                        same = f"the same ({count})" if count else f"written by neither: {written['new'].get('error')}"
                        print(f"{name:44} {different or same}", flush=True)
                if not options.judge or not (candidates := written[source_of].get("candidates")):
                    continue
                for number, candidate in enumerate(candidates[: options.n]):
                    for kind, text in variants(name, candidate["source"], options.faults):
                        key = {"problem": name, "kind": f"{kind}.{number}" if number else kind}
                        if tuple(key.values()) not in done:
                            rows.append(key | judged(sides, timer, problem, text, options, turn=len(rows)))
                            out.write(json.dumps(rows[-1]) + "\n")
                            out.flush()
    finally:
        for side in (*sides.values(), timer):
            side.close()
    if not means and counts:
        told = ", ".join(f"{counts[how]} {how}" for how in ("the same", "differently", "by neither"))
        print(f"problems written {told}; {counts['candidates']} candidates")
    if options.judge:
        print(report(rows, means))
    return 0 if means or rows or counts["candidates"] else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, metavar="CHECKOUT", help="the build before; or kernelbench:FOLDER of its package")
    parser.add_argument("--new", default=str(ROOT), metavar="CHECKOUT", help="default: this one")
    parser.add_argument("--problems", nargs="+", required=True, metavar="SUITE", help="as kernelllm bench takes them")
    parser.add_argument("-n", type=int, default=1, help="candidates that each build writes for a problem, or that are judged")
    parser.add_argument("--judge", action="store_true", help="judge the candidates of each problem by both builds")
    parser.add_argument("--files", choices=SIDES, default="old", help="whose candidates are judged")
    parser.add_argument("--profile", help="of both judges; kernelbench: a file of an older build may be silently different in other uses")
    parser.add_argument("--gpu-time", action="store_true", help="time the GPU alone, as strict does, under any profile")
    parser.add_argument("--tolerance", type=float, help="of both judges")
    parser.add_argument("--faults", action="store_true", help="judge three worse versions of each file as well")
    parser.add_argument("--rounds", type=int, default=1, help="times that a file is judged by each build, on a GPU")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that one answer of a build may take")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no problem is begun")
    parser.add_argument("--out", type=Path, default=Path("builds"))
    options = parser.parse_args()
    if options.gpu_time and options.old.startswith(HARNESS):
        parser.error("--gpu-time: KernelBench's harness waits for each run.")
    return run(options)


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["--serve"] else main())
