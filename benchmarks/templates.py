"""The compiler's templates against torch on a GPU: right (error against float64) and how fast (median ms, with the fastest and slowest).

    python benchmarks/templates.py [--json FILE] [--budget SECONDS] [GROUP ...]

Groups: matmul, bmm, conv, transpose, depthwise, attention, recurrent, pool, scan, half (fp16 and bf16, beside torch.compile and the best
backend of attention), and only where it is named peers (problems of builtin/real, beside eager and three modes of torch.compile).
A case that fails prints its error and the next one runs. ``x`` is torch's time over the template's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.templates import attention as A
from kernelllm.compiler.templates import attention_half as AH
from kernelllm.compiler.templates import conv as C
from kernelllm.compiler.templates import matmul as M
from kernelllm.compiler.templates import matmul_half as MH
from kernelllm.compiler.templates import pooling as P
from kernelllm.compiler.templates import recurrent as R
from kernelllm.compiler.templates import rows as RO
from kernelllm.compiler.templates import scan as S
from kernelllm.suites import open_suite

Case = tuple[str, str, Callable[[], Any], Callable[[], Any] | None, Callable[[Any], tuple[torch.Tensor, torch.Tensor]] | None]
Patch = tuple[Any, str, Any]
ROWS: list[dict[str, Any]] = []


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def timed(fn: Callable[[], Any]) -> tuple[float, float, float]:
    """(median, fastest, slowest) ms over up to 20 runs or 0.15 s, the L2 cache cleared before each."""
    flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    fn()
    fn()
    times: list[float] = []
    started = time.time()
    while len(times) < 3 or (len(times) < 20 and time.time() - started < 0.15):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        fn()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times), min(times), max(times)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative L2 error; infinite where a NaN or a wrong shape makes it meaningless."""
    if got.shape != want.shape:
        return float("inf")
    value = ((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-300)).item()
    return value if value == value else float("inf")


def first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple | list) else result


def run(case: Case, patches: list[Patch] = ()) -> None:  # type: ignore[assignment]
    group, name, ours, theirs, exact = case
    row: dict[str, Any] = {"group": group, "name": name}
    saved = [(module, key, getattr(module, key)) for module, key, _ in patches]
    try:
        for module, key, value in patches:
            setattr(module, key, value)
        started = time.time()
        out = first(ours())
        torch.cuda.synchronize()
        row["first_s"] = time.time() - started
        if exact is not None:
            row["error"] = error(*exact(out))
        del out
        row["ours"] = timed(ours)
        if theirs is not None:
            reference = first(theirs())
            if exact is not None:
                row["torch_error"] = error(*exact(reference))
            del reference
            row["torch"] = timed(theirs)
    except Exception as failure:  # noqa: BLE001 - a benchmark goes on with the next case
        row["failed"] = f"{type(failure).__name__}: {str(failure)[:300]}"
    finally:
        for module, key, value in saved:
            setattr(module, key, value)
        torch.cuda.empty_cache()
    ROWS.append(row)
    show(row)


def show(row: dict[str, Any]) -> None:
    text = f"{row['group']:<10} {row['name']:<46}"
    if "failed" in row:
        say(f"{text} FAILED {row['failed']}")
        return
    text += f" ours {row['ours'][0]:8.3f} [{row['ours'][1]:.3f} {row['ours'][2]:.3f}] err {row.get('error', float('nan')):.1e}"
    if "torch" in row:
        text += f"  torch {row['torch'][0]:8.3f} err {row.get('torch_error', float('nan')):.1e}  x{row['torch'][0] / row['ours'][0]:.2f}"
    say(f"{text}  first {row['first_s']:.1f}s")


