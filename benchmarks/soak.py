"""Many mixed evaluations in a row, a quarter of them hostile: nothing may leak, and every verdict must be the one given alone.

    python benchmarks/soak.py [--count 2000] [--device cpu] [--workers 4] [--minutes 5] [--seed 0]
    python benchmarks/soak.py --rate [--count 120] [--device cpu] [--workers 4]

The checks are switched off, so that hostile code really runs and the design and the sandbox alone must hold. Counted before and after:
processes below this one, resident memory, open descriptors (of judge and servers), files in the temporary folder, and memory of the GPU.
Ctrl-C ends it and tells what was seen.

``--rate`` tells how many candidates are judged a minute instead, by a pool with the usual settings. It draws from the builtin suite's
hand-written solutions: of every ten candidates five are right, three have a single fault in a kernel (of ``mutants.py``), one raises
when it runs and one is no candidate at all. Processor time is told beside the rate: it depends on the machine's load far less.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import resource
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from mutants import mutants

from kernelllm.core.types import Candidate, Problem, Verdict
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.worker.server import descendants
from kernelllm.pool.local import LocalPool, Slot
from kernelllm.suites import open_suite

ROOT = Path(__file__).resolve().parent.parent / "tests" / "cheats"
_KERNEL = (ROOT / "no_kernel" / "honest_helpers.py").read_text()
WARM = 6
"""Candidates that each judge is warmed with before anything is counted, with `--no-alone`."""
PATIENCE = 20
Case = tuple[str, Problem, str]
"""Name, problem, source."""
SLOW = {"hang", "ignore_signals", "stop", "endless"}
HOSTILE = {
    "exit": "os._exit(0)",
    "abort": "os.abort()",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "kill_parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "kill_all": "os.kill(-1, signal.SIGKILL)",
    "fork_bomb": "[os.fork() for _ in range(12)]",
    # once: one for each call would come near to the limit of memory, on this side or on that
    "daemon": "hasattr(self, 'left') or (setattr(self, 'left', 1), os.fork() == 0 and (os.fork() == 0 and time.sleep(600), os._exit(0)))",
    "memory": "self.hoard = [bytearray(1 << 27) for _ in range(1 << 10)]",
    "disk": "open('junk', 'wb').write(bytes(1 << 29))",
    "print": "[print('x' * 100_000) for _ in range(200)]",
    "close": "os.closerange(0, 256)",
    "forge": "os.write(3, bytes([0, 0, 0, 2, 0x80, 0x80]))",
    "flood": "os.write(3, b'x' * 100_000)",
    "thread": "import threading; threading.Thread(target=time.sleep, args=(600,)).start()",
    "recursion": "sys.setrecursionlimit(10**8); f = lambda n: f(n + 1); f(0)",
    "unlink": "import shutil; shutil.rmtree('.', ignore_errors=True)",
    "network": "import socket; socket.create_connection(('127.0.0.1', 22), 1)",
    "hang": "while True: pass",
    "ignore_signals": "[signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15, 24)]; time.sleep(600)",
    "stop": "os.kill(os.getpid(), signal.SIGSTOP)",
}

ON_A_GPU = {
    "astray": "astray[(1,)](x)",
    "endless": "endless[(1,)](torch.zeros(1, device=x.device))",
    "assert": "x.view(-1)[torch.full((4,), 10**12, device=x.device)]",
    "gpu_memory": "self.hoard = [torch.empty(1 << 30, dtype=torch.uint8, device=x.device) for _ in range(1 << 10)]",
}
_KERNELS = """
@triton.jit
def astray(p):
    tl.store(p + (tl.program_id(0).to(tl.int64) + (1 << 44)), 0.0)


@triton.jit
def endless(p):
    while tl.atomic_add(p, 1.0) >= 0:
        tl.atomic_add(p, 1.0)


