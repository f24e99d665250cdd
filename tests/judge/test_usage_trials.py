"""A candidate used otherwise than its problem does: what a verdict says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from judge.problems import candidate, elementwise, problem

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge, JudgeSettings

CHEATS = Path(__file__).parent.parent / "cheats"


@pytest.mark.parametrize(("name", "told"), [("honest_leaky", False), ("honest_overwrites", True)])
def test_a_second_backward_on_the_same_graph_is_told(name: str, told: bool) -> None:
    leaky = Problem(name="leaky", source=(CHEATS / "problems" / "leaky.py").read_text())
    one = Candidate(source=(CHEATS / "gradients" / f"{name}.py").read_text())
    with Judge(JudgeSettings(device="cpu", time_limit_s=20, backward=True, sizes=1, cache=False)) as judge:
        verdict = judge.judge(leaky, one)
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("second backward" in f.message for f in verdict.findings) is told


@pytest.mark.parametrize(
    ("asks", "told"),
    [
        ("isinstance(x, nn.Parameter)", "where inputs are parameters"),
        ("torch.is_anomaly_enabled()", "where autograd looks for anomalies"),
        ("torch.get_float32_matmul_precision() != 'highest'", "where torch may compute products in TF32"),
        ("x.dim() > 7", ""),
    ],
)
def test_what_the_program_around_a_model_may_have_set_changes_no_result(warm: Judge, asks: str, told: str) -> None:
    kernel = """
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) * scale, mask=at < n)
"""
    forward = f"""        scale, x = 3.0 if {asks} else 2.0, x.contiguous()
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), scale, BLOCK=256)
        return y"""
    verdict = warm.judge(problem("x * 2", "[torch.randn(9, 70)]"), candidate(kernel, forward))
    assert verdict.status is Status.CORRECT, verdict.message
    found = [f.message for f in verdict.findings if f.check == "silently_different"]
    assert [told in text for text in found] == ([True] if told else [])


def test_a_kernel_that_does_not_end_for_nan_is_told() -> None:
    kernel = "    s = tl.sum(x, axis=0)\n    while s != s:\n        s += 1.0\n"
    relu = Problem(name="relu", source=(CHEATS / "problems" / "relu.py").read_text())
    text = (CHEATS / "caller_settings" / "honest_default_dtype.py").read_text().replace("    tl.store(", f"{kernel}    tl.store(")
    with Judge(JudgeSettings(device="cpu", time_limit_s=3, sizes=1, seeds=1, measure=False, cache=False)) as judge:
        verdict = judge.judge(relu, Candidate(source=text))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("does not end where an input holds NaN" in f.message for f in verdict.findings)


@pytest.mark.parametrize(("name", "told"), [("honest_leaky", False), ("honest_kept_on_ctx", True)])
def test_an_input_that_changes_before_the_backward_is_told(name: str, told: bool) -> None:
    leaky = Problem(name="leaky", source=(CHEATS / "problems" / "leaky.py").read_text())
    one = Candidate(source=(CHEATS / "gradients" / f"{name}.py").read_text())
    with Judge(JudgeSettings(device="cpu", time_limit_s=20, backward=True, sizes=1, cache=False)) as judge:
        verdict = judge.judge(leaky, one)
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("an input changes in place" in f.message for f in verdict.findings) is told


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("self.a = nn.Parameter(torch.ones(70)); self.b = self.a", ""),
        ("self.a = nn.Parameter(torch.ones(70)); self.b = self.a; self.register_buffer('own', torch.ones(3), persistent=False)", ""),
        ("self.a = nn.Parameter(torch.ones(70)); self.b = nn.Parameter(torch.ones(70))", "one parameter of the reference, and several"),
        ("self.a = nn.Parameter(torch.ones(70)); self.b = self.a; self.more = nn.Parameter(torch.ones(3))", "strict=True"),
    ],
    ids=["same", "not kept", "untied", "more names"],
)
def test_a_state_that_is_otherwise_named_or_shared_is_told(warm: Judge, init: str, told: str) -> None:
    tied = problem("x * self.a * self.b", "[torch.randn(9, 70)]", init="self.a = nn.Parameter(torch.ones(70)); self.b = self.a")
    kernels = elementwise("v * tl.load(a + offs % 70, mask) * tl.load(b + offs % 70, mask)").source.partition("class ModelNew")[0]
    kernels = kernels.replace("(x_ptr, y_ptr, n", "(x_ptr, a, b, y_ptr, n").partition("import triton.language as tl\n")[2]
    forward = """        y = torch.empty_like(x)
        unary_kernel[(triton.cdiv(x.numel(), 256),)](x, self.a, self.b, y, x.numel(), BLOCK=256)
        return y"""
    verdict = warm.judge(tied, candidate(kernels, forward, init=init))
    assert verdict.status is Status.CORRECT, verdict.message
    warnings = [f.message for f in verdict.findings if f.check == "state_dict"]
    assert len(warnings) == bool(told)
    assert all(told in text for text in warnings)


@pytest.mark.parametrize(
    ("ends", "told"),
    [("first, last = tl.min(v), tl.max(v)", False), ("first, last = tl.load(at), tl.load(at + width - 1)", True)],
)
def test_what_is_right_for_sorted_rows_alone_is_told(warm: Judge, ends: str, told: bool) -> None:
    kernel = f"""
