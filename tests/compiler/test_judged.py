"""What the compiler writes for modules that took some care, judged."""

import copy
import runpy
from functools import cache
from pathlib import Path

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import GRADIENTS, Candidate, Problem, Severity
from kernelllm.judge import Judge
from kernelllm.problems.shrink import shrunk

RANDOM = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.third = nn.Dropout(0.3), nn.Dropout2d(0.5)
    def forward(self, x):
        left = self.first(F.gelu(self.up(x)))
        right = F.dropout(x * 2, 0.1, training=True)
        y = F.alpha_dropout(self.down(left) + right, 0.2, training=True)
        return y + 0.1 * torch.randn_like(y) + self.third(y[:, :, None, None].expand(-1, -1, 2, 2)).sum((2, 3))
def get_inputs(): return [torch.randn(32, 48)]
def get_init_inputs(): return [48]
"""


def test_dropout_of_every_kind_and_noise(quick: Judge, hybrid: Judge):
    """After the same seed the written kernel draws the same numbers, in the same order."""
    ours, torchs = both_by_default()[0], next(Compiler(extern="allow").write(problem(RANDOM), 1))
    verdict = quick.judge(problem(RANDOM), ours)
    assert verdict.correct, verdict.message
    verdict = hybrid.judge(problem(RANDOM), torchs)
    assert verdict.correct, verdict.message


@cache
def both_by_default() -> tuple[Candidate, ...]:
    """Two files for the module above."""
    return tuple(Compiler().write(problem(RANDOM), 2))


def test_without_being_asked_to_nothing_more_is_left_to_torch():
    first, second = both_by_default()
    assert first.params == {}
    assert second.params
    assert "extern" not in second.params


def test_another_mask_is_wrong(judge: Judge):
    """The judge seeds both sides alike, so that a mask can be told from another."""
    found, _ = both_by_default()
    forged = Problem(name="forged", source=problem(RANDOM).source.replace("nn.Dropout(0.3)", "nn.Dropout(0.31)"))
    assert judge.judge(forged, found).status == "incorrect"


FILLED = """
class Model(nn.Module):
    def forward(self, x, y):
        out = torch.zeros(x.shape[0], 4, x.shape[1])
        out[:, 1] = x
        out[:, 2:4, ::2] = torch.relu(y)[:, None, ::2]
        out[0] += 1
        return out
def get_inputs(): return [torch.randn(16, 40), torch.randn(16, 40)]
def get_init_inputs(): return []
"""


CHECKED = """
class Model(nn.Module):
    def forward(self, x, y):
        chosen = F.one_hot(y, x.shape[1]).float()
        loss = F.binary_cross_entropy_with_logits(x, chosen, reduction="none")
        p = torch.sigmoid(x)
        return (loss * (1 - (p * chosen + (1 - p) * (1 - chosen))) ** 2).mean()
def get_inputs(): return [torch.randn(64, 20), torch.randint(0, 20, (64,))]
def get_init_inputs(): return []
"""
SCANS = """
class Model(nn.Module):
    def forward(self, x):
        return x.std(1), torch.logcumsumexp(x, 1), x.cumprod(1)[:, -1], x.amax(0) - x.amin(0)
def get_inputs(): return [torch.rand(32, 48) + 0.5]
def get_init_inputs(): return []
"""


DIAGONALS = """
class Model(nn.Module):
    def forward(self, x):
        own = torch.zeros_like(x, dtype=torch.bool)
        own[:, : len(x)].fill_diagonal_(True)
        return x.masked_fill(own, -9.0).logsumexp(1), (x * 2).fill_diagonal_(0.5), x.sum() / len(x)
rows, columns = 24, 40
def get_inputs(): return [torch.randn(rows, columns)]
"""
SIZES_AS_TENSORS = """
class Model(nn.Module):
    def forward(self, x, p):
        h, w = x.shape[-2:]
        scale = torch.tensor([[w, h], [h, 1]], device=x.device, dtype=x.dtype)
        return p @ scale, x.flatten(2).sum(-1) / torch.tensor(float(h * w)).sqrt() + torch.as_tensor(x.shape[2:]).sum()
