"""What the judge learns of a reference by running it."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
import torch.nn.functional as F

from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.inputs.input_distribution import HEAVY, vary
from kernelllm.judge.trials.output_comparison import OutputComparison
from kernelllm.judge.trials.reference_runs.reference import prepare
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.judge.trials.reference_runs.rounding_noise import EagerNoise, Float64Noise, LastBitNoise
from kernelllm.judge.trials.reference_runs.tf32_allowance import truncate_to_tf32
from kernelllm.judge.trials.schedule import PlannedTrial


@pytest.mark.parametrize(
    ("forward", "draws"),
    [
        ("torch.relu(x)", False),
        ("torch.dropout(x, 0.5, False)", False),
        ("torch.dropout(x, 0.5, True)", True),
        ("x + torch.rand(8)", True),
        ("x * random.random()", True),
        ("x * float(numpy.random.rand())", True),
    ],
)
def test_whether_it_draws_random_numbers(forward: str, draws: bool) -> None:
    source = f"""
import random, numpy, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.randn(4, 8)]
def get_init_inputs():
    return []
"""
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    reference.run(reference.inputs(0), 0)
    assert reference.draws is draws


def test_a_module_that_converts_on_its_way_runs_in_float64_too() -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, a, b):
        h = torch.nn.functional.gelu(x @ a).float()
        scale = torch.rsqrt(h.square().mean(1, keepdim=True))
        return (h * scale).to(torch.bfloat16) @ b, scale
def get_inputs():
    return [torch.randn(8, 512, dtype=torch.bfloat16), *(torch.randn(512, 512).div(23).bfloat16() for _ in range(2))]
def get_init_inputs():
    return []
"""
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    found = reference.run(reference.inputs(0), 0)
    assert found.refine(rounding=True)
    assert found.expected.has_exact
    (_, scale), (_, exact) = found.expected.value, found.expected.exact
    assert (scale - exact).abs().max() > 1e-4, "eager rounds on the way, and what it loses is known"


def test_constants_and_sums_of_a_named_type_are_float64_in_a_float64_run() -> None:
    source = """
import torch
aten = torch.ops.aten
class Model(torch.nn.Module):
    def forward(self, q, k, seen):
        none = aten.scalar_tensor.default(float("-inf"), dtype=torch.bfloat16)
        bias = aten.where.self(seen, aten.full.default([], 0.0, dtype=torch.bfloat16), none)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=bias)
        return attended + torch.softmax(attended, -1, dtype=torch.float32).to(torch.bfloat16) + attended.sum(-1, True, dtype=torch.float32)
def get_inputs():
    return [torch.randn(2, 8, 16).bfloat16(), torch.randn(2, 8, 16).bfloat16(), torch.ones(8, 8, dtype=torch.bool).tril()]
def get_init_inputs():
    return []
"""
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    found = reference.run(reference.inputs(0), 0)
    assert found.refine(rounding=True)
    assert found.expected.has_exact


def test_where_eager_is_rounding_alone_float64_is_right() -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        h = torch.logsumexp(x, 1)
        out = (h - h.mean()) / (h.float().std() + 1e-5).to(h.dtype)
        return out, out
def get_inputs():
    return [torch.rand(32, 512, dtype=torch.bfloat16)]
def get_init_inputs():
    return []
"""
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    found = reference.run(reference.inputs(0), 0)
    assert found.refine(rounding=True)
    assert found.unstable
    right, again = found.by_float64().value
    assert torch.equal(right, again)
    assert right.dtype is torch.bfloat16
    assert abs(right.float().std() - 1) < 0.02


def test_what_tf32_does_to_a_mask_is_seen_more_than_once() -> None:
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 8, 3)
    def forward(self, x):
        return (self.conv(x) > 0).float()
def get_inputs():
    return [torch.randn(4, 8, 32, 32)]
def get_init_inputs():
    return []
"""
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    found = reference.run(reference.inputs(0), 0)
    assert found.refine(rounding=True)
    assert found.has_tf32
    flipped = {tuple((one != found.expected.exact).nonzero().flatten().tolist()) for one in found.expected.equally_right}
    assert len(flipped) >= 3, "each way of rounding flips other elements"


CENTRED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x - x.mean(1, keepdim=True)) / x.var(1, keepdim=True).sqrt()DROPPED
def get_inputs():
    return [(LEVEL + 0.01 * torch.randn(64, 512)).bfloat16()]
def get_init_inputs():
    return []