@triton.jit
def range_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    at = x_ptr + tl.program_id(0) * width
    v = tl.load(at + tl.arange(0, BLOCK) % width)
    {ends}
    tl.store(y_ptr + tl.program_id(0), last - first)
"""
    forward = """        x, y = x.contiguous(), x.new_empty(x.shape[0])
        range_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y"""
    verdict = warm.judge(problem("x.amax(-1) - x.amin(-1)", "[torch.rand(9, 70).sort(-1).values]"), candidate(kernel, forward))
    assert verdict.status is Status.CORRECT, verdict.message
    assert ("inputs_as_drawn" in verdict.message) is told


@pytest.mark.parametrize(("name", "told"), [("honest_versions", True), ("honest_named_parameters", False)])
def test_parameters_that_change_through_their_data_are_told(warm: Judge, name: str, told: bool) -> None:
    source = (CHEATS / "weights" / f"{name}.py").read_text()
    used = source.partition('PROBLEM = "')[2].partition('"')[0]
    verdict = warm.judge(Problem(name=used, source=(CHEATS / "problems" / f"{used}.py").read_text()), Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("through .data" in f.message for f in verdict.findings if f.check == "limits") is told


@pytest.mark.parametrize(
    ("reference", "expression", "told"),
    [
        ("torch.expm1(x)", "tl.exp(v) - 1.0", "off by"),
        ("torch.expm1(x)", "libdevice.expm1(v)", ""),
        ("torch.log1p(x * x) + x.abs().log1p()", "tl.log(1.0 + v * v) + tl.log(1.0 + tl.abs(v))", "log(1 + x)"),
        ("torch.log1p(torch.exp(-x.abs()))", "tl.log(1.0 + tl.exp(-tl.abs(v)))", ""),
        ("F.elu(x)", "tl.where(v > 0, v, tl.exp(v) - 1.0)", ""),
    ],
)
def test_digits_that_a_small_number_loses_beside_one_are_told(warm: Judge, reference: str, expression: str, told: str) -> None:
    one = elementwise(expression, extra="from triton.language.extra import libdevice")
    verdict = warm.judge(problem(reference, "[torch.randn(9, 70)]"), one)
    assert verdict.status is Status.CORRECT, verdict.message
    found = [f.message for f in verdict.findings if f.check == "precision" and "near zero" in f.message]
    assert bool(found) is bool(told)
    assert all(told in text for text in found)


@pytest.mark.parametrize(("name", "told"), [("honest_listed_parameters", True), ("honest_versions", False)])
def test_parameters_that_others_take_the_place_of_are_told(warm: Judge, name: str, told: bool) -> None:
    source = (CHEATS / "weights" / f"{name}.py").read_text()
    verdict = warm.judge(Problem(name="scale", source=(CHEATS / "problems" / "scale.py").read_text()), Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("assign=True" in f.message for f in verdict.findings if f.check == "state_dict") is told


def test_what_cannot_be_copied_is_told(warm: Judge) -> None:
    source = (CHEATS / "weights" / "honest_listed_parameters.py").read_text()
    source += "\n    def __deepcopy__(self, known):\n        raise NotImplementedError('made for one use')\n"
    verdict = warm.judge(Problem(name="scale", source=(CHEATS / "problems" / "scale.py").read_text()), Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("cannot be copied" in f.message and "made for one use" in f.message for f in verdict.findings)


@pytest.mark.parametrize(("cast", "told"), [(".to(tl.int32)", True), ("", False)])
def test_whole_numbers_that_lose_bits_are_told(warm: Judge, cast: str, told: bool) -> None:
    kernel = f"""