rows, columns, points = 20, 30, 12
def get_inputs(): return [torch.randn(3, 6, rows, columns), torch.randn(points, 2)]
"""
WHOLE = """
class Model(nn.Module):
    def forward(self, x):
        return (x & 3) ^ (x >> 2), (x % 7).clamp(1, 5), x // 3, x.bitwise_not()
def get_inputs(): return [torch.randint(-100, 100, (30, 30))]
def get_init_inputs(): return []
"""
DENSITY = """
class Model(nn.Module):
    def forward(self, x, y):
        weight, middle, width = x.chunk(3, -1)
        density = torch.distributions.Normal(middle, F.softplus(width) + 1e-3).log_prob(y[:, None])
        return -torch.logsumexp(weight.log_softmax(-1) + density, -1).mean()
def get_inputs(): return [torch.randn(40, 15), torch.randn(40)]
def get_init_inputs(): return []
"""


LARGEST_SO_FAR = """
class Model(nn.Module):
    def forward(self, x): return torch.cummax(x, 1)
rows, columns = 24, 40
def get_inputs(): return [torch.randn(rows, columns)]
def get_init_inputs(): return []
"""
PROJECTED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, 20, proj_size=12, batch_first=True)
    def forward(self, x): return self.lstm(x)[0]
def get_inputs(): return [torch.randn(3, 4, 16)]
def get_init_inputs(): return [16]
"""
UNSAVED = """
import numpy as np
class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.from_numpy(np.hanning(12).astype("float32")), persistent=False)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Window()
    def forward(self, x): return x * self.inner.window
rows = 24
def get_inputs(): return [torch.randn(rows, 12)]
def get_init_inputs(): return []
"""
FUNCTION_AS_DEFAULT = """
def task(x, width): return torch.relu(x) * width
class Model(nn.Module):
    def forward(self, x, fn=task): return fn(x, x.shape[1])
rows, columns = 24, 40
def get_inputs(): return [torch.randn(rows, columns)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(
    "text", [FILLED, CHECKED, SCANS, DIAGONALS, SIZES_AS_TENSORS, WHOLE, DENSITY, LARGEST_SO_FAR, PROJECTED, UNSAVED, FUNCTION_AS_DEFAULT],
    ids=["slices are written", "inputs are checked", "several scans", "diagonals", "sizes as tensors", "integers", "a distribution",
         "the largest so far",
         "a projected state", "buffers that are not saved", "a function as default"],
)  # fmt: skip
def test_is_right(judge: Judge, quick: Judge, text: str):
    candidate = next(Compiler().write(problem(text), 1))
    verdict = (quick if text is PROJECTED else judge).judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert text not in (DIAGONALS, SIZES_AS_TENSORS) or '"rows"' not in candidate.source  # for one number of rows alone


LAST_STEP = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(width, 20, 2, batch_first=True, bidirectional=True), nn.Linear(40, 5)
    def forward(self, x, h, c): return self.fc(self.lstm(x, (h, c))[0][:, -1, :])
batch = 3
def get_inputs(): return [torch.randn(batch, 4, 16), torch.randn(4, batch, 20), torch.randn(4, batch, 20)]
def get_init_inputs(): return [16]
"""


def test_the_last_step_of_one_sequence_is_that_of_the_last_layer(quick: Judge) -> None:
    """One sequence lies in memory as several do, so a copy that makes a tensor contiguous copies nothing."""
    candidate = next(Compiler().write(problem(LAST_STEP), 1))
    verdict = quick.judge(Problem(name="one", source=problem(LAST_STEP).source.replace("batch = 3", "batch = 1")), candidate)
    assert verdict.correct, verdict.message
    assert [f.message for f in verdict.findings if f.severity is Severity.WARN] == []  # own code trips no own warning


QUANTILES = """
class Model(nn.Module):
    def forward(self, x):
        return torch.special.ndtri(x)
def get_inputs(): return [torch.rand(8, 64)]
def get_init_inputs(): return []
"""


def test_where_all_stays_with_torch_it_says_so():
    with pytest.raises(CaptureError, match="nothing is left for a kernel"):
        next(Compiler().write(problem(QUANTILES), 1))


FOURIER = QUANTILES.replace("torch.special.ndtri(x)", "torch.fft.irfft(torch.fft.rfft(x), n=2048)").replace("8, 64", "8, 2048")


