"""What a benchmark run costs beside writing and judging: a writer and a judge that take no time, everything else real.

    python benchmarks/overhead.py [--problems 250] [-n 20] [--keep FOLDER]

Runs the bench on a store on disk, then builds the HTML report of that run. Exits with 1 beyond the limits.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelllm.app.page import page, view
from kernelllm.bench.bench_plan import BenchPlan
from kernelllm.bench.runner import Bench
from kernelllm.core import writer as writers
from kernelllm.core.store import Store
from kernelllm.core.types import (
    Attempt,
    Candidate,
    Cost,
    Draft,
    Finding,
    Floor,
    KernelUse,
    Measured,
    Problem,
    Ratio,
    SizeSet,
    Status,
    Timing,
    Trial,
    Verdict,
)

MOST_SECONDS, MOST_BYTES = 60.0, 8e6
"""At 250 problems and 20 samples."""

_REFERENCE = '''
import torch
import torch.nn as nn

size = {size}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {size}


def get_inputs():
    return [torch.randn(16, size)]


def get_init_inputs():
    return []
'''

_KERNEL = '''
@triton.jit
def {name}(x_ptr, out_ptr, n_elements, scale, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    {var} = tl.load(x_ptr + offsets, mask=mask, other={other})
    {var} = tl.maximum({var}, {other}) * scale + {number}
    tl.store(out_ptr + offsets, {var}, mask=mask)


def launch_{name}(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    {name}[grid](x, out, n, {number}, BLOCK={block}, num_warps={warps})
    return out
'''


def text(problem: str, sample: int) -> str:
    """A candidate of about 2.5 KB; samples of one problem resemble each other as a model's do."""
    rng = random.Random(f"{problem} {sample}")
    parts = ["import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"]
    names = []
    for i in range(3):
        name = rng.choice(["fused", "relu", "scale", "reduce", "row", "tile"]) + f"_kernel_{i}"
        fields = {"name": name, "var": rng.choice(["x", "value", "acc", "tile", "data"]), "number": rng.random()}
        parts.append(_KERNEL.format(**fields, other=rng.randrange(9), block=2 ** rng.randrange(6, 12), warps=2 ** rng.randrange(4)))
        names.append(name)
    calls = "".join(f"        x = launch_{n}(x)\n" for n in names)
    parts.append(f"\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{calls}        return x\n")
    return "\n".join(parts)


class Writer(writers.Writer):
    """Writes at once."""

    name = "mock/instant"
    concurrency = 4
    in_pool = False

    def __init__(self, model: str, **options: Any) -> None:
        pass

    def drafts(self, problem: Problem, n: int, feedback: Sequence[Attempt] = (), first: int = 0) -> Iterator[Draft]:
        """``n`` drafts from sample ``first`` on."""
        for sample in range(first, first + n):
            source = text(problem.name, sample)
            prompt = f"Write Triton kernels for this model.\n{problem.source}\n" + "Answer with one code block.\n" * 60
            answer = f"Here is the kernel.\n```python\n{source}\n```\n"
            cost = Cost(tokens_in=900, tokens_out=800, usd=0.001)
            yield Draft(candidate=Candidate(source=source, model=self.name, sample=sample), prompt=prompt, answer=answer, cost=cost)