@triton.jit
def clamp_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + at, at < n, other=0){cast}
    tl.store(y_ptr + at, tl.maximum(v, 3).to(tl.int64), at < n)
"""
    forward = """        x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
        clamp_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y"""
    verdict = warm.judge(problem("x.clamp(min=3)", "[torch.randint(-100, 100, (9, 70))]"), candidate(kernel, forward))
    assert verdict.status is Status.CORRECT, verdict.message
    assert ("inputs_as_drawn" in verdict.message) is told


@pytest.mark.parametrize(("rows", "told"), [("len(x)", True), ("len(y)", False)])
def test_another_result_for_one_input_that_is_longer_is_told(warm: Judge, rows: str, told: bool) -> None:
    kernel = """
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, rows, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(rows):
        total += tl.load(y_ptr + row * width + at, at < width, other=0.0)
    x = tl.load(x_ptr + tl.program_id(0) * width + at, at < width, other=0.0)
    tl.store(z_ptr + tl.program_id(0) * width + at, x + total, at < width)
"""
    forward = f"""        x, y = x.contiguous(), y.contiguous()
        z = torch.zeros_like(x)
        add_kernel[(len(x),)](x, y, z, {rows}, x.shape[1], BLOCK=triton.next_power_of_2(max(x.shape[1], 1)))
        return z"""
    inputs = "[torch.randn(rows, width), torch.randn(rows, width)]"
    asked = problem("x + y.sum(0)", inputs, arguments="x, y", extra="rows, width = 9, 20")
    verdict = warm.judge(asked, candidate(kernel, forward, arguments="x, y"))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("later inputs are longer along dimension 0" in f.message for f in verdict.findings) is told


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ("x.shape", "one more dimension"),
        ("(x.shape[0] * (x.shape[1] if x.dim() > 2 else 1), x.shape[-1])", "two more dimensions"),
        ("(x.numel() // max(x.shape[-1], 1), x.shape[-1]) if x.dim() > 1 else (0, 1)", "a dimension less"),
        ("(x.numel() // max(x.shape[-1], 1), x.shape[-1])", ""),
    ],
)
def test_another_result_for_other_dimensions_is_told(warm: Judge, shape: str, told: str) -> None:
    kernel = """
@triton.jit
def centre_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + tl.program_id(0) * width + at, at < width, other=0.0)
    tl.store(y_ptr + tl.program_id(0) * width + at, v - tl.sum(v) / width, at < width)