def test_complex_numbers_go_from_one_operator_of_torch_to_the_next_without_a_kernel():
    with pytest.raises(CaptureError, match="Torch does _fft_r2c, _fft_c2r"):
        next(Compiler().write(problem(FOURIER), 1))


RUNNING_SUM = """
class Model(nn.Module):
    def forward(self, x):
        return x.unflatten(1, (2, 130)).permute(0, 3, 1, 2).cumsum(-1)
def get_inputs(): return [torch.randn(6, 260, 8)]
def get_init_inputs(): return []
"""


def test_a_running_sum_block_by_block_over_the_last_of_three_axes(judge: Judge):
    candidate = next(Compiler(persistent="never", tile="large").write(problem(RUNNING_SUM), 1))
    verdict = judge.judge(problem(RUNNING_SUM), candidate)
    assert verdict.correct, verdict.message


ADAPTED = '''
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.adaptive_avg_pool2d(x, 4) + F.glu(x, 1).mean()


batch, channels, size = 2, 8, 12


def get_inputs():
    return [torch.randn(batch, channels, size, size)]


def get_init_inputs():
    return []
'''


def test_a_gate_over_channels_and_adaptive_pooling_stay_general(judge: Judge) -> None:
    """Inductor's own rule for a gated linear unit fixes the size."""
    wanted = Problem(name="adapted", source=ADAPTED)
    source = compiled(wanted, Options())
    assert "FIXED_SIZES" not in source
    assert judge.judge(wanted, Candidate(source=source)).correct


@pytest.mark.parametrize("options", [Options(), Options(short=True), Options(backward=True)], ids=["general", "short", "backward"])
def test_adaptive_maxima_over_windows_that_divide_evenly_stay_general(judge: Judge, options: Options) -> None:
    """Inductor's own rule then fixes the windows."""
    text = ADAPTED.replace("F.adaptive_avg_pool2d(x, 4) + F.glu(x, 1).mean()", "F.adaptive_max_pool2d(x, 4).relu()")
    tags = (GRADIENTS,) if options.backward else ()
    wanted = Problem(name="adapted", source=text.replace("size = 2, 8, 12", "size = 2, 8, 24"), tags=tags)
    source = compiled(wanted, options)
    assert "FIXED_SIZES" not in source
    verdict = judge.judge(wanted, Candidate(source=source))
    assert verdict.correct, verdict.message
    assert not any(finding.check == "torch_fallback" for finding in verdict.findings)


RANKED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y, codes):
        middle, where = x.median(dim=1)
        low = x.round().kthvalue(7, dim=0, keepdim=True)
        best = y.topk(20, dim=-1)
        most = torch.zeros(9, length).scatter_reduce(0, codes[:, None].expand_as(x), x, "amax")
        return middle, where, low, best.values.softmax(-1), best.indices, most


rows, length, words = 12, 61, 5000


def get_inputs():
    return [torch.randn(rows, length), torch.randn(3, words), torch.randint(0, 9, (rows,))]


def get_init_inputs():
    return []
"""


def test_medians_the_kth_smallest_the_largest_of_long_rows_and_of_scattered_are_kernels(quick: Judge) -> None:
    """Which of equal values has the seventh place is nobody's promise."""
    wanted = Problem(name="ranked", source=RANKED)
    verdict = quick.judge(wanted, Candidate(source=compiled(wanted, Options())))
    assert verdict.correct, verdict.message
    assert not any(finding.check == "torch_fallback" for finding in verdict.findings)


COUNTED_PLACES = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y, codes):
        ordered = torch.sort(x, dim=-1).values
        place = torch.searchsorted(ordered, y).clamp(1, length - 1)
        step = torch.gather(ordered, 1, place) - torch.gather(ordered, 1, place - 1)
        return torch.zeros(bins, y.shape[1]).index_add(0, codes, step)


rows, length, asked, bins = 20, 64, 50, 30


def get_inputs():
    return [torch.randn(rows, length), torch.randn(rows, asked), torch.randint(0, bins, (rows,))]


def get_init_inputs():
    return []