def product_case(group: str, name: str, a: torch.Tensor, b: torch.Tensor) -> Case:
    rows = min(a.shape[-2], 512)

    def exact(out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        part = a[..., :rows, :] if a.dim() == 2 else a[:4, :rows, :]
        return (out[:rows], part.double() @ b.double()) if a.dim() == 2 else (out[:4, :rows], part.double() @ b[:4].double())

    return (group, name, lambda: M.matmul(a, b) if a.dim() == 2 else M.batched_matmul(a, b), lambda: a @ b, exact)


def products() -> Iterator[tuple[Case, list[Patch]]]:
    whole: list[Patch] = [(M, "matmul_should_split", lambda *_: False)]
    for m, n, k, column in [(4096, 4096, 4096, False), (1024, 8192, 8192, True), (128, 16384, 16384, True), (256, 256, 131072, False),
                            (16, 4096, 4096, True), (32768, 32768, 32, False), (8205, 5921, 2949, False), (512, 512, 512, False)]:
        a, b = rand(m, k), rand(n, k).T if column else rand(k, n)
        case = product_case("matmul", f"{m}x{n}x{k} {'B K-major' if column else 'B row-major'}", a, b)
        yield case, []
        if M.matmul_should_split(1, m, n, k):
            yield (case[0], case[1] + " tf32x3", case[2], None, case[4]), whole
    a, b = rand(4096, 4096, dtype=torch.bfloat16), rand(4096, 4096, dtype=torch.bfloat16)
    yield product_case("matmul", "4096^3 bf16", a, b), []
    x, vector = rand(2048, 262144), rand(262144)
    yield ("matmul", "matvec 2048x262144", lambda: M.matvec(x, vector), lambda: x @ vector,
           lambda out: (out, x.double() @ vector.double())), []


def batched() -> Iterator[tuple[Case, list[Patch]]]:
    whole: list[Patch] = [(M, "matmul_should_split", lambda *_: False)]
    for batch, m, n, k in [(128, 512, 512, 512), (128, 512, 2048, 1024), (256, 128, 128, 64)]:
        case = product_case("bmm", f"{batch}x{m}x{n}x{k}", rand(batch, m, k), rand(batch, k, n))
        yield case, []
        if M.matmul_should_split(batch, m, n, k):
            yield (case[0], case[1] + " tf32x3", case[2], None, case[4]), whole


def conv_case(group: str, name: str, x: torch.Tensor, w: torch.Tensor, stride: int, padding: int, groups: int = 1, transposed: bool = False,
              extra: int = 0, dilation: int = 1, tf32: bool = True) -> Case:
    dims = x.dim() - 2
    bias = rand(w.shape[1] * groups if transposed else w.shape[0], dtype=x.dtype)
    lists = ([stride] * dims, [padding] * dims, [dilation] * dims)
    torch_conv = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")

    def theirs(x: torch.Tensor = x, w: torch.Tensor = w, bias: torch.Tensor = bias) -> torch.Tensor:
        if transposed:
            return torch_conv(x, w, bias, stride, padding, extra, groups, dilation)  # type: ignore[no-any-return]
        return torch_conv(x, w, bias, stride, padding, dilation, groups)  # type: ignore[no-any-return]

    def ours() -> torch.Tensor:
        if transposed:
            return C.conv_transpose(x, w, bias, *lists[:2], [extra] * dims, lists[2], groups, tf32)
        return C.conv(x, w, bias, *lists, groups, tf32)

    def exact(out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.backends.cudnn.flags(enabled=False):
            return out[:1], theirs(x[:1].double(), w.double(), bias.double())

    return group, name, ours, theirs, exact


def convolutions() -> Iterator[tuple[Case, list[Patch]]]:
    for name, x, w, stride, padding in [
        ("2d 64x64x256x256 -> 128 k3", (32, 64, 256, 256), (128, 64, 3, 3), 1, 1),
        ("2d 16x16x512x512 -> 128 k3", (16, 16, 512, 512), (128, 16, 3, 3), 1, 0),
        ("2d 64x3x224x224 -> 96 k11 s4", (64, 3, 224, 224), (96, 3, 11, 11), 4, 2),
        ("2d 16x64x512x512 -> 128 k1", (16, 64, 512, 512), (128, 64, 1, 1), 1, 0),
        ("2d 10x1024x14x14 -> 256 k1", (10, 1024, 14, 14), (256, 1024, 1, 1), 1, 0),
        ("1d 16x64x131072 -> 128 k3", (16, 64, 131072), (128, 64, 3), 1, 0),
        ("3d 16x3x64x64x64 -> 64 k3", (16, 3, 64, 64, 64), (64, 3, 3, 3, 3), 1, 0),
        ("3d 8x32x24x32x32 -> 64 k5", (8, 32, 24, 32, 32), (64, 32, 5, 5, 5), 1, 0),
    ]:
        tensors = rand(*x), rand(*w) / (w[1] * w[2]) ** 0.5
        yield conv_case("conv", name + " tf32", *tensors, stride, padding), []
        plain = conv_case("conv", name + " fp32", *tensors, stride, padding, tf32=False)
        yield (*plain[:3], None, plain[4]), []
    yield conv_case("conv", "2d 32x64x256x256 -> 128 k3 bf16", rand(32, 64, 256, 256, dtype=torch.bfloat16),
                    rand(128, 64, 3, 3, dtype=torch.bfloat16), 1, 1), []


def transposed() -> Iterator[tuple[Case, list[Patch]]]:
    for name, x, w, stride, padding, extra, groups in [
        ("2d 16x64x256x256 -> 64 k3", (16, 64, 256, 256), (64, 64, 3, 3), 1, 0, 0, 1),
        ("2d 64x64x128x128 -> 64 k3 s2", (64, 64, 128, 128), (64, 64, 3, 3), 2, 1, 1, 1),
        ("3d 8x48x32x32x32 -> 48 k3", (8, 48, 32, 32, 32), (48, 48, 3, 3, 3), 1, 0, 0, 1),
        ("3d 16x32x16x32x32 -> 64 k3 s2", (16, 32, 16, 32, 32), (32, 64, 3, 3, 3), 2, 1, 1, 1),
        ("3d 8x32x12x24x48 -> 32 k5 s2 g4", (8, 32, 12, 24, 48), (32, 8, 5, 5, 5), 2, 1, 1, 4),
        ("1d 32x64x32768 -> 64 k5 d3", (32, 64, 32768), (64, 64, 5), 1, 0, 0, 1),
    ]:
        dilation = 3 if name.endswith("d3") else 1
        tensors = rand(*x), rand(*w) / (w[0] * w[2]) ** 0.5
        yield conv_case("transpose", name + " tf32", *tensors, stride, padding, groups, True, extra, dilation), []
        plain = conv_case("transpose", name + " fp32", *tensors, stride, padding, groups, True, extra, dilation, tf32=False)
        yield (*plain[:3], None, plain[4]), []


def depthwise() -> Iterator[tuple[Case, list[Patch]]]:
    for name, x, k in [("16x64x512x512 k3", (16, 64, 512, 512), (3, 3)), ("16x64x512x512 k7x3", (16, 64, 512, 512), (7, 3)),
                       ("10x240x28x28 k5", (10, 240, 28, 28), (5, 5))]:
        yield conv_case("depthwise", name, rand(*x), rand(x[1], 1, *k), 1, 1, x[1]), []


def attentions() -> Iterator[tuple[Case, list[Patch]]]:
    for name, shape, causal, dtype in [("8x16x1024x64 causal", (8, 16, 1024, 64), True, torch.float32),
                                       ("8x16x1024x96", (8, 16, 1024, 96), False, torch.float32),
                                       ("8x16x1024x128", (8, 16, 1024, 128), False, torch.float32),
                                       ("8x32x512x1024", (8, 32, 512, 1024), False, torch.float32),
                                       ("2x12x197x64", (2, 12, 197, 64), False, torch.float32),
                                       ("8x16x2048x64 causal bf16", (8, 16, 2048, 64), True, torch.bfloat16)]:
        q, k, v = (rand(*shape, dtype=dtype) for _ in range(3))

        def exact(out: torch.Tensor, q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> tuple[torch.Tensor, torch.Tensor]:
            return out[:1, :2], F.scaled_dot_product_attention(*(t[:1, :2].double() for t in (q, k, v)), is_causal=causal)

        yield ("attention", name, lambda q=q, k=k, v=v, causal=causal: A.attention(q, k, v, None, causal),
               lambda q=q, k=k, v=v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal), exact), []


def recurrents() -> Iterator[tuple[Case, list[Patch]]]:
    for name, make, ours, both in [("LSTM 10x512x128 h256 l6", torch.nn.LSTM, R.lstm, False),
                                   ("GRU 10x512x128 h256 l6", torch.nn.GRU, R.gru, False),
                                   ("GRU 10x512x128 h256 l6 both", torch.nn.GRU, R.gru, True),
                                   ("RNN 64x128x256 h512 l1", torch.nn.RNN, R.rnn_tanh, False)]:
        if make is torch.nn.RNN:
            steps, batch, inputs, hidden, layers = 128, 64, 256, 512, 1
        else:
            steps, batch, inputs, hidden, layers = 512, 10, 128, 256, 6
        module = make(inputs, hidden, layers, bidirectional=both).cuda().requires_grad_(False).eval()
        x, h = rand(steps, batch, inputs), rand(layers * (1 + both), batch, hidden)
        state: Any = (h, rand(*h.shape)) if make is torch.nn.LSTM else h
        weights = module._flat_weights
        double = make(inputs, hidden, layers, bidirectional=both).requires_grad_(False).double().eval()
        double.load_state_dict({k: v.double().cpu() for k, v in module.state_dict().items()})

        def exact(out: torch.Tensor, double: Any = double, x: Any = x, state: Any = state) -> tuple[torch.Tensor, torch.Tensor]:
            exact_state = tuple(s.double().cpu() for s in state) if isinstance(state, tuple) else state.double().cpu()
            return out[:64].cpu(), double(x[:64].double().cpu(), exact_state)[0]

        args = (weights, True, layers, 0.0, False, both, False)
        ours_state = list(state) if isinstance(state, tuple) else state
        yield ("recurrent", name, lambda ours=ours, x=x, s=ours_state, args=args: ours(x, s, *args),
               lambda module=module, x=x, state=state: module(x, state), None if both else exact), []


def pools_and_scans() -> Iterator[tuple[Case, list[Patch]]]:
    x = rand(32, 64, 256, 256)
    yield ("pool", "max 2d k4 s1 p1", lambda: P.max_pool(x, [4, 4], [1, 1], [1, 1], [1, 1], False),
           lambda: F.max_pool2d(x, 4, 1, 1), lambda out: (out[:1], F.max_pool2d(x[:1].double(), 4, 1, 1))), []
    y = rand(16, 32, 64, 64, 64)
    yield ("pool", "max 3d k3 s2 p1 d3", lambda: P.max_pool(y, [3] * 3, [2] * 3, [1] * 3, [3] * 3, False),
           lambda: F.max_pool3d(y, 3, 2, 1, 3), lambda out: (out[:1], F.max_pool3d(y[:1].double(), 3, 2, 1, 3))), []
    yield ("pool", "avg 3d k3 s2 p1", lambda: P.avg_pool(y, [3] * 3, [2] * 3, [1] * 3, False, True),
           lambda: F.avg_pool3d(y, 3, 2, 1), lambda out: (out[:1], F.avg_pool3d(y[:1].double(), 3, 2, 1))), []
    z = rand(16384, 16384)
    yield ("scan", "cumsum rows", lambda: S.cumsum(z, 1), lambda: z.cumsum(1), lambda out: (out[:64], z[:64].double().cumsum(1))), []
    yield ("scan", "cumsum columns", lambda: S.cumsum(z, 0), lambda: z.cumsum(0),
           lambda out: (out[:, :64], z[:, :64].double().cumsum(0))), []
    yield ("scan", "cummax rows", lambda: S.cummax(z[:4096], 1), lambda: z[:4096].cummax(1),
           lambda out: (out[:64], z[:64].double().cummax(1).values)), []


def halves() -> Iterator[tuple[Case, list[Patch]]]:
    """fp16 and bf16: products, with an epilogue, gated pairs and few rows beside cuBLAS; attention beside the best backend; wide rows."""
    half = torch.bfloat16
    for m, n, k in [(2048, 6144, 2048), (4096, 4096, 4096), (16384, 1024, 1024), (6304, 768, 3072), (512, 2048, 2048), (8, 14336, 4096)]:
        a, w, bias = rand(m, k, dtype=half), rand(n, k, dtype=half) / k**0.5, rand(n, dtype=half)
        exact = lambda out, a=a, w=w: (out[:512], a[:512].double() @ w.T.double())
        yield ("half", f"{m}x{n}x{k}", lambda a=a, w=w: MH.half_matmul(a, w.T), lambda a=a, w=w: a @ w.T, exact), []
        joined = lambda a=a, w=w, bias=bias: F.gelu(F.linear(a, w, bias))
        ours = lambda a=a, w=w, bias=bias: MH.half_matmul(a, w.T, bias, activation="gelu")
        yield ("half", f"{m}x{n}x{k} bias gelu", ours, torch.compile(joined), None), []
    a, pair = rand(2048, 2048, dtype=half), rand(2 * 6144, 2048, dtype=half) / 45
    gated = torch.compile(lambda: F.silu(a @ pair[:6144].T) * (a @ pair[6144:].T))
    yield ("half", "gated 2048x6144x2048", lambda: MH.gated_matmul(a, pair[6144:].T, pair[:6144].T, "silu"), gated, None), []
    for shape, heads, causal in [((4, 16, 4096, 128), 16, True), ((1, 16, 2048, 128), 16, True), ((8, 16, 512, 64), 16, False),
                                 ((2, 32, 2048, 128), 8, True)]:
        q, (k, v) = rand(*shape, dtype=half), (rand(shape[0], heads, *shape[2:], dtype=half) for _ in range(2))
        name, theirs = best_backend(q, k, v, causal)
        yield ("half", f"attention {'x'.join(map(str, shape))} of {heads}{' causal' if causal else ''} ({name})",
               lambda q=q, k=k, v=v, causal=causal: AH.half_attention(q, k, v, None, causal), theirs, None), []
    for rows, columns in [(8192, 8192), (64, 131072), (8192, 50304)]:
        x = rand(rows, columns, dtype=half)
        yield ("half", f"softmax {rows}x{columns}", lambda x=x: RO.row_softmax(x), lambda x=x: x.softmax(-1),
               lambda out, x=x: (out[:64], x[:64].double().softmax(-1))), []


def best_backend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[str, Callable[[], torch.Tensor]]:
    """The fastest of torch's backends of attention, by name, and a call of it."""
    found = []
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        def call(backend: SDPBackend = backend) -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
        try:
            found.append((timed(call)[0], backend.name.removesuffix("_ATTENTION").lower(), call))
        except RuntimeError:  # it cannot do this
            continue
    return min(found, key=lambda one: one[0])[1:]


def peers() -> Iterator[tuple[Case, list[Patch]]]:
    """Problems of builtin/real: the fastest correct file of ``--extern auto`` beside eager and torch.compile's modes."""
    for problem in open_suite("builtin/real").problems():
        try:
            ours, model, inputs = written(problem)
        except Exception as failure:  # noqa: BLE001 - the next problem still runs
            say(f"peers      {problem.name} FAILED {type(failure).__name__}: {str(failure)[:200]}")
            continue
        yield ("peers", f"{problem.name} eager", ours, partial(model, *inputs), None), []
        for mode in ("default", "max-autotune-no-cudagraphs", "reduce-overhead"):
            torch._dynamo.reset()
            yield ("peers", f"{problem.name} {mode}", ours, partial(torch.compile(model, mode=mode), *inputs), None), []


def written(problem: Any) -> tuple[Callable[[], Any], Any, list[Any]]:
    """A call of the fastest file of a problem, the reference, and its inputs. Raises ValueError where no file is right."""
    reference, found = loaded(problem.source, problem.name), []
    inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in reference.get_inputs()]
    model = reference.Model(*reference.get_init_inputs()).cuda()
    with closing(Compiler(extern="auto")) as compiler:
        for candidate in compiler.write(problem, 4):
            made = loaded(candidate.source, f"{problem.name}_{candidate.sample}").ModelNew(*reference.get_init_inputs()).cuda()
            made.load_state_dict(model.state_dict())
            if error(first(made(*inputs)), first(model(*inputs))) < 0.02:
                found.append((timed(partial(made, *inputs))[0], partial(made, *inputs)))
    return min(found, key=lambda one: one[0])[1], model, inputs


def loaded(source: str, name: str) -> Any:
    """A file's module; Triton reads kernels from files."""
    path = Path(tempfile.gettempdir()) / f"benchmark_{name.replace('/', '_')}.py"
    path.write_text(source, encoding="utf-8")
    space: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, path, "exec"), space)
    return SimpleNamespace(**space)