"""
    forward = f"""        x, y = x.contiguous(), torch.zeros_like(x)
        rows, width = {shape}[:2]
        centre_kernel[(rows,)](x, y, width, BLOCK=triton.next_power_of_2(width))
        return y"""
    verdict = warm.judge(problem("x - x.mean(-1, keepdim=True)", "[torch.randn(9, 70)]"), candidate(kernel, forward))
    assert verdict.status is Status.CORRECT, verdict.message
    found = [f.message for f in verdict.findings if f.check == "limits" and "without an error, for inputs" in f.message]
    assert [told in text for text in found] == ([True] if told else [])


@pytest.mark.parametrize("called", [True, False])
def test_hooks_on_parts_that_nobody_calls_are_told(warm: Judge, called: bool) -> None:
    asked = problem("self.scale(x) * 2", "[torch.randn(9, 70)]", init="self.scale = nn.PReLU()")
    kernels = elementwise("tl.where(v > 0, v, v * tl.load(s_ptr)) * f").source.partition("class ModelNew")[0]
    kernels = kernels.replace("y_ptr, n", "y_ptr, n, s_ptr, f")
    source = f"""{kernels}
def launched(x, weight, f):
    x, y = x.contiguous(), torch.empty(x.shape, device=x.device, dtype=x.dtype)
    unary_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), weight, f, BLOCK=256)
    return y

class Part(nn.PReLU):
    def forward(self, x):
        return launched(x, self.weight, 1.0)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Part()
    def forward(self, x):
        return {"launched(self.scale(x), self.scale.weight * 0 + 1, 2.0)" if called else "launched(x, self.scale.weight, 2.0)"}