"""


def test_places_are_integers_and_a_constant_that_forward_alone_reads_stays(judge: Judge) -> None:
    """Nobody who gets the inputs can see ``bins`` change; ``length`` is a dimension of one."""
    wanted = Problem(name="places", source=COUNTED_PLACES)
    source = compiled(wanted, Options())
    verdict = judge.judge(wanted, Candidate(source=source))
    assert verdict.correct, verdict.message
    assert "FIXED_SIZES" not in source
    changed = {name for overrides in shrunk(wanted) for name in overrides}
    assert "length" in changed
    assert "bins" not in changed


def test_nothing_beside_an_integer_index_becomes_a_float() -> None:
    pairs = """rows, cols = torch.tril_indices(x.shape[2], x.shape[2], -1)
        return torch.cat((x[:, 0, :2, 0], x[:, 0, rows, cols]), 1)"""
    text = ADAPTED.replace("return F.adaptive_avg_pool2d(x, 4) + F.glu(x, 1).mean()", pairs)
    source = compiled(Problem(name="pairs", source=text), Options())
    assert "tl.int64), 0.0)" not in source


CONSTRUCTED = """
from dataclasses import dataclass
@dataclass
class Settings:
    width: int
    rate: float
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.settings = Settings(width, 0.5)
        self.rates = [x.item() for x in torch.linspace(0, 0.1, 3)] + torch.linspace(0.2, 0.3, 2).tolist()
        self.register_buffer("edges", torch.linspace(-1, 1, 5))
        self.cut = nn.Buffer(torch.tensor(3), persistent=False)
        CONSTRUCTOR
    def forward(self, x, image):
        small = F.interpolate(image, scale_factor=0.5, mode="area").mean((1, 2, 3))
        place = torch.bucketize(x, self.edges) * self.rates[1] * self.rates[3]
        return F.pad(x, (self.cut, 0)), small, place, torch.quantile(x, 0.3, dim=1)
def get_inputs(): return [torch.randn(7, 12), torch.randn(2, 3, 10, 12)]
def get_init_inputs(): return [12]
"""


@pytest.mark.parametrize("constructor", [
    "pass", "self.rates[1] = float(torch.full((2,), 0.25).numpy()[0])", "self.rates = (torch.arange(width) / width).tolist()",
])  # fmt: skip
def test_what_constructors_make_of_values(constructor: str, quick: Judge):
    """Dataclasses, ranges that are read, numbers in buffers; and a constructor that no fake tensor gets through."""
    made = problem(CONSTRUCTED.replace("CONSTRUCTOR", constructor))
    verdict = quick.judge(made, next(Compiler().write(made, 1)))
    assert verdict.correct, verdict.message


RESULTS = """
import typing
from dataclasses import dataclass
@dataclass
class Step:
    state: torch.Tensor
    count: int = 0
class Pair(typing.NamedTuple):
    low: torch.Tensor
    step: Step
@dataclass
class Output(dict):  # as those of transformers
    pair: Pair
    loss: object = None
    def __post_init__(self): self["pair"] = self.pair
class Model(nn.Module):
    def forward(self, x): return Output(Pair(x * 2, Step(x + 1, 3)))
rows = 24
def get_inputs(): return [torch.randn(rows, 40)]
def get_init_inputs(): return []
"""


def test_results_keep_their_names(judge: Judge, tmp_path: Path) -> None:
    (candidate,) = Compiler().write(problem(RESULTS), 1)
    verdict = judge.judge(problem(RESULTS), candidate)
    assert verdict.correct, verdict.message
    file = tmp_path / "written.py"
    file.write_text(candidate.source, encoding="utf-8")
    of = runpy.run_path(str(file))
    out = of["Output"](pair=of["Pair"](1, of["Step"](state=2, count=3)))
    assert out.loss is None
    assert out[0] is out.pair
    assert out["pair"].step.count == 3
    assert copy.deepcopy(out) == out


MASKED = """
class Model(nn.Module):
    def forward(self, q, k, v):
        place = torch.arange(q.shape[2], device=q.device)
        near = (place[:, None] >= place) & (place[:, None] - place < 40)
        return F.scaled_dot_product_attention(q, k, v, near), F.scaled_dot_product_attention(q, k, v, (place > 70)[None])
def get_inputs(): return [torch.randn(1, 2, 144, 16, dtype=torch.bfloat16) for _ in range(3)]
def get_init_inputs(): return []
"""


def test_attention_under_conditions_leaves_out_what_nobody_sees(quick: Judge):
    verdict = quick.judge(problem(MASKED), next(Compiler().write(problem(MASKED), 1)))
    assert verdict.correct, verdict.message
