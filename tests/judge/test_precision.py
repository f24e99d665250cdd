"""Where precision may have gone is told, and only where the problem asks for more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.core.types import Candidate, Problem, SizeSet
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.checks.precision import Precision
from kernelllm.judge.observation import Observation
from kernelllm.judge.trials.comparison.compare import Rules, compare
from kernelllm.judge.trials.reference_runs import tf32_allowance
from kernelllm.judge.trials.reference_runs.reference import prepare
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.judge.trials.reference_runs.tf32_allowance import to_tf32
from kernelllm.judge.trials.sampled_programs import prepare_run
from kernelllm.problems import shrink
from kernelllm.problems.instance import Instance

FIXTURES = Path(__file__).parent.parent / "cheats" / "precision"


def told(fixture: str, *inputs: str, problem: str = "") -> list[str]:
    """What the check says of a fixture on inputs like ``float32[8]``."""
    candidate = Candidate(source=(FIXTURES / f"{fixture}.py").read_text())
    sizes = (SizeSet(label="original", inputs=inputs),)
    seen = Observation(Problem(name="p", source=problem), candidate, device="cpu", profile="strict", track=None, sizes=sizes)
    return [finding.message for finding in Precision().observed(seen)]


@pytest.mark.parametrize("fixture", ["cheat_half", "cheat_half_softmax", "cheat_bfloat_sum", "cheat_tf32"])
def test_less_than_was_asked_is_told(fixture: str) -> None:
    assert told(fixture, "float32[64, 96]")


@pytest.mark.parametrize("fixture", ["honest_tf32x3", "honest_double"])
def test_enough_is_not(fixture: str) -> None:
    assert told(fixture, "float32[64, 96]") == []


def test_the_problems_own_types_are_no_loss() -> None:
    assert told("honest_bfloat", "bfloat16[64, 96]", "bfloat16[96, 80]") == []
    assert told("honest_bfloat", "float32[64, 96]", problem="x = torch.randn(4).to(torch.bfloat16)") == []
    assert told("honest_bfloat", "float16[64, 96]")  # bfloat16 is less than float16
    assert told("cheat_half", "float16[64, 96]") == []


def test_tf32_is_no_loss_where_all_is_half() -> None:
    assert told("cheat_tf32", "bfloat16[64, 96]", "int64[4]") == []
    assert told("cheat_tf32", "bfloat16[64, 96]", "float32[64]")


def test_what_tf32_convolutions_are_allowed_excuses_nothing_else() -> None:
    convolution, product = "aten.convolution.default", "aten.addmm.default"
    assert tf32_allowance.has_matrix_products({convolution: 2, product: 1})
    assert tf32_allowance.has_matrix_products({convolution: 1, "aten._scaled_dot_product_flash_attention_for_cpu.default": 1})
    assert not tf32_allowance.has_matrix_products({convolution: 2, "aten.relu.default": 1})
    assert not tf32_allowance.has_matrix_products({product: 2})
    images, weight = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last), torch.randn(3, 4)
    made, same, indices = tf32_allowance.round_to_tf32([images, weight, torch.arange(4)])
    assert torch.equal(made, to_tf32(made))
    assert torch.allclose(made, images, rtol=1e-3)
    assert not torch.equal(made, images)
    assert made.stride() == images.stride()
    assert same is weight  # a product's operand: the trial must see what TF32 does to it
    assert torch.equal(indices, torch.arange(4))


def _looked_at(forward: str) -> tuple[ReferenceRun, torch.Tensor]:
    """A closer look at ``forward`` of x [64, 96] and w [96, 32], and what it gives with its inputs rounded to TF32."""
    source = f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x, w):
        return {forward}
def get_inputs():
    return [torch.randn(64, 96), torch.randn(96, 32)]
def get_init_inputs():
    return []
"""
    reference = prepare(Problem(name="p", source=source), SizeSet(label="original"), {}, "cpu", 0, True)
    inputs = reference.inputs(0)
    outcome = reference.run(inputs, 0)
    assert outcome.refine(rounding=True)
    return outcome, reference.model(*[to_tf32(t) for t in inputs])


def test_what_rounding_may_do_is_measured_and_is_far_less_than_what_tf32_does() -> None:
    """A sine of large numbers: eager itself misses the tolerance, and a candidate may; one that lost precision is told all the same."""
    outcome, coarse = _looked_at("torch.sin(200.0 * (x @ w))")
    assert isinstance(outcome.expected.exact, torch.Tensor)
    moved = [(one - outcome.expected.exact).abs().max() for one in outcome.expected.equally_right]
    assert moved
    assert all(1e-4 < m < 2e-2 for m in moved)
    assert not compare(coarse, outcome.expected, Rules()).ok
    other_order = torch.sin(200.0 * (outcome.expected.exact.asin() / 200.0)).float()  # the exact one, rounded elsewhere
    assert compare(other_order, outcome.expected, Rules()).ok


