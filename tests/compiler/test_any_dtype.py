"""One file serves float32 and half precision where the module computes the same there, and says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import interpreted
import pytest
from compiled import problem

from kernelllm.compiler.capture.half_precision import any_dtype
from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

pytestmark = pytest.mark.filterwarnings("ignore")

BLOCK = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.conv = nn.LayerNorm(width), nn.Linear(width, width), nn.Conv1d(width, width, 3, padding=1)
    def forward(self, x):
        y = F.gelu(self.up(self.norm(x)))
        y = y + F.scaled_dot_product_attention(x, y, x, is_causal=True)
        return torch.softmax(self.conv(y.transpose(1, 2)), -1).mean(-1), y.cumsum(1)
batch, rows, width = 3, 21, 48
def get_inputs(): return [torch.randn(batch, rows, width)]
def get_init_inputs(): return [width]
"""
TABLE = """
class Model(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.register_buffer("scale", torch.rand(width))
    def forward(self, tokens, targets):
        y = self.table(tokens) * self.scale
        loss = F.cross_entropy((y @ self.table.weight.t()).float(), targets)
        return loss, y * torch.rsqrt(y.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(y.dtype)
rows, words, width = 19, 40, 32
def get_inputs(): return [torch.randint(0, words, (rows,)), torch.randint(0, words, (rows,))]
def get_init_inputs(): return [words, width]
"""
TWICE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x, y):
        h = x + y
        return h, self.norm(h)
rows, width = 3, 5000
def get_inputs(): return [torch.full((rows, width), 100.0), torch.rand(rows, width)]
def get_init_inputs(): return [width]
"""
ALSO_RETURNED = """
class Model(nn.Module):
    def forward(self, x, y):
        h, mean = x + y, x.mean(0)
        return h, (h - 100) * 3, mean, y - mean
rows, width = 7, 500
def get_inputs(): return [torch.full((rows, width), 100.0) + torch.rand(rows, width), torch.rand(rows, width)]
def get_init_inputs(): return []
"""
FLOAT32 = {
    "a product of what was made float32": "torch.mm(x.float(), x.float().t()).to(x.dtype)",
    "a constant of the type": "x.masked_fill(x > 0, torch.finfo(x.dtype).min)",
    "whole numbers that rounding changes": "(x * 7).long()",
    "positions among rounded values": "(x[:, None] - x[None, :8]).pow(2).sum(-1).argmin(-1)",
    "a Fourier transform of what was made float32": "torch.fft.rfft(x.float()).abs()",
    "another way": "x.exp() if x.dtype == torch.float32 else x.sin()",
}
ALONE = """
class Model(nn.Module):
    def forward(self, x): return {}
def get_inputs(): return [torch.randn(16, 40)]
def get_init_inputs(): return []
"""
RUN = """
import json, sys, torch
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.worker import setup
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
def loaded(path):
    namespace = {}
    exec(compile(open(path).read(), path, "exec"), namespace)
    return namespace
ours, reference = loaded(sys.argv[1]), loaded(sys.argv[2])
torch.manual_seed(0)
model, inputs = reference["Model"](*reference["get_init_inputs"]()), reference["get_inputs"]()
made, worst = ours["ModelNew"](*reference["get_init_inputs"]()), {}
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    given = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    made.load_state_dict(model.float().state_dict())
    with torch.no_grad():
        pairs = list(zip(made.to(dtype)(*given), model.to(dtype)(*given), strict=True))
    assert all(a.dtype == b.dtype for a, b in pairs), pairs
    worst[str(dtype)] = max(float((a.double() - b.double()).abs().max() / b.double().abs().max()) for a, b in pairs)
