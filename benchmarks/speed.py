"""How fast written files are beside what is there already: eager, torch.compile's modes, the backends of attention, Liger's kernels.

    python benchmarks/speed.py [SUITE ...] [-n 3] [--modes MODE ...] [--only NAME ...] [--seconds 600] [--writers 8] [--out FOLDER]
    python benchmarks/speed.py --families [--seconds 60]

The first form writes each problem's files (CPU, side by side), then times them one problem after another on one quiet GPU. A line has ms
by wall (calls back to back) and of the GPU alone (a CUDA graph; "-" where that cannot be made), for each way. Where ours is slower, the
kernels of both follow with their us. A table of all comes last. What is done so far is in OUT/summary.json, with the text of the best
files, and in OUT/best/; SIGTERM ends early, with the table. Modes of torch.compile beside its default are prepared last, if there is time.

The second form times products, attention and wide rows of the templates by themselves.
Liger's kernels stand in for torch's functions in eager, where liger-kernel is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pickle
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.cost_model import template_gains
from kernelllm.compiler.templates import attention_half, matmul_half, rows
from kernelllm.core import gpus
from kernelllm.core.types import Problem
from kernelllm.suites import open_suite

Run = Callable[[], Any]
BASES = ("eager", "compile")
MODES = ("max-autotune-no-cudagraphs", "reduce-overhead")
A_PROBLEM = 3.0
"""Seconds that timing one problem takes, about."""
BYTES_A_MS = 4.8e9
"""An H200's memory, for shares of the floor."""


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# ---- clocks


def wall(fn: Run, budget: float = 0.12) -> float:
    """ms a call, calls back to back: the slower of host and GPU."""
    for _ in range(3):
        fn()
    torch.cuda.synchronize()
    start = time.perf_counter()
    fn()
    torch.cuda.synchronize()
    count = max(2, min(100, int(budget / 6 / max(time.perf_counter() - start, 1e-6))))
    times = []
    for _ in range(6):
        start = time.perf_counter()
        for _ in range(count):
            fn()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times) * 1e3


def gpu(fn: Run, budget: float = 0.08) -> float:
    """ms of the GPU alone; nan where no CUDA graph can be made."""
    stream, begin, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    try:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            fn()
            fn()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            fn()
    except Exception:  # noqa: BLE001 - whatever torch says, there is no graph
        torch.cuda.synchronize()
        return float("nan")
    times, count = [], 1
    for round_ in range(7):
        begin.record()
        for _ in range(count):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count)
        if round_ == 1:
            count = max(2, min(100, int(budget * 1e3 / 5 / max(times[-1], 1e-3))))
    return statistics.median(times[2:])


def kernels(fn: Run) -> dict[str, tuple[float, float]]:
    """The us that each kernel takes in one call, and how often it runs; the longest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            fn()
        torch.cuda.synchronize()
    took = sorted(((e.self_device_time_total / 5, e.count / 5, e.key) for e in seen.key_averages()), reverse=True)
    return {key: (us, count) for us, count, key in took if us > 0}


def left_to_torch(took: dict[str, tuple[float, float]], source: str) -> float:
    """The share of the GPU's time in kernels that the file does not define; nan where nothing was seen."""
    own = set(re.findall(r"^ *def (\w+)\(", source, re.MULTILINE))
    total = sum(us for us, _ in took.values())
    return sum(us for key, (us, _) in took.items() if key not in own) / total if total else float("nan")


def error(got: Any, want: Any) -> float:
    """The largest relative L2 error of any tensor."""
    worst = 0.0
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True):
        if not isinstance(b, torch.Tensor) or not b.numel():
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        a, b = (t.reshape(-1)[: 2**27].float().nan_to_num(0.0, 1e30, -1e30) for t in (a, b))
        worst = max(worst, ((a - b).norm() / b.norm().clamp_min(1e-30)).item())
    return worst


def bound(errors: dict[str, float], tolerance: float) -> float:
    """Above which error a file counts as wrong: of a result that is zero but for rounding, torch.compile is as far from eager."""
    return max(tolerance, 2 * errors.get("compile", 0.0))


# ---- problems


def problems(args: argparse.Namespace) -> dict[str, Problem]:
    """The problems asked for, by name, in the order asked for."""
    found = {p.name.rsplit("/", 1)[-1]: p for suite in args.suites for p in open_suite(suite).problems()}
    return {name: found[name] for name in args.only or found if name in found}