def test_a_well_conditioned_problem_excuses_nothing() -> None:
    outcome, coarse = _looked_at("x @ w")
    moved = [(one - outcome.expected.exact).abs().max() for one in outcome.expected.equally_right]
    assert all(0 < m < 1e-4 for m in moved)
    assert not compare(coarse, outcome.expected, Rules()).ok


def test_rounding_of_what_is_computed_on_the_way_counts() -> None:
    """Each pair's norm is -1 and 1, whatever x and w are: only the rounding of the pair's mean moves it."""
    outcome, _ = _looked_at("torch.nn.functional.group_norm(1e4 + x @ w, 16).amin(1)")
    moved = [float((one - outcome.expected.exact).abs().max()) for one in outcome.expected.equally_right]
    assert min(moved) > 1e-4
    assert not compare(outcome.expected.value + 0.5, outcome.expected, Rules()).ok


@pytest.mark.parametrize(
    "forward", ["torch.relu(x).amax(1)", "torch.where(x == x.amax(1, keepdim=True), x, 0.0) @ w", "(x > 0).sum(1).to(x.dtype)"]
)
def test_what_float32_computes_exactly_is_not_moved(forward: str) -> None:
    outcome, _ = _looked_at(forward)
    assert all((one - outcome.expected.exact).abs().max() < 1e-4 for one in outcome.expected.equally_right)


HARD = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sin(2.0 * x.sum(-1))
rows, columns = 64, 1024
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return []
"""


def test_inputs_that_eager_cannot_digest_say_nothing_where_float64_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(name="hard", source=HARD)
    candidate = next(Compiler().write(problem, 1))
    first, second = (Instance(problem, o).inputs(0)[0].numel() for o in shrink.shrunk(problem, count=2))
    assert first < second
    monkeypatch.setattr("kernelllm.judge.trials.reference_runs.reference.EXACT_LIMIT", first)
    with Judge(JudgeSettings(device="cpu", cache=False)) as judge:
        verdict = judge.judge(problem, candidate)
    assert verdict.correct, verdict.message
    sizes = [shape.label for shape in verdict.shapes]
    large = [t.sizes for t in verdict.trials if t.kind == "large"]
    assert large == sizes[:1]  # told at the one, not at the other, where it was tried as well


CHAIN = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(8):
            x = x * 1.01 + 0.3
        return x.float()
rows, columns = 64, 512
def get_inputs():
    return [torch.randn(rows, columns, dtype=torch.bfloat16)]
def get_init_inputs():
    return []
"""
IN_FLOAT32 = """
import torch, triton, triton.language as tl
@triton.jit
def chain_kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    for _ in tl.static_range(8):
        x = x * 1.01 + 0.3
    tl.store(o_ptr + i, x, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        o = torch.empty(x.shape, device=x.device)
        chain_kernel[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), BLOCK=1024)
        return o
"""


def test_where_float64_is_out_of_reach_half_precision_excuses_its_own_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(name="chain", source=CHAIN)
    monkeypatch.setattr("kernelllm.judge.trials.reference_runs.reference.EXACT_LIMIT", 0)
    with Judge(JudgeSettings(device="cpu", cache=False)) as judge:
        verdict = judge.judge(problem, Candidate(source=IN_FLOAT32))
        wrong = judge.judge(problem, Candidate(source=IN_FLOAT32.replace("static_range(8)", "static_range(7)")))
    assert verdict.correct, verdict.message
    assert not wrong.correct


SAMPLED = """
import torch
class Model(torch.nn.Module):
    def forward(self, image, a, b):
        places = torch.tanh(a @ b).view(1, 400, 800, 2)
        return torch.nn.functional.grid_sample(image, places, align_corners=False)
def get_inputs(): return [torch.randn(1, 1, 96, 96).half(), torch.randn(800, 800).half(), torch.randn(800, 800).half() / 30]
def get_init_inputs(): return []
"""


def test_half_precision_at_a_large_size_is_compared_with_float64() -> None:
    """A CPU rounds the places where an image is sampled, and a candidate that does not is right."""
    large = prepare_run(prepare(Problem(name="p", source=SAMPLED), SizeSet(label="original"), {}, "cpu", 0, True), 3)
    assert large is not None
    assert large.run.refine(rounding=False)
    image, a, b = large.inputs
    places = torch.tanh(a.float() @ b.float()).view(1, 400, 800, 2)
    mine = torch.nn.functional.grid_sample(image.float(), places, align_corners=False).half()
    assert (mine - large.run.expected.value).abs().max() > 0.1
    assert large.run.compared(mine, Rules(tolerance=0.01, precise=False)).ok