print(json.dumps(worst))
"""


@pytest.mark.parametrize("body", [BLOCK, TABLE], ids=["block", "table"])
def test_three_types(body: str, tmp_path: Path) -> None:
    """A product, a convolution, attention, a scan, norms and statistics; a loss and a norm that are float32 in the reference too."""
    ours, reference = tmp_path / "ours.py", tmp_path / "reference.py"
    ours.write_text(compiled(problem(body), Options()), encoding="utf-8")
    reference.write_text(problem(body).source, encoding="utf-8")
    worst = json.loads(interpreted.run(RUN, str(ours), str(reference)))
    assert worst["torch.float32"] < 1e-5
    assert worst["torch.float16"] < 4e-3
    assert worst["torch.bfloat16"] < 3e-2
    text = ours.read_text(encoding="utf-8")
    assert re.search(r"^DTYPES = \(torch.float32, torch.float16, torch.bfloat16\)", text, re.M)
    assert '"""Inference only; float32, float16 or bfloat16.' in text


@pytest.mark.parametrize("body", [TWICE, ALSO_RETURNED], ids=["statistics", "elements"])
def test_what_is_stored_is_what_is_used(body: str, tmp_path: Path) -> None:
    """Of a sum that is stored in half precision and read back, rounding may be all that its elements differ in."""
    ours, reference = tmp_path / "ours.py", tmp_path / "reference.py"
    ours.write_text(compiled(problem(body), Options()), encoding="utf-8")
    reference.write_text(problem(body).source, encoding="utf-8")
    worst = json.loads(interpreted.run(RUN, str(ours), str(reference)))
    assert worst["torch.float16"] < 4e-3
    assert worst["torch.bfloat16"] < 3e-2


@pytest.mark.parametrize("name", FLOAT32)
def test_one_type(name: str) -> None:
    """What half precision would change is left in float32."""
    assert any_dtype(problem(ALONE.format("x.exp()")), Options()) is not None
    assert any_dtype(problem(ALONE.format(FLOAT32[name])), Options()) is None


VARYING = """
class Model(nn.Module):
    def forward(self, x, y): return torch.softmax(x * y[:, None], -1), x.amax(0), x.transpose(0, 1) * 2
batch, rows, length = 6, 20, 300
def get_inputs(): return [torch.randn(batch, rows, length), torch.randn(batch, length)]
def get_init_inputs(): return []
"""


def test_few_sizes_that_vary_are_looked_at_by_triton() -> None:
    """Each that is would make two or three kernels of one; blocks that hold a row have one size up to that of the problem."""
    source = compiled(problem(VARYING), Options())
    heads = re.findall(r"@triton\.jit(?:\(do_not_specialize=\[(.*?)\]\))?\ndef \w+_kernel\((.*?)\):", source, re.S)
    for loose, arguments in heads:
        sizes = {a.strip() for a in arguments.split(",") if "_ptr" not in a and "constexpr" not in a}
        assert len(sizes - set(re.findall(r'"(\w+)"', loose))) <= 2
    assert heads[0][0] == '"rows_"'  # the length of a row is looked at
    assert len(heads) == sum(bool(loose) for loose, _ in heads) == 2
    blocks = re.findall(r"=max\((\d+), 1 << \(", source)
    assert "1024" in blocks
    assert len(blocks) == source.count(".bit_length()")


COPIED = """
class Model(nn.Module):
    def forward(self, x):
        y = torch.sin(x) * 2
        return y, y.to(torch.bfloat16), y + 3
batch = 24
def get_inputs(): return [torch.randn(batch, 40)]
def get_init_inputs(): return []
"""


def test_a_copy_in_half_precision_does_not_round_its_original(judge: Judge) -> None:
    verdict = judge.judge(problem(COPIED), Candidate(source=compiled(problem(COPIED), Options())))
    assert verdict.correct, verdict.message


QUANTISED = """
class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 448
        return (x / scale).to(torch.float8_e4m3fn), scale
rows, width = 16, 96
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return []
"""


def test_results_of_eight_bits_are_judged_in_each_dtype_that_a_file_serves(judge: Judge) -> None:
    candidate = next(Compiler().write(problem(QUANTISED), 1))
    assert "DTYPES" in candidate.source
    verdict = judge.judge(problem(QUANTISED), candidate)
    assert verdict.correct, verdict.message