def write(problem: Problem, name: str, args: argparse.Namespace) -> None:
    """Write the problem's files, each kept as soon as it is there."""
    start, files = time.time(), []
    for candidate in Compiler(extern="auto").write_here(problem, args.n):
        files.append((label(candidate.params), candidate.source, time.time() - start))
        (args.out / f"{name}.pkl").write_bytes(pickle.dumps(files))
        (args.out / f"{name}_{len(files) - 1}.py").write_text(candidate.source)


def label(params: dict[str, Any]) -> str:
    """A variant's options in short."""
    return "+".join(k if v is True else f"{k}={v}" for k, v in params.items()) or "general"


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def replaced(functions: dict[str, Any]) -> Iterator[None]:
    """While open, torch.nn.functional has these."""
    saved = {name: getattr(F, name) for name in functions}
    for name, function in functions.items():
        setattr(F, name, function)
    try:
        yield
    finally:
        for name, function in saved.items():
            setattr(F, name, function)


def liger(source: str) -> dict[str, Any]:
    """Liger's kernels for the functions of torch that a problem calls, with the signatures of these."""
    if importlib.util.find_spec("liger_kernel") is None:
        return {}
    from liger_kernel.transformers import functional as L

    known = {
        "rms_norm": lambda x, _, weight=None, eps=None: L.liger_rms_norm(x, weight, eps or torch.finfo(x.dtype).eps, in_place=False),
        "layer_norm": lambda x, _, weight=None, bias=None, eps=1e-5: L.liger_layer_norm(x, weight, bias, eps),
        "cross_entropy": lambda x, target, **options: L.liger_cross_entropy(x.clone(), target, **options),  # it writes gradients into x
    }
    text = source.lower().replace("_", "")
    return {name: function for name, function in known.items() if name.replace("_", "") in text}


def under(fn: Run, around: Callable[[], Any]) -> Run:
    def call() -> Any:
        with around():
            return fn()

    return call


def compiled(model: Any, inputs: list[Any], mode: str | None = None) -> Run:
    module = torch.compile(model, mode=mode)
    return lambda: module(*inputs)


def there_already(model: Any, inputs: list[Any], source: str) -> dict[str, Run]:
    """Eager, torch.compile, eager with each backend of attention and with Liger's kernels."""
    found: dict[str, Run] = {"eager": lambda: model(*inputs), "compile": compiled(model, inputs)}
    if "scaled_dot_product_attention" in source:
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            found[backend.name.split("_")[0].lower()] = under(found["eager"], lambda backend=backend: sdpa_kernel(backend))
    if functions := liger(source):
        found["liger"] = under(found["eager"], lambda: replaced(functions))
    return found


def ready(runs: dict[str, Run], want: Any, failed: dict[str, str], seconds: int, until: float) -> dict[str, float]:
    """Run each twice, compare what it gives with eager's, and drop what fails or is late. Returns the errors."""

    def late(*_: Any) -> None:
        raise TimeoutError("not ready in time")

    signal.signal(signal.SIGALRM, late)
    errors: dict[str, float] = {}
    for name, fn in list(runs.items()):
        signal.alarm(max(1, int(min(seconds, until - time.time()))))
        try:
            fn()
            errors[name] = error(fn(), want)
            torch.cuda.synchronize()
        except Exception as problem:  # noqa: BLE001 - the others are timed
            failed[name] = f"{type(problem).__name__}: {str(problem).strip()[:160]}"
            del runs[name]
        finally:
            signal.alarm(0)
    return errors