class ModelNew("""


def hostile(device: str) -> list[Case]:
    """(name, problem, source) of candidates that attack in their first run."""
    problem = Problem(name="relu", source=(ROOT / "problems" / "relu.py").read_text())
    found = []
    for name, attack in (HOSTILE if device == "cpu" else HOSTILE | ON_A_GPU).items():
        armed = _KERNEL.replace("\nclass ModelNew(", _KERNELS)
        lines = armed.replace("def forward(self, x):\n", f"def forward(self, x):\n        {attack}\n")
        found.append((f"hostile/{name}", problem, "import os\nimport signal\nimport sys\nimport time\n" + lines))
    return found


def peaceful() -> list[Case]:
    """(name, problem, source) of the fixtures, honest kernels and cheats alike, without those of ``limits``."""
    found = []
    for path in sorted(ROOT.glob("*/*.py")):
        if path.parent.name in ("problems", "limits"):
            continue
        source = path.read_text()
        assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
        name = next(ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) == "PROBLEM")
        problem = Problem(name=name, source=(ROOT / "problems" / f"{name}.py").read_text())
        found.append((f"{path.parent.name}/{path.stem}", problem, source))
    return found


def held(folders: Sequence[Path]) -> dict[str, int]:
    """What this process and everything below it hold now; ``folders``: the servers' own."""
    everyone = [os.getpid(), *descendants(os.getpid())]
    resident = descriptors = 0
    for pid in everyone:
        try:
            resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            descriptors += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
    on_gpu: dict[str, int] = {}
    files = sum(1 for folder in folders for _ in folder.rglob("*"))
    if torch.cuda.is_initialized():
        free, total = torch.cuda.mem_get_info()
        on_gpu = {"gpu_mib": (total - free) >> 20}
    return {"processes": len(everyone), "resident_mib": resident >> 20, "descriptors": descriptors, "files": files} | on_gpu


def settings(device: str, limit_s: float) -> JudgeSettings:
    """Small and without checks."""
    memory = 2**30 if device == "cpu" else 2**32
    return JudgeSettings(
        device=device, sizes=1, seeds=1, measure=False, cache=False, checks=(), time_limit_s=limit_s, memory_limit_bytes=memory
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", action="store_true", help="how many candidates are judged a minute")
    parser.add_argument("--count", type=int, help="candidates; 2000, or 120 with --rate")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=1, help="judges side by side")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no verdict after so long")
    parser.add_argument("--no-alone", action="store_true", help="hold each verdict against the first one in the mix")
    parser.add_argument("--out", type=Path, help="the verdict of each candidate, as JSON")
    options = parser.parse_args(arguments)
    options.count = options.count or (120 if options.rate else 2000)
    if options.rate:
        return judge_rate(options)
    end = time.monotonic() + 60 * options.minutes
    good, bad = peaceful(), hostile(options.device)
    if options.device != "cpu":  # with their check off, a race decides
        good = [case for case in good if not case[0].startswith("streams/cheat")]
    chance = random.Random(options.seed)
    order = [chance.choice(bad if number % 4 == 0 else good) for number in range(options.count)]
    with contextlib.ExitStack() as stack:
        judges = [stack.enter_context(Judge(settings(options.device, options.time_limit))) for _ in range(options.workers)]
        soak = Soak(judges, options.time_limit, end)
        first = order[: WARM * options.workers] if options.no_alone else list({case[0]: case for case in order}.values())
        soak.run(first, options.workers if options.no_alone else 1)
        soak.counts.clear()
        before = soak.held()
        print(f"{len(soak.known)} candidates judged {'first' if options.no_alone else 'alone'}; {before}", flush=True)
        soak.run(order, options.workers)
        after = soak.held()
    print(f"{soak.counts.total()} verdicts: {dict(soak.counts)}")
    print(f"hostile: { {n: s for n, s in soak.known.items() if n.startswith('hostile/')} }")
    print(f"before {before}")
    print(f"after  {after}")
    print(f"at the end {soak.held()}")
    if options.out:
        options.out.write_text(json.dumps(soak.known))
    hostile_correct = [name for name, status in soak.known.items() if name.startswith("hostile/") and status == "correct"]
    print(f"hostile candidates called correct (their attack did nothing): {hostile_correct}")
    leaks = leaked(before, after)
    print(f"leaks: {leaks or 'none'}; verdicts that differ: {len(soak.differing)}")
    return 1 if leaks or soak.differing else 0


class Soak:
    """Candidates judged by several judges, each in a thread of its own. Ctrl-C ends it early, and so does ``end``, by time.monotonic."""

    def __init__(self, judges: Sequence[Judge], limit_s: float, end: float) -> None:
        self.judges, self.limit_s, self.end = judges, limit_s, end
        self.folders = [server.root for judge in judges for server in judge.context.workers.servers()]
        self.known: dict[str, str] = {}
        """The first status of each candidate."""
        self.counts: Counter[str] = Counter()
        self.differing: list[str] = []
        self.stopped = False
        """By Ctrl-C."""
        self._lock = threading.Lock()

    def held(self) -> dict[str, int]:
        """What this process, its judges and their servers hold once nothing is being made or ended, or after :data:`PATIENCE` seconds."""
        end, seen = time.monotonic() + PATIENCE, held(self.folders)
        while time.monotonic() < end:
            time.sleep(1.0)
            last, seen = seen, held(self.folders)
            if all(abs(seen[key] - last[key]) <= (8 if key.endswith("mib") else 0) for key in seen):
                break
        return seen

    def run(self, cases: Sequence[Case], workers: int) -> None:
        """Judge them all."""
        start, left = time.monotonic(), iter(cases)

        def work(judge: Judge) -> None:
            usual, quick = judge.settings, replace(judge.settings, time_limit_s=min(2.0, self.limit_s))
            while not self.stopped and time.monotonic() < self.end and (case := next_of(left, self._lock)):
                name, problem, source = case
                judge.settings = quick if name.removeprefix("hostile/") in SLOW else usual
                self._note(name, judge.judge(problem, Candidate(source=source)).status.value, start)
            judge.settings = usual

        with ThreadPoolExecutor(workers) as pool:
            try:
                for done in [pool.submit(work, judge) for judge in self.judges[:workers]]:
                    done.result()
            except KeyboardInterrupt:
                self.stopped = True  # each judge ends its verdict; what is known is told

    def _note(self, name: str, status: str, start: float) -> None:
        with self._lock:
            self.counts[status] += 1
            if status != self.known.setdefault(name, status):
                self.differing.append(f"{name}: first {self.known[name]}, then {status}")
                print(self.differing[-1], flush=True)
            if self.counts.total() % 50 == 0:
                rate = 60 * self.counts.total() / (time.monotonic() - start)
                print(f"{self.counts.total()}: {held(self.folders)} {rate:.0f} a minute", flush=True)


def next_of(left: Iterator[Case], lock: threading.Lock) -> Case | None:
    """The next one, for whichever thread asks."""
    with lock:
        return next(left, None)


def leaked(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """What there is more of than chance explains."""
    leaks = [key for key in ("processes", "descriptors", "files") if after[key] > before[key] + 2]
    if after.get("gpu_mib", 0) > before.get("gpu_mib", 0) * 1.1 + 512:
        leaks.append("gpu_mib")
    if after["resident_mib"] > before["resident_mib"] * 1.1 + 64:
        leaks.append("resident_mib")
    return leaks


# -- how many verdicts a minute ------------------------------------------------------------------

SOLUTIONS = ROOT.parent / "suites" / "builtin_solutions"
KINDS = ("right", "fault", "right", "raises", "right", "fault", "right", "invalid", "right", "fault")


def candidate(problem: Problem, kind: str, chance: random.Random) -> Candidate:
    """The problem's solution, or a wrong one made of it."""
    source = (SOLUTIONS / f"{problem.name}.py").read_text()
    if kind == "fault":
        source = chance.choice([m.source for m in mutants(source)])
    elif kind == "raises":
        failing = "    def forward(self, *inputs):\n        return kernel_that_is_not_there(*inputs)\n\n"
        source = source.replace("    def forward(self", f"{failing}    def was(self")
    elif kind == "invalid":
        source = "Here is the kernel that you asked for:\n" + source
    return Candidate(source=source)


Item = tuple[str, Problem, Candidate]


def opened_judge(settings: JudgeSettings, slot: Slot) -> Judge:
    return Judge(settings)


def judged(judge: Judge, item: Item) -> Verdict:
    """The pool's function."""
    return judge.judge(item[1], item[2])


def judge_rate(options: argparse.Namespace) -> int:
    """Candidates a minute through the pool, whose processes are warm before the clock starts."""
    chance = random.Random(options.seed)
    problems = list(open_suite("builtin").problems())
    items: list[Item] = []
    for index in range(options.count):
        kind, problem = KINDS[index % len(KINDS)], chance.choice(problems)
        items.append((kind, problem, candidate(problem, kind, chance)))
    settings = JudgeSettings(device=options.device, cache=False, measure=options.device != "cpu")
    statuses: Counter[str] = Counter()
    seconds: dict[str, list[float]] = {}
    setup = partial(opened_judge, settings)
    with LocalPool[Item, Verdict](setup, judged, devices=[options.device], per_device=options.workers) as pool:
        for _ in pool.run([("right", problems[0], candidate(problems[0], "right", chance))] * options.workers):
            pass
        start, load = time.monotonic(), os.getloadavg()[0]
        for number, done in enumerate(pool.run(items), 1):
            if done.result is None:
                print(done.error, file=sys.stderr)
                return 1
            kind = done.item[0]
            statuses[f"{kind}: {done.result.status}"] += 1
            seconds.setdefault(kind, []).append(done.result.seconds)
            if number % 20 == 0:
                print(f"{number}: {60 * number / (time.monotonic() - start):.0f} a minute, load {os.getloadavg()[0]:.1f}", flush=True)
        took = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for kind, times in seconds.items():
        print(f"{kind}: median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    print(f"verdicts: {dict(sorted(statuses.items()))}")
    print(f"processor time of a candidate: {(used.ru_utime + used.ru_stime) / options.count:.2f} s, starting the pool included")
    loads = f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(f"{60 * options.count / took:.0f} candidates a minute with {options.workers} workers; {loads}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