"""


def _far(level: str = "1.0", dropped: str = "") -> tuple[ReferenceRun, torch.Tensor, torch.Tensor]:
    """A run of which half precision makes something else than float64 does; its output, and the right one."""
    problem = Problem(name="p", source=CENTRED.replace("LEVEL", level).replace("DROPPED", dropped))
    reference = prepare(problem, SizeSet(label="original"), {}, "cpu", 0, True)
    found = reference.run(reference.inputs(0), 0)
    assert found.refine(rounding=True)
    assert found.unstable
    return found, found.expected.value.double(), found.expected.exact


def test_who_is_as_exact_as_eager_is_right_however_far_rounding_takes_both() -> None:
    found, eager, right = _far("1.01")
    assert found.expected.has_exact
    assert 0.05 < (eager - right).norm() / right.norm() < 0.25
    elsewhere = right + 0.9 * (eager - right).flip(0)
    assert found.compared(elsewhere.bfloat16(), Rules()).ok
    for times in (1.5, 2.0):
        assert not found.compared((right + times * (eager - right).flip(0)).bfloat16(), Rules()).ok
    assert not found.compared((right * 1.1).bfloat16(), Rules()).ok, "a wrong factor is no rounding"
    some_wrong = torch.cat([right[:60], torch.zeros_like(right[60:])])
    assert not found.compared(some_wrong.bfloat16(), Rules()).ok


def test_an_output_that_is_zero_but_for_rounding_may_be_as_far_from_it_as_eager_s() -> None:
    noise, rules = torch.randn(512).mul(1e-4).bfloat16(), Rules(far=True)
    expected = Expected(noise, torch.randn(512).double() * 1e-17, has_exact=True)
    for right in (noise.flip(0), torch.zeros_like(noise)):
        assert compare(right, expected, rules).ok
    assert not compare(noise * 500, expected, rules).ok


def test_random_numbers_are_not_explained_by_rounding() -> None:
    found, eager, right = _far("0.0", "* torch.rand_like(x)")
    assert not found.expected.has_exact
    assert not found.compared((right + 0.5 * (eager - right)).bfloat16(), Rules()).ok


def test_statistics_of_huge_values_may_be_off_as_the_values_are() -> None:
    """A mean near zero of values up to a million, behind a convolution whose operands tensor cores cut to TF32."""
    source = Path("tests/cheats/problems/conv_norm_train.py").read_text()
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    inputs = vary(reference.inputs(0), HEAVY, 1)
    before = reference.state()["norm.running_mean"].clone()
    run = reference.run(inputs, 0)
    weight = reference.state()["conv.weight"]
    means = torch.nn.functional.conv2d(truncate_to_tf32(inputs[0]), truncate_to_tf32(weight)).mean((2, 3))

    def wrong(found: torch.Tensor) -> tuple[str, ...]:
        theirs = {**run.buffers, "norm.running_mean": 0.9 * before + 0.1 * found}
        process = cast("CandidateProcess", SimpleNamespace(state=lambda names: {n: theirs[n] for n in names}))
        return OutputComparison(Rules()).wrong_buffers(PlannedTrial(HEAVY), process, reference, run, ())

    assert wrong(means.mean(0)) == ()
    assert wrong(means[:-1].mean(0)) == ("norm.running_mean",)


CHAOTIC = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 256), torch.nn.Linear(256, 256)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(256, eps=1e-12) for _ in range(2)])
    def forward(self, x):
        return torch.relu(self.norms[1](self.second(torch.relu(self.norms[0](self.first(x))))))
def get_inputs():
    x = torch.randn(64)
    return [torch.stack([x, x + 1e-5 * torch.randn(64)])]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("seed", [0, 6, 7])
def test_statistics_behind_a_norm_of_two_rows_may_be_as_far_off_as_any_rounding_takes_them(seed: int) -> None:
    """Two rows hardly differ: which is the larger one, rounding alone may say, and a few large weights carry that into a later mean."""
    reference = prepare(Problem(name="p", source=CHAOTIC), SizeSet(label="original"), {}, "cpu", seed, True)
    reference.load({"norms.0.weight": torch.where(torch.arange(256) % 64 == 0, 100.0, 1.0)})
    (x,) = reference.inputs(seed)
    other = copy.deepcopy(reference.model)
    run = reference.run([x], seed)

    def halves(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        middle = x.shape[1] // 2
        return x[:, middle:] @ layer.weight[:, middle:].T + (x[:, :middle] @ layer.weight[:, :middle].T + layer.bias)

    with torch.no_grad():
        other.norms[1](halves(other.second, torch.relu(other.norms[0](halves(other.first, x)))))

    def wrong(factor: float) -> tuple[str, ...]:
        theirs = dict(other.named_buffers()) | {"norms.1.running_mean": other.norms[1].running_mean * factor}
        process = cast("CandidateProcess", SimpleNamespace(state=lambda names: {n: theirs[n] for n in names}))
        return OutputComparison(Rules()).wrong_buffers(PlannedTrial("normal"), process, reference, run, ())

    assert wrong(1.0) == ()
    assert wrong(0.5) == ("norms.1.running_mean",)


TURNS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        pair = torch.nn.functional.layer_norm(x * 1.0, (2,))
        return y * pair[:, :1]
def get_inputs():
    near = torch.tensor([[1.0, 1.0078125], [1.0, 1.5], [1.0, 1.75]])
    return [near.bfloat16(), torch.randn(3, 512).bfloat16()]
def get_init_inputs():
    return []
"""