def measure(problem: Problem, name: str, args: argparse.Namespace) -> None:
    """Prepare all ways, wait for a quiet GPU, time them, and keep the figures."""
    torch.set_grad_enabled(False)
    (args.out / f"{name}.reference.py").write_text(problem.source)
    reference = loaded(args.out / f"{name}.reference.py")
    torch.manual_seed(0)
    with torch.device("cuda"):
        inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in reference.get_inputs()]
        first = reference.get_init_inputs() if hasattr(reference, "get_init_inputs") else []
        called = (first[0], first[1]) if len(first) == 2 and isinstance(first[1], dict) else (first, {})
        model = reference.Model(*called[0], **called[1]).cuda()
        runs, failed = there_already(model, inputs, problem.source), {}
        ours: dict[str, str] = {}
        for i, (variant, source, _) in enumerate(pickle.loads((args.out / f"{name}.pkl").read_bytes())):
            mine = loaded(args.out / f"{name}_{i}.py").ModelNew(*called[0], **called[1]).cuda()
            mine.load_state_dict(model.state_dict())
            modes = {path: module.training for path, module in model.named_modules()}
            for path, module in mine.named_modules():
                module.training = modes.get(path, model.training)
            runs[f"ours {variant}"] = lambda mine=mine: mine(*inputs)
            ours[f"ours {variant}"] = source
    runs |= {mode: compiled(model, inputs, mode) for mode in args.modes}
    errors = ready(runs, model(*inputs), failed, args.ready_seconds, args.until)
    torch.cuda.empty_cache()  # others are prepared beside it
    (args.out / f"{name}.ready").touch()
    while not (args.out / f"{name}.go").exists():
        time.sleep(0.05)
    times: dict[str, tuple[float, float]] = {}
    seen = {"device": torch.cuda.get_device_name(), "times": times, "errors": errors, "failed": failed, "ours": list(ours)}

    def keep() -> None:
        path = args.out / f"{name}.json"
        path.with_suffix(".part").write_text(json.dumps(seen))
        path.with_suffix(".part").replace(path)

    for way, fn in runs.items():
        times[way] = (wall(fn), gpu(fn))
        keep()
    right = [w for w in ours if errors.get(w, 9) < bound(errors, args.tolerance)]
    if right and "eager" in times:
        best, rival = (min(ways, key=lambda w: gpu_ms(times[w])) for ways in (right, [b for b in BASES if b in times]))
        seen["kernels"] = {best: kernels(runs[best])}
        seen["torch"] = left_to_torch(seen["kernels"][best], ours[best])
        if gpu_ms(times[rival]) < 0.98 * gpu_ms(times[best]):
            seen["kernels"] = {rival: kernels(runs[rival])} | seen["kernels"]
    keep()


def gpu_ms(times: tuple[float, float]) -> float:
    """The GPU's time, or the wall's where there is no graph."""
    return times[1] if times[1] == times[1] else times[0]