GROUPS: dict[str, Callable[[], Iterator[tuple[Case, list[Patch]]]]] = {
    "matmul": products, "bmm": batched, "conv": convolutions, "transpose": transposed, "depthwise": depthwise, "attention": attentions,
    "recurrent": recurrents, "pool": pools_and_scans, "half": halves, "peers": peers,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="some of " + ", ".join(GROUPS))
    parser.add_argument("--budget", type=float, default=85.0, help="seconds in all, shared evenly by the groups (default 85)")
    parser.add_argument("--json", help="also write all figures to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        say("no GPU here")
        return 1
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    say(f"{torch.cuda.get_device_name()} {torch.__version__}")
    chosen = arguments.groups or [group for group in GROUPS if group != "peers"]
    started = time.time()
    for number, group in enumerate(chosen):
        deadline = time.time() + (arguments.budget - (time.time() - started)) / (len(chosen) - number)
        try:
            for case, patches in GROUPS[group]():
                if time.time() > deadline:
                    say(f"{group:<10} stopped: out of time")
                    break
                run(case, patches)
        except Exception as failure:  # noqa: BLE001 - the next group still runs
            say(f"{group:<10} FAILED {type(failure).__name__}: {str(failure)[:300]}")
        torch.cuda.empty_cache()
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(ROWS), encoding="utf-8")
    say(f"{time.time() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
