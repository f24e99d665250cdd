"""How fast written files are beside what is there already: eager, torch.compile's modes, the backends of attention, Liger's kernels.

    python benchmarks/speed.py [SUITE ...] [-n 3] [--modes MODE ...] [--only NAME ...] [--seconds 600] [--writers 8] [--out FOLDER]
    python benchmarks/speed.py --families [--seconds 60]

The first form writes each problem's files (CPU, side by side), then times them one problem after another on one quiet GPU. A line has ms
by wall (calls back to back) and of the GPU alone (a CUDA graph; "-" where that cannot be made), for each way. Where ours is slower, the
kernels of both follow with their us. The second form times products, attention and wide rows of the templates by themselves.
Liger's kernels stand in for torch's functions in eager, where liger-kernel is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import pickle
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def kernels(fn: Run) -> str:
    """The kernels of one call by the us that they take."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            fn()
        torch.cuda.synchronize()
    took = sorted(((e.self_device_time_total / 5, e.count / 5, e.key[:44]) for e in seen.key_averages()), reverse=True)
    return "; ".join(f"{key} {us:.1f}" + (f" in {count:g}" if count > 1 else "") for us, count, key in took[:8] if us > 0)


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


def there_already(model: Any, inputs: list[Any], source: str, modes: list[str]) -> dict[str, Run]:
    """Eager, torch.compile in its modes, eager with each backend of attention and with Liger's kernels."""
    found: dict[str, Run] = {"eager": lambda: model(*inputs)}
    for mode in (None, *modes):
        compiled = torch.compile(model, mode=mode)
        found[mode or "compile"] = lambda compiled=compiled: compiled(*inputs)
    if "scaled_dot_product_attention" in source:
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            found[backend.name.split("_")[0].lower()] = under(found["eager"], lambda backend=backend: sdpa_kernel(backend))
    if functions := liger(source):
        found["liger"] = under(found["eager"], lambda: replaced(functions))
    return found


def ready(runs: dict[str, Run], want: Any, failed: dict[str, str], seconds: int) -> dict[str, float]:
    """Run each twice, compare what it gives with eager's, and drop what fails. Returns the errors."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not ready in {seconds} s")

    signal.signal(signal.SIGALRM, late)
    errors: dict[str, float] = {}
    for name, fn in list(runs.items()):
        signal.alarm(seconds)
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
        runs, failed = there_already(model, inputs, problem.source, args.modes), {}
        ours: list[str] = []
        for i, (variant, _, _) in enumerate(pickle.loads((args.out / f"{name}.pkl").read_bytes())):
            mine = loaded(args.out / f"{name}_{i}.py").ModelNew(*called[0], **called[1]).cuda()
            mine.load_state_dict(model.state_dict())
            modes = {path: module.training for path, module in model.named_modules()}
            for path, module in mine.named_modules():
                module.training = modes.get(path, model.training)
            runs[f"ours {variant}"] = lambda mine=mine: mine(*inputs)
            ours.append(f"ours {variant}")
    errors = ready(runs, model(*inputs), failed, args.ready_seconds)
    torch.cuda.empty_cache()  # others are prepared beside it
    (args.out / f"{name}.ready").touch()
    while not (args.out / f"{name}.go").exists():
        time.sleep(0.05)
    times = {way: (wall(fn), gpu(fn)) for way, fn in runs.items()}
    seen = {"times": times, "errors": errors, "failed": failed, "ours": ours}
    right = [w for w in ours if errors.get(w, 9) < args.tolerance]
    if right and "eager" in times:
        best, rival = (min(ways, key=lambda w: gpu_ms(times[w])) for ways in (right, [b for b in BASES if b in times]))
        if gpu_ms(times[rival]) < 0.98 * gpu_ms(times[best]):
            seen["kernels"] = {way: kernels(runs[way]) for way in (rival, best)}
    (args.out / f"{name}.json").write_text(json.dumps(seen))


def gpu_ms(times: tuple[float, float]) -> float:
    """The GPU's time, or the wall's where there is no graph."""
    return times[1] if times[1] == times[1] else times[0]


def shown(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Print a problem's line; returns ratios: the other's time over ours."""
    path = args.out / f"{name}.json"
    if not path.exists():
        log = next((args.out / f"{name}.{verb}.log" for verb in ("measure", "write") if (args.out / f"{name}.{verb}.log").exists()), None)
        say(f"{name:<26} NOT MEASURED {' '.join(log.read_text().split())[-160:] if log else ''}")
        return {}
    seen = json.loads(path.read_text())
    times, errors = seen["times"], seen["errors"]
    bad = {w: f"error {errors[w]:.0e}" for w in seen["ours"] if w in errors and not errors[w] < args.tolerance} | seen["failed"]
    text = {way: f"{way} {t[0]:.3f}/{t[1]:.3f}".replace("nan", "-") for way, t in times.items()}
    right = [w for w in seen["ours"] if w in times and w not in bad]
    line = f"{name:<26} " + " ".join(text[w] for w in times if w not in seen["ours"])
    ratios: dict[str, float] = {}
    if right and all(b in times for b in BASES[:1]):
        best = min(right, key=lambda w: gpu_ms(times[w]))
        bases = [times[b] for b in BASES if b in times]
        mine, quickest = gpu_ms(times[best]), min(map(gpu_ms, bases))
        ratios = {"gpu": quickest / mine, "wall": min(t[0] for t in bases) / min(times[w][0] for w in right)}
        ratios |= {way: gpu_ms(t) / mine for way, t in times.items() if way not in seen["ours"] and way not in BASES}
        if right[0] == seen["ours"][0]:
            ratios |= {"first": quickest / gpu_ms(times[right[0]]), "first of best": mine / gpu_ms(times[right[0]])}
        line += f" | {text[best]} err {errors[best]:.0e} x{ratios['gpu']:.2f} gpu x{ratios['wall']:.2f} wall |"
        line += " ".join(text[w] for w in right if w != best)
    say(line + (" | BAD " + "; ".join(f"{w}: {what}" for w, what in bad.items()) if bad else ""))
    for way, used in seen.get("kernels", {}).items():
        say(f"    {way}: {used}")
    return ratios