def figures(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """What was measured of a problem: all times, the best and the first right file of ours, ratios: the other's time over ours."""
    seen = json.loads((args.out / f"{name}.json").read_text())
    times, errors, ours = seen["times"], seen["errors"], seen["ours"]
    limit = bound(errors, args.tolerance)
    seen["bad"] = {w: f"error {errors[w]:.0e}" for w in ours if w in errors and not errors[w] < limit} | seen["failed"]
    right = [w for w in ours if w in times and w not in seen["bad"]]
    ratios: dict[str, float] = {}
    if right and "eager" in times:
        best = min(right, key=lambda w: gpu_ms(times[w]))
        bases = [times[b] for b in BASES if b in times]
        mine, quickest = gpu_ms(times[best]), min(map(gpu_ms, bases))
        ratios = {"gpu": quickest / mine, "wall": min(t[0] for t in bases) / min(times[w][0] for w in right)}
        ratios |= {way: gpu_ms(t) / mine for way, t in times.items() if way not in ours and way not in BASES}
        if right[0] == ours[0]:
            ratios |= {"first": quickest / gpu_ms(times[ours[0]]), "first of best": mine / gpu_ms(times[ours[0]])}
        seen |= {"best": best, "source": (args.out / f"{name}_{ours.index(best)}.py").read_text()}
    return seen | {"right": right, "ratios": ratios}


def shown(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Print a problem's line; returns its figures, if any."""
    if not (args.out / f"{name}.json").exists():
        log = next((args.out / f"{name}.{verb}.log" for verb in ("measure", "write") if (args.out / f"{name}.{verb}.log").exists()), None)
        say(f"{name:<26} NOT MEASURED {' '.join(log.read_text().split())[-160:] if log else ''}")
        return {}
    seen = figures(name, args)
    times, ratios = seen["times"], seen["ratios"]
    text = {way: f"{way} {t[0]:.3f}/{t[1]:.3f}".replace("nan", "-") for way, t in times.items()}
    line = f"{name:<26} " + " ".join(text[w] for w in times if w not in seen["ours"])
    if best := seen.get("best"):
        line += f" | {text[best]} err {seen['errors'][best]:.0e} x{ratios['gpu']:.2f} gpu x{ratios['wall']:.2f} wall |"
        line += " ".join(text[w] for w in seen["right"] if w != best)
    say(line + (" | BAD " + "; ".join(f"{w}: {what}" for w, what in seen["bad"].items()) if seen["bad"] else ""))
    used = seen.get("kernels", {})
    for way, took in used.items() if len(used) > 1 else ():
        largest = list(took.items())[:8]
        say(f"    {way}: " + "; ".join(f"{key[:44]} {us:.1f}" + (f" in {count:g}" if count > 1 else "") for key, (us, count) in largest))
    return seen


def table(found: dict[str, dict[str, Any]]) -> None:
    """All problems, a short row each, and the geometric means."""
    say("\nms of the GPU; wall: our best file by wall; torch: its share in torch's kernels; x: the faster of eager and compile by ours")
    modes = [way for way in MODES if any(way in seen.get("times", ()) for seen in found.values())]
    heads = ("eager", "compile", *modes, "best", "first", "wall", "torch", "x best", "x first", "x wall")
    say(" ".join([f"{'':<26}", *(f"{head[:9]:>9}" for head in heads)]))
    for name, seen in found.items():
        times, ratios, best = seen.get("times", {}), seen.get("ratios", {}), seen.get("best")
        first = seen["ours"][0] if "first" in ratios else None
        ms = [gpu_ms(times[way]) if way in times else None for way in ("eager", "compile", *modes, best, first)]
        row = [*ms, times[best][0] if best else None, seen.get("torch"), ratios.get("gpu"), ratios.get("first"), ratios.get("wall")]
        cells = ["" if value is None else f"{value:.4g}" if value < 100 else f"{value:.0f}" for value in row]
        cells[-4] = "" if row[-4] is None else f"{row[-4]:.0%}"
        cells[-3:] = ["" if value is None else f"{value:.2f}" for value in row[-3:]]
        bad = [way for way in seen.get("bad", ()) if way in seen["ours"]]
        say(
            " ".join([f"{name:<26}", *(f"{cell:>9}" for cell in cells)])
            + (f" {len(bad)} bad" if bad else "")
            + ("" if seen else " not measured")
        )
    for what in dict.fromkeys(what for seen in found.values() for what in seen.get("ratios", ())):
        values = [seen["ratios"][what] for seen in found.values() if what in seen.get("ratios", ())]
        low, high = sum(v < 0.98 for v in values), sum(v > 1.03 for v in values)
        say(f"{what:<28} n={len(values)} geometric mean {statistics.geometric_mean(values):.3f}, below 0.98x {low}, above 1.03x {high}")


class Timing:
    """Files are written and ways prepared side by side; problems are timed one after another, when nothing else runs."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.start, self.ended = args, time.time(), threading.Event()
        self.names = list(problems(args))
        self.pool = ThreadPoolExecutor(args.writers)
        self.writing: dict[str, Future[None]] = {}
        self.processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self.found: dict[str, dict[str, Any]] = {}

    def left(self) -> float:
        return self.args.seconds - (time.time() - self.start)

    def begin(self, verb: str, name: str, *more: str, **env: str) -> subprocess.Popen[bytes]:
        """A process of this script that does one thing, with a group of its own, so that all it started can be ended."""
        threads = str(max(1, (os.cpu_count() or 1) // self.args.writers))
        known = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": threads} | os.environ | env
        command = [sys.executable, __file__, *sys.argv[1:], "--out", str(self.args.out), f"--{verb}", name, *more]
        with (self.args.out / f"{name}.{verb}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=known, start_new_session=True)
        self.processes[verb, name] = process
        if self.ended.is_set():
            self.send(signal.SIGKILL, process)
        return process

    def send(self, number: int, *processes: subprocess.Popen[bytes]) -> None:
        """Send a signal to those that still run, and to what they started."""
        for process in processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def writers(self) -> list[subprocess.Popen[bytes]]:
        return [process for (verb, _), process in list(self.processes.items()) if verb == "write"]

    def write(self, name: str, until: float) -> None:
        """Write a problem's files, as many as there is time for."""
        if self.args.written or self.ended.is_set():
            return
        process = self.begin("write", name, CUDA_VISIBLE_DEVICES="")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(1.0, until - time.time()))
        self.send(signal.SIGKILL, process)

    def prepare(self, name: str, until: float) -> None:
        """Write the files, unless that is done, then start the process that times them; returns when all is ready."""
        if name in self.writing:
            self.writing[name].result()
        else:
            self.write(name, (time.time() + until) / 2)
        if not (self.args.out / f"{name}.pkl").exists() or self.ended.is_set() or time.time() > until:
            return
        process = self.begin("measure", name, "--until", str(until))
        while process.poll() is None and not (self.args.out / f"{name}.ready").exists() and time.time() < until + 5:
            time.sleep(0.2)

    def time_one(self, name: str) -> None:
        """Let a problem's process time its ways, and keep what it found, though it be part."""
        process = self.processes.get(("measure", name))
        if process is not None and (self.args.out / f"{name}.ready").exists():
            (self.args.out / f"{name}.go").touch()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        if process is not None:
            self.send(signal.SIGKILL, process)
        self.found[name] = shown(name, self.args)
        (self.args.out / "summary.json").write_text(json.dumps({"seconds": time.time() - self.start, "problems": self.found}))
        if "source" in self.found[name]:
            (self.args.out / "best").mkdir(exist_ok=True)
            (self.args.out / "best" / f"{name}.py").write_text(self.found[name]["source"])

    def batch(self, names: list[str], later: int) -> None:
        """Prepare some problems, and time them while nothing else runs. ``later``: how many problems come after these."""
        share = (self.left() - A_PROBLEM * (len(names) + later)) * len(names) / (len(names) + later)
        until = time.time() + max(share, 1.0)
        preparing = [self.pool.submit(self.prepare, name, until) for name in names]
        for name in self.names[-later:] if later and not self.writing else ():  # the pool takes them where it has nothing to prepare
            self.writing[name] = self.pool.submit(self.write, name, time.time() + 0.8 * self.left())
        for prepared in preparing:
            prepared.result()
        self.send(signal.SIGSTOP, *self.writers())
        say(f"[{time.time() - self.start:.0f}s] {len(names)} prepared")
        for name in names:
            self.time_one(name)
        self.send(signal.SIGCONT, *self.writers())

    def run(self) -> None:
        """All problems; the table comes also where SIGTERM ends it early."""
        for kind in ("go", "ready", "json", "log", *(() if self.args.written else ("pkl",))):
            for old in self.args.out.glob(f"*.{kind}"):
                old.unlink()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            say("ms by wall/GPU, x: the faster of eager and compile over ours")
            batches = -(-len(self.names) // min(self.args.batch, self.args.writers))  # a mode may hold its place until all are ready
            size = -(-len(self.names) // max(batches, 1)) or 1
            for at in range(0, len(self.names), size):
                some = self.names[at : at + size]
                self.batch(some, len(self.names) - at - len(some))
        finally:
            self.ended.set()
            self.send(signal.SIGKILL, *self.processes.values())
            self.pool.shutdown(wait=False, cancel_futures=True)
            table({name: self.found.get(name, {}) for name in self.names})


# ---- families


def family_cases() -> Iterator[tuple[str, Run, dict[str, Run], float]]:
    """(name, ours, the others, ms that memory needs at least or nan)."""
    bf16, nan = torch.bfloat16, float("nan")
    shapes = [(4096, 4096, 4096), (2048, 6144, 2048), (16384, 1024, 1024), (6304, 3072, 768), (6304, 768, 3072), (2048, 50304, 768),
              (512, 2048, 2048), (256, 4096, 4096), (1024, 1024, 8192), (128, 5120, 13824), (64, 28672, 8192), (32768, 512, 512),
              (4096, 1024, 14336), (777, 3072, 1023), (16, 8192, 8192), (1, 14336, 4096)]  # fmt: skip
    for m, n, k in shapes:
        a, w = torch.randn(m, k, device="cuda", dtype=bf16), torch.randn(n, k, device="cuda", dtype=bf16) / k**0.5
        yield f"product {m}x{n}x{k}", lambda a=a, w=w: matmul_half.half_matmul(a, w.T), {"cublas": lambda a=a, w=w: torch.mm(a, w.T)}, nan
    cases = [(4, 16, 4096, 128, 16, 4096, True), (1, 16, 2048, 128, 16, 2048, True), (8, 16, 512, 64, 16, 512, False),
             (2, 32, 2048, 128, 8, 2048, True), (2, 10, 4096, 64, 10, 77, False), (4, 12, 2048, 64, 12, 2048, True),
             (8, 32, 1, 128, 8, 2048, False), (2, 8, 2048, 256, 8, 2048, True)]  # fmt: skip
    for batch, heads, t, d, kv, s, causal in cases:
        q, k, v = (torch.randn(batch, h, n, d, device="cuda", dtype=bf16) for h, n in ((heads, t), (kv, s), (kv, s)))

        def torchs(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

        others = {"default": torchs}
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            others[backend.name] = under(torchs, lambda backend=backend: sdpa_kernel(backend))
        name = f"attention {batch}x{heads}x{t}x{d} kv {kv}x{s}{' causal' if causal else ''}"
        yield name, lambda q=q, k=k, v=v, causal=causal: attention_half.half_attention(q, k, v, None, causal), others, nan
    for m, n in [(512, 131072), (8192, 8192), (8192, 16384), (8192, 32768), (4096, 50304)]:
        x = torch.randn(m, n, device="cuda", dtype=bf16)
        yield f"softmax {m}x{n}", lambda x=x: rows.row_softmax(x), {"eager": lambda x=x: x.softmax(-1)}, 4 * m * n / BYTES_A_MS
        others = {"eager": lambda x=x: x.float().logsumexp(-1)}
        yield f"logsumexp {m}x{n}", lambda x=x: rows.row_logsumexp(x), others, 2 * m * n / BYTES_A_MS


def families(args: argparse.Namespace) -> None:
    """Print a line for each case, and for each family the geometric mean of the best other's time over ours."""
    torch.set_grad_enabled(False)
    start, found = time.time(), {}
    for name, ours, others, floor in family_cases():
        if time.time() - start > args.seconds:
            break
        times: dict[str, float] = {}
        for way, fn in {"ours": ours, **others}.items():
            try:
                wrong = error(fn(), others[next(iter(others))]())
                times[way if wrong < 0.03 else f"{way} WRONG {wrong:.0e}"] = gpu(fn)
            except RuntimeError as problem:
                say(f"    {name}, {way}: {str(problem).splitlines()[0][:120]}")
        ratio = min((t for way, t in times.items() if not way.startswith("ours")), default=float("nan")) / times.get("ours", float("nan"))
        found.setdefault(name.split()[0], []).append(ratio)
        if name.startswith("product"):  # what --extern auto has there
            m, n, k = map(int, name.split()[1].split("x"))
            ours_there = m <= 16 or n % 8 or k % 8 or template_gains(m, n, k, gpus.by_arch("sm_90"), joined=False)
            found.setdefault("chosen", []).append(ratio if ours_there else 1.0)
        share = "" if floor != floor else f" {floor / times.get('ours', float('nan')):.0%} of the floor"
        say(f"{name:<44} x{ratio:.2f}{share} | " + " ".join(f"{way} {t * 1e3:.1f}us" for way, t in times.items()))
    for family, ratios in found.items():
        good = [r for r in ratios if r == r]
        say(f"{family}: n={len(good)} geometric mean {statistics.geometric_mean(good):.3f}, least {min(good):.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=["builtin/real"])
    parser.add_argument("-n", type=int, default=3, help="files a problem")
    parser.add_argument("--modes", nargs="*", default=list(MODES), help="modes of torch.compile beside its default, if there is time")
    parser.add_argument("--only", nargs="*", default=[], help="names of problems")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--ready-seconds", type=int, default=120, help="what one way may take until it has run twice")
    parser.add_argument("--batch", type=int, default=24, help="problems that are in the GPU's memory at once, not more than --writers")
    parser.add_argument("--writers", type=int, default=8, help="problems written and prepared side by side")
    parser.add_argument("--tolerance", type=float, default=0.05, help="relative error above which a file counts as wrong here")
    parser.add_argument("--written", action="store_true", help="take the files that an earlier run has left in --out")
    parser.add_argument("--families", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("speed"))
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=float("inf"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.families:
        families(args)
    elif args.write:
        write(problems(args)[args.write], args.write, args)
    elif args.measure:
        measure(problems(args)[args.measure], args.measure, args)
    else:
        Timing(args).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