class Judge:
    """Decides at once, with as much evidence as a real verdict holds."""

    def __init__(self, settings: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        """It holds nothing."""

    def judge(self, problem: Problem, candidate: Candidate) -> Verdict:
        """A verdict by the candidate's digest: two of five are correct."""
        rng = random.Random(candidate.digest)
        sizes = (SizeSet(label="original", inputs=("float32[16, 4096]",)), SizeSet(label="shrunk-1", inputs=("float32[3, 17]",)))
        trials = tuple(Trial(sizes=s.label, seed=k, kind=kind, max_error=rng.random() * 1e-6, margin=rng.random())
                       for s in sizes for k in range(3) for kind in ("problem", "normal"))  # fmt: skip
        kernels = tuple(KernelUse(name=f"kernel_{i}", launches=1, registers=32, spills=0, target="sm_90") for i in range(3))
        status = Status.CORRECT if rng.random() < 0.4 else rng.choice([s for s in Status if s is not Status.CORRECT])
        if status is not Status.CORRECT:
            findings = (Finding(check="no_kernel", message="The candidate launched no kernel."),) if status is Status.CHEATING else ()
            message = f"The output differs from the reference by {rng.random():.3f} at index [{rng.randrange(99)}, {rng.randrange(99)}]."
            return Verdict(status=status, message=message, findings=findings, trials=trials, shapes=sizes, kernels=kernels)
        mine, speed = rng.lognormvariate(0, 1), rng.lognormvariate(0, 0.5)
        timing = Timing(device="NVIDIA H200", candidate=_measured(mine), floor_percent=40.0, sol_score=0.6,
                        baselines={b: _measured(mine * speed) for b in ("eager", "compile")},
                        speedups={b: Ratio(value=speed, low=speed * 0.99, high=speed * 1.01) for b in ("eager", "compile")})  # fmt: skip
        floor = Floor(ms=0.4 * mine, bytes=1 << 20, device="H200")
        environment = {"device": "NVIDIA H200", "torch": "2.11", "triton": "3.6", "profile": "strict"}
        return Verdict(status=status, message="Right in 12 trials at 2 sizes.", trials=trials, shapes=sizes, kernels=kernels,
                       coverage=1.0, timing=timing, floor=floor, environment=environment)  # fmt: skip


def _measured(ms: float) -> Measured:
    quantiles = tuple(ms * q for q in (0.97, 0.98, 0.99, 1.0, 1.01, 1.03, 1.2))
    return Measured(median_ms=ms, low_ms=0.99 * ms, high_ms=1.01 * ms, runs=100, mean_ms=1.01 * ms, quantiles_ms=quantiles)


@dataclass(frozen=True)
class Figures:
    """What one measurement gave."""

    attempts: int
    run_s: float
    resume_s: float
    page_s: float
    page_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.attempts} attempts: {self.run_s:.1f} s overhead ({1e3 * self.run_s / max(self.attempts, 1):.1f} ms an attempt), "
            f"nothing left to do on the second call: {self.resume_s:.1f} s; report: {self.page_s:.1f} s, {self.page_bytes / 1e6:.2f} MB"
        )


def plan(problems: int, n: int) -> BenchPlan:
    """The mock plan. The names of this module's classes go to the pool's processes."""
    made = tuple(Problem(name=f"level{1 + i % 3}/{i}_mock", source=_REFERENCE.format(size=i)) for i in range(1, problems + 1))
    classes = {"judge_class": f"{__name__}:Judge", "writer_factory": f"{__name__}:Writer"}
    return BenchPlan(suite="mock", problems=made, model="mock/instant", n=n, **classes)


def measure(problems: int, n: int, folder: Path, slots: int = 2) -> Figures:
    """Run, resume and report; leaves ``overhead.db`` and ``overhead.html`` in the folder."""
    with Store(folder / "overhead.db") as store:
        start = time.perf_counter()
        made = len(list(Bench(plan(problems, n), store, per_device=slots).attempts()))
        ran = time.perf_counter()
        list(Bench(plan(problems, n), store, per_device=slots).attempts())
        resumed = time.perf_counter()
        attempts = Bench(plan(problems, n), store).run.attempts()
        html = page([view("mock", "mock/instant", "mock", attempts)])
        built = time.perf_counter()
    (folder / "overhead.html").write_text(html, encoding="utf-8")
    return Figures(made, ran - start, resumed - ran, built - resumed, len(html.encode()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=250)
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="leave the store and the page here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        figures = measure(options.problems, options.n, folder)
    print(figures)
    return 0 if figures.run_s < MOST_SECONDS and figures.page_bytes < MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