def test_where_a_part_turns_over_under_another_rounding_a_candidate_may_too() -> None:
    """Two neighbouring numbers that are normalised give -1 and 1, both zero where they round to the same, or 1 and -1."""
    reference = prepare(Problem(name="p", source=TURNS), SizeSet(label="original"), {}, "cpu", 0, True)
    rules, excused = Rules(), 0
    for seed in range(12):
        run = reference.run(inputs := reference.inputs(seed), seed)
        turned, other = run.expected.value.clone(), run.expected.value.clone()
        turned[0], other[1] = 0.0, 0.0
        more, run.more_roundings, run.all_roundings = run.more_roundings, lambda: iter(()), lambda: iter(())
        if not run.compared(turned, rules).ok:  # none of the first few roundings turned it
            run.more_roundings = more
            excused += run.compared(turned, rules).ok
            assert not run.compared(other, rules).ok, inputs
            assert not run.compared(torch.zeros_like(turned), rules).ok
    assert excused


NEAREST = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, w):
        at = (x @ w).argmax(-1)
        return at, w.T[at].float()
def get_inputs():
    return [torch.randn(12, 4).bfloat16(), torch.randn(4, 5000).bfloat16()]
def get_init_inputs():
    return []
"""


def test_a_decision_that_rounding_makes_may_fall_otherwise_and_excuses_nothing_else() -> None:
    """Whoever takes the reference's choice under another rounding is right: a factor, and other choices, are wrong all the same."""
    reference = prepare(Problem(name="p", source=NEAREST), SizeSet(label="original"), {}, "cpu", 0, True)
    run = reference.run(inputs := reference.inputs(5), 5)
    with LastBitNoise(torch.Generator().manual_seed(77)), torch.no_grad():
        at, row = reference.model(*inputs)
    assert run.compared((at, row), Rules()).ok
    assert not torch.equal(at, run.expected.value[0])
    run = reference.run(inputs := reference.inputs(0), 0)
    x, w = (tensor.float() for tensor in inputs)
    best = (x @ w).topk(40).indices
    assert run.compared((best[:, 0], w.T[best[:, 0]]), Rules()).ok
    assert not run.compared((best[:, 0], w.T[best[:, 0]] * 1.1), Rules()).ok, "a factor beside it"
    other = torch.cat([best[:2, 39], best[2:, 0]])
    assert not run.compared((other, w.T[other]), Rules()).ok


def test_of_several_tensors_some_may_be_rounding_and_the_others_must_be_right() -> None:
    """Rows that cancel: the second tensor is off by most of itself wherever a compiler rounds less than eager does."""
    source = NEAREST.replace("at = (x @ w).argmax(-1)", "y = torch.softmax(x @ w, -1)").replace("5000", "24")
    source = source.replace("at, w.T[at].float()", "y, 1000 * (y - y.mean(-1, keepdim=True)).sum(-1) + x[:, 0]").replace("12", "64")
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    run = reference.run(inputs := reference.inputs(0), 0)
    x, w = (tensor.float() for tensor in inputs)
    weights = torch.softmax(x @ w, -1)
    centred = (weights - weights.mean(-1, keepdim=True)).bfloat16().float()
    kept = weights.bfloat16(), (1000 * centred.sum(-1) + x[:, 0]).bfloat16()
    assert run.compared(kept, Rules()).ok
    assert not run.compared((kept[0] * 1.1, kept[1]), Rules()).ok
    assert not run.compared((kept[1], kept[0]), Rules()).ok


def test_among_other_roundings_are_those_of_convolutions_in_tf32() -> None:
    source = NEAREST.replace("at = (x @ w).argmax(-1)", "y = torch.conv1d(x[None], w.T[:4].contiguous()[:, :, None])")
    source = source.replace("at, w.T[at].float()", "y").replace(".bfloat16()", "").replace("randn(12, 4)", "randn(4, 40)")
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    run = reference.run(reference.inputs(0), 0)
    assert run.refine(rounding=True)
    assert max(float((one.double() - run.expected.exact).abs().max()) for one in run.all_roundings()) > 1e-4