def all_problems(args: argparse.Namespace) -> None:
    """Write and prepare side by side; time one problem after another, when the others have finished preparing."""
    names, start = list(problems(args)), time.time()
    timing = min(0.4 * args.seconds, 2.5 * min(len(names), args.batch))
    for kind in ("go", "ready", "json", *(() if args.written else ("pkl",))):
        for old in args.out.glob(f"*.{kind}"):
            old.unlink()

    def left() -> float:
        return args.seconds - (time.time() - start)

    def begun(verb: str, name: str, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, *sys.argv[1:], "--out", str(args.out), f"--{verb}", name]
        with (args.out / f"{name}.{verb}.log").open("w") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})

    def prepare(name: str) -> subprocess.Popen[bytes] | None:
        if not args.written:
            writing = begun("write", name, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
            with contextlib.suppress(subprocess.TimeoutExpired):
                writing.wait(max(1.0, left() * 0.6))
            writing.kill()
        if not (args.out / f"{name}.pkl").exists() or left() < timing:
            return None
        process = begun("measure", name, OMP_NUM_THREADS="1")
        while process.poll() is None and not (args.out / f"{name}.ready").exists() and left() > timing:
            time.sleep(0.2)
        return process

    say("ms by wall/GPU, x: the faster of eager and compile over ours")
    found: list[dict[str, float]] = []
    for at in range(0, len(names), args.batch):
        batch = names[at : at + args.batch]
        with ThreadPoolExecutor(args.writers) as pool:
            processes = list(pool.map(prepare, batch))
        say(f"[{time.time() - start:.0f}s] {len(batch)} prepared")
        for name, process in zip(batch, processes, strict=True):
            if process is not None and (args.out / f"{name}.ready").exists():
                (args.out / f"{name}.go").touch()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
            if process is not None and process.poll() is None:
                process.kill()
            found.append(shown(name, args))
    for what in dict.fromkeys(what for ratios in found for what in ratios):
        values = [ratios[what] for ratios in found if what in ratios]
        low, high = sum(v < 0.98 for v in values), sum(v > 1.03 for v in values)
        say(f"{what:<28} n={len(values)} geometric mean {statistics.geometric_mean(values):.3f}, below 0.98x {low}, above 1.03x {high}")


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
    parser.add_argument("--modes", nargs="*", default=list(MODES), help="modes of torch.compile beside its default")
    parser.add_argument("--only", nargs="*", default=[], help="names of problems")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--ready-seconds", type=int, default=120, help="what one way may take until it has run twice")
    parser.add_argument("--batch", type=int, default=24, help="problems that are in the GPU's memory at once")
    parser.add_argument("--writers", type=int, default=8, help="problems written and prepared side by side")
    parser.add_argument("--tolerance", type=float, default=0.05, help="relative error above which a file counts as wrong here")
    parser.add_argument("--written", action="store_true", help="take the files that an earlier run has left in --out")
    parser.add_argument("--families", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("speed"))
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.families:
        families(args)
    elif args.write:
        write(problems(args)[args.write], args.write, args)
    elif args.measure:
        measure(problems(args)[args.measure], args.measure, args)
    else:
        all_problems(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