"""
    verdict = warm.judge(asked, Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("Hooks on its parts (scale)" in f.message for f in verdict.findings if f.check == "limits") is not called


_SLOPE = """        x = x.contiguous()
        y = torch.empty_like(x)
        unary_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), {}, BLOCK=256)
        return y"""


@pytest.mark.parametrize(
    ("init", "slope", "told"),
    [
        ("self.slope = slope", "self.slope", ""),
        ("self.slope = self.own = slope", "self.own", "may then change without effect"),
        ("self.slope = slope", "0.1", "When built with slope=0.7"),
        ("assert slope == 0.1; self.slope = slope", "0.1", ""),
    ],
    ids=["read", "kept", "written into the file", "refused"],
)
def test_attributes_that_change_and_other_arguments_of_the_constructor(warm: Judge, init: str, slope: str, told: str) -> None:
    made = problem("F.leaky_relu(x, self.slope)", "[torch.randn(9, 70)]", init="self.slope = slope", init_inputs="[0.1]")
    leaky = Problem(name="leaky", source=made.source.replace("*args", "slope"))
    kernels = elementwise("tl.where(v > 0, v, v * slope)").source.partition("class ModelNew")[0]
    kernels = kernels.replace("y_ptr, n", "y_ptr, n, slope").partition("import triton.language as tl\n")[2]
    one = candidate(kernels, _SLOPE.format(slope), init=init)
    verdict = warm.judge(leaky, Candidate(source=one.source.replace("*args", "slope")))
    assert verdict.status is Status.CORRECT, verdict.message
    warnings = [f.message for f in verdict.findings if f.check == "silently_different"]
    assert len(warnings) == bool(told)
    assert all(told in text for text in warnings)
    limits = [f.message for f in verdict.findings if f.check == "limits" and "without effect: slope" in f.message]
    assert bool(limits) is (slope == "0.1")


_CHOOSES = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, top):
        super().__init__()
        self.top = top
    def forward(self, x, y):
        scores = (x * y).float() + 0.37 * y.float()
        chosen = scores.topk(self.top, -1).indices
        return torch.where(torch.zeros_like(x, dtype=torch.bool).scatter(1, chosen, True), x, 0)
rows = 300
def get_inputs(): return [torch.randn(rows, 8, dtype=torch.bfloat16), torch.randn(rows, 8, dtype=torch.bfloat16)]
def get_init_inputs(): return [8]
"""
_CHOSEN = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def chosen_kernel(x_ptr, y_ptr, out_ptr, top, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    scores = x.to(tl.float32) * y + 0.37 * y.to(tl.float32)
    ahead = tl.sum((scores[None, :] > scores[:, None]).to(tl.int32), 1)
    tl.store(out_ptr + at, tl.where(ahead < top, x, 0.0))
class ModelNew(nn.Module):
    def __init__(self, top):
        super().__init__()
        self.top = {}
    def forward(self, x, y):
        assert x.shape[1] == y.shape[1] == 8
        x, y, out = x.contiguous(), y.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
        chosen_kernel[(x.shape[0],)](x, y, out, self.top, BLOCK=8)
        return out
"""


@pytest.mark.parametrize(("top", "told"), [("top", False), ("8", True)], ids=["followed", "written into the file"])
def test_rounding_decides_what_another_argument_chooses(warm: Judge, top: str, told: bool) -> None:
    """Of eight elements all eight are chosen, so that no rounding shows; of seven it does."""
    verdict = warm.judge(Problem(name="chosen", source=_CHOOSES), Candidate(source=_CHOSEN.format(top)))
    assert verdict.status is Status.CORRECT, verdict.message
    assert ["When built with top=7" in f.message for f in verdict.findings if f.check == "silently_different"] == [True] * told


_ROUNDS = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share
    def forward(self, x, y): return (x * y).float() - self.share * (x.float() * y.float())
rows = 300
def get_inputs(): return [torch.randn(rows, 64, dtype=torch.bfloat16), torch.randn(rows, 64, dtype=torch.bfloat16)]
def get_init_inputs(): return [{}]
"""
_ROUNDED = """
import torch, torch.nn as nn, triton, triton.language as tl
@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, n, share, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, at < n), tl.load(y_ptr + at, at < n)
    product = x.to(tl.float32) * y.to(tl.float32)
    tl.store(out_ptr + at, (product.to(tl.bfloat16).to(tl.float32) if ROUNDS else product) - share * product, at < n)
class ModelNew(nn.Module):
    def __init__(self, share):
        super().__init__()
        self.share = share
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        rest_kernel[(triton.cdiv(x.numel(), 512),)](x, y, out, x.numel(), self.share, {}, BLOCK=512)
        return out
"""


@pytest.mark.parametrize(("share", "rounds"), [("0.98", "x.data_ptr() % 16 == 0"), ("0.24", "False")], ids=["unaligned", "attribute"])
def test_other_kernels_or_attributes_may_let_rounding_show(warm: Judge, share: str, rounds: str) -> None:
    """A share of 0.24 becomes one of 0.98, which leaves little but what the product is rounded by."""
    verdict = warm.judge(Problem(name="rest", source=_ROUNDS.format(share)), Candidate(source=_ROUNDED.format(rounds)))
    assert verdict.status is Status.CORRECT, verdict.message
    told = [f.message for f in verdict.findings]
    assert not [m for m in told if "nothing is said" in m or m.startswith("Attributes change") or "without effect" in m]


@pytest.mark.parametrize(("expression", "told"), [("v * 1e30", False), ("tl.where(tl.abs(v) < 1.2e-38, 0.0, v) * 1e30", True)])
def test_lost_denormal_numbers_are_told(warm: Judge, expression: str, told: bool) -> None:
    verdict = warm.judge(problem("x * 1e30", "[torch.randn(9, 70)]"), elementwise(expression))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("Denormal" in f.message for f in verdict.findings if f.check == "precision") is told


@pytest.mark.parametrize("whole", [True, False])
def test_holes_in_memory_between_two_launches_are_told(warm: Judge, whole: bool) -> None:
    source = (Path(__file__).parent / "two_stages.py").read_text()
    if whole:
        source = source.replace("pid % GROUP\n", "pid % (GROUP * num_n) % tl.minimum(num_m - group * GROUP, GROUP)\n")
        source = source.replace("// GROUP\n", "// tl.minimum(num_m - group * GROUP, GROUP)\n")
    product = (CHEATS / "problems" / "relu_of_product.py").read_text()
    verdict = warm.judge(Problem(name="product", source=product), Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any(f.check == "unwritten" for f in verdict.findings) is not whole


@pytest.mark.parametrize(
    ("forward", "told"),
    [
        ("def forward(self, x, scale=1.0):\n        return scaled(x, scale)", ""),
        ("def forward(self, x, scale=0.5):\n        return scaled(x, scale)", "Without the argument scale"),
        ("def forward(self, x, scale=1.0):\n        return scaled(x if x.stride(-1) == 1 else x.contiguous(), scale)", "not contiguous"),
        ("def forward(self, x, scale=1.0):\n        return *scaled(x, scale)[:1], kept(self, x)", "is written into"),
    ],
    ids=["none", "default", "wider rows", "kept"],
)
def test_calls_that_users_make_and_problems_do_not(warm: Judge, forward: str, told: str) -> None:
    asked = problem("x * scale, torch.arange(x.shape[-1])", "[torch.randn(9, 70), 0.5]", arguments="x, scale=1.0")
    kernels = elementwise("v * s").source.partition("class ModelNew")[0].replace("y_ptr, n", "y_ptr, n, s")
    contiguous = "x" if "stride" in forward else "x.contiguous()"
    source = f"""{kernels}
def kept(model, x):
    if getattr(model, "places", None) is None or len(model.places) != x.shape[-1]:
        model.places = torch.arange(x.shape[-1], device=x.device)
    return model.places

def scaled(x, s):
    x, y = {contiguous}, torch.empty(x.shape, device=x.device, dtype=x.dtype)
    unary_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), s, BLOCK=256)
    return y, torch.arange(x.shape[-1], device=x.device)

class ModelNew(nn.Module):
    {forward}
"""
    verdict = warm.judge(asked, Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
    warnings = [f.message for f in verdict.findings if f.check == "silently_different"]
    assert bool(warnings) is bool(told), warnings
    assert any(told in text for text in warnings) or not told


@pytest.mark.parametrize(("arguments", "told"), [("x, w", ""), ("w, x", "by their names")])
def test_arguments_whose_names_stand_in_another_order_are_told(warm: Judge, arguments: str, told: str) -> None:
    kernel = """
@triton.jit
def difference_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(a_ptr + at, at < n, other=0.0), tl.load(b_ptr + at, at < n, other=0.0)
    tl.store(y_ptr + at, a - 2 * b, at < n)
"""
    first, second = arguments.split(", ")
    forward = f"""        a, b, y = {first}.contiguous(), {second}.contiguous(), torch.empty({first}.shape, device=x.device)
        difference_kernel[(triton.cdiv(y.numel(), 256),)](a, b, y, y.numel(), BLOCK=256)
        return y"""
    asked = problem("x - 2 * w", "[torch.randn(9, 70), torch.randn(9, 70)]", arguments="x, w")
    verdict = warm.judge(asked, candidate(kernel, forward, arguments=arguments))
    assert verdict.status is Status.CORRECT, verdict.message
    warnings = [f.message for f in verdict.findings if f.check == "silently_different"]
    assert bool(warnings) is bool(told), warnings
    assert all(told in text for text in warnings)


@pytest.mark.parametrize(("default", "told"), [("0.3", False), ("0.1", True)])
def test_another_default_of_the_constructor_is_told(warm: Judge, default: str, told: bool) -> None:
    made = problem("F.leaky_relu(x, self.slope)", "[torch.randn(9, 70)]", init="self.slope = slope", init_inputs="[0.1]")
    leaky = Problem(name="leaky", source=made.source.replace("*args", "slope=0.3"))
    kernels = elementwise("tl.where(v > 0, v, v * slope)").source.partition("class ModelNew")[0].replace("y_ptr, n", "y_ptr, n, slope")
    one = candidate(kernels.partition("import triton.language as tl\n")[2], _SLOPE.format("self.slope"), init="self.slope = slope")
    verdict = warm.judge(leaky, Candidate(source=one.source.replace("*args", f"slope={default}")))
    assert verdict.status is Status.CORRECT, verdict.message
    assert any("built without slope" in f.message for f in verdict.findings) is told


@pytest.mark.parametrize(("own", "limits"), [("self.factors", 0), ("self.baked", 1)])
def test_lists_of_numbers_that_change_are_told(warm: Judge, own: str, limits: int) -> None:
    init = "self.factors = [0.25, 2.0]; self.baked = [0.25, 2.0]"
    asked = problem("x * self.factors[0] + self.factors[1]", "[torch.randn(9, 70)]", init="self.factors = [0.25, 2.0]")
    kernels = elementwise("v * a + b").source.partition("class ModelNew")[0].replace("y_ptr, n", "y_ptr, n, a, b")
    forward = _SLOPE.format(f"*{own}")
    verdict = warm.judge(asked, candidate(kernels.partition("import triton.language as tl\n")[2], forward, init=init))
    assert verdict.status is Status.CORRECT, verdict.message
    assert sum("without effect: factors" in f.message for f in verdict.findings if f.check == "limits") == limits


@pytest.mark.parametrize(
    ("made", "read", "told"),
    [
        ("torch.empty_like(x)", "w_ptr + at % size", ""),
        ("torch.empty(x.shape, device=x.device)", "w_ptr + at % size", "another type"),
        ("torch.empty_like(x)", "w_ptr + at", "one row for all"),
    ],
    ids=["none", "half", "broadcast"],
)
def test_models_of_half_precision_and_inputs_of_one_row(warm: Judge, made: str, read: str, told: str) -> None:
    kernel = f"""
@triton.jit
def product_kernel(x_ptr, w_ptr, y_ptr, n, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, w = tl.load(x_ptr + at, at < n, other=0.0), tl.load({read}, at < n, other=0.0)
    tl.store(y_ptr + at, x * w, at < n)
"""
    forward = f"""        x, w = x.contiguous(), w.contiguous()
        y = {made}
        product_kernel[(triton.cdiv(y.numel(), 256),)](x, w, y, y.numel(), w.numel(), BLOCK=256)
        return y"""
    asked = problem("x * w", "[torch.randn(9, 70), torch.randn(9, 70)]", arguments="x, w")
    verdict = warm.judge(asked, candidate(kernel, forward, arguments="x, w"))
    assert verdict.status is Status.CORRECT, verdict.message
    limits = [f.message for f in verdict.findings if f.check == "limits" and ("bfloat16" in f.message or "one row" in f.message)]
    assert bool(limits) is bool(told), limits
    assert all(told in text for text in limits)


EMBEDDING = """
import torch, triton, triton.language as tl
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width)
    def forward(self, tokens):
        with torch.enable_grad():
            return torch.autograd.grad(self.table(tokens).square().sum(), self.table.weight)[0]
rows, width, length = 7, 4, 20
def get_inputs(): return [torch.randint(0, rows, (length,))]
def get_init_inputs(): return [rows, width]
"""
COUNTED = """
@triton.jit
def counted_kernel(tokens_ptr, table_ptr, out_ptr, length, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    count = 0
    for start in range(0, length, BLOCK):
        tokens = tl.load(tokens_ptr + start + at, mask=start + at < length, other=-1)
        count += tl.sum((tokens == row).to(tl.int32))
    for start in range(0, width, BLOCK):
        inside = start + at < width
        values = tl.load(table_ptr + row * width + start + at, mask=inside)
        tl.store(out_ptr + row * width + start + at, values * (2.0 * count), mask=inside)
class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width)
    def forward(self, tokens):
        table, tokens = self.table.weight.detach(), tokens.contiguous()
        out = torch.empty_like(table)
        counted_kernel[(table.shape[0],)](tokens, table, out, tokens.numel(), table.shape[1], BLOCK=32)
        return out
"""


def test_gradients_that_an_attribute_would_make_sparse_are_not_looked_at(warm: Judge) -> None:
    source = EMBEDDING.partition("class Model")[0] + COUNTED
    verdict = warm.judge(Problem(name="table", source=EMBEDDING), Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