def test_infinities_on_the_way_may_end_as_numbers_or_not() -> None:
    """Where half precision overflows before an interpolation, its two forms give NaN and infinity; the rest must be right."""
    source = NEAREST.replace("at = (x @ w).argmax(-1)", "y = x.abs() @ w.abs()").replace("at, w.T[at].float()", "torch.sigmoid(HALVES)")
    source = source.replace("HALVES", "y[::2] * 0.5 + y[1::2] * 0.5 - 30").replace("bfloat16", "half").replace("4", "32")
    reference = prepare(Problem(name="p", source=source.replace("5000", "16")), SizeSet(label="original"), {}, "cpu", 0, True)
    x, w = (tensor.abs() for tensor in vary(reference.inputs(0), "large", 1))
    run, y = reference.run([x, w], 1), x @ w
    other = torch.sigmoid(y[::2] + (y[1::2] - y[::2]) * 0.5 - 30)
    assert run.finite
    assert 0 < int(other.isnan().sum()) < other.numel() / 2
    assert run.compared(other, Rules(scaled=True)).ok
    assert not run.compared(other * 1.2, Rules(scaled=True)).ok
    assert not run.compared(other, Rules()).ok, "of the problem's own inputs"


def test_weights_of_large_scores_are_known_as_well_as_the_scores_are() -> None:
    """A compiler may contract the exponent in a row's weights and not in their sum, and large scores round by far more than weights do."""
    source = NEAREST.replace("at = (x @ w).argmax(-1)", "y = torch.softmax(x @ w, 1)").replace("at, w.T[at].float()", "y @ w.T")
    source = source.replace(".bfloat16()", "").replace("4", "16").replace("5000", "32")
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    for size, right in ((1.0, False), (50.0, True)):
        x, w = (tensor * size for tensor in reference.inputs(0))
        run = reference.run([x, w], 0)
        contracted = run.expected.value * (1 + (x @ w).amax(1, keepdim=True) * 5e-8)
        assert run.compared(contracted, Rules(scaled=True)).ok
        assert run.compared(run.expected.value * (1 + 3e-4 * torch.randn(12, 1)), Rules(scaled=True)).ok == right
        assert not run.compared(run.expected.value * 1.01, Rules(scaled=True)).ok


INSIDE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        x = x.bfloat16() / (x.norm() + 1e-7)
        for _ in range(4):
            gram = x @ x.T
            x = 3.4 * x + (-4.8 * gram + 2.0 * gram @ gram) @ x
        return x
def get_inputs():
    return [torch.rand(24, 200)]
def get_init_inputs():
    return []
"""


def test_half_precision_inside_a_module_rounds_as_such_though_its_inputs_are_wide() -> None:
    """Iterations that amplify what each step rounds: another rounding of all that is computed is as right as eager's."""
    reference = prepare(Problem(name="p", source=INSIDE), SizeSet(label="original"), {}, "cpu", 0, True)
    inputs = reference.inputs(0)
    found = reference.run(inputs, 0)
    with EagerNoise(torch.Generator().manual_seed(1234)), torch.no_grad():
        rounded = reference.model(*inputs)
    rules = Rules(scaled=True)
    assert found.compared(rounded, rules).ok
    assert not found.compared(rounded * 1.5, rules).ok
    assert not found.compared(rounded.flip(0), rules).ok
    x = inputs[0].bfloat16() / inputs[0].norm()
    for _ in range(3):
        x = 3.4 * x + (-4.8 * (x @ x.T) + 2.0 * (x @ x.T) @ (x @ x.T)) @ x
    assert not found.compared(x, rules).ok, "an iteration is left out"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_logarithm_that_is_subtracted_from_a_row_rounds_for_all_of_it(dtype: torch.dtype) -> None:
    """So that a divergence of two rows that are nearly equal, which float32 gets wrong by half, may be wrong by that."""
    torch.manual_seed(0)
    x, y = (1e-3 * torch.randn(5, 9999, dtype=dtype) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    noise = Float64Noise(generator, 1.0) if dtype is torch.float64 else EagerNoise(generator)
    with noise:
        found = [float(F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="sum")) for _ in range(16)]
    assert max(found) - min(found) > 5e-7  # of 5e-6


def test_rounding_moves_values_whatever_they_are() -> None:
    """Noise that follows the values adds up in their sum, which looks ill-conditioned then."""
    text = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 3\n"
    text += "def get_inputs(): return [torch.rand(4000, dtype=torch.float64)]\ndef get_init_inputs(): return []\n"
    reference = prepare(Problem(name="p", source=text), SizeSet(label="original"), {}, "cpu", 0, True)
    (x,) = inputs = reference.inputs(7)
    for moved in reference.run(inputs, 7).perturbed(64.0):
        changes = torch.corrcoef(torch.stack([moved / (x * 3) - 1, x]))
        assert abs(float(changes[0, 1])) < 0.1
