"""Shrinking keeps what a problem needs: its relations, its variation, its number of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems.confirm import GOOD, grade
from kernelllm.problems.instance import Instance
from kernelllm.problems.relations import DryRuns
from kernelllm.problems.shrink import describe, shrunk
from kernelllm.suites.file import open_problem

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def make(forward: str, inputs: str, constants: str, init: str = "[]", setup: str = "pass", args: str = "self") -> Problem:
    """A problem from its parts."""
    source = HEAD + f"""
class Model(nn.Module):
    def __init__({args}):
        super().__init__()
        {setup}

    def forward(self, *x):
        {forward}

{constants}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return {init}
"""
    return Problem(name="p", source=source)


def values(problem: Problem) -> list[dict[str, Any]]:
    """All constants of each set, the unchanged ones included, after checking that the reference really runs there."""
    result = []
    for overrides in shrunk(problem):
        instance = Instance(problem, overrides)
        with torch.no_grad():
            instance.model(0)(*instance.inputs(0))
        result.append({k: instance.namespace.get(k, v) for k, v in {**instance.namespace, **overrides}.items()})
    return result


@pytest.mark.parametrize("name", ["attention", "conv_relu_bias", "hinge_loss", "linear_gelu", "rms_norm", "softmax"])
def test_the_examples_shrink_to_two_different_small_sets(examples: Path, name: str) -> None:
    problem = open_problem(str(examples / f"{name}.py"))
    first, second = shrunk(problem)
    assert first != second
    odd = [v for value in second.values() for v in (value if isinstance(value, tuple) else [value]) if v % 2]
    assert odd
    for overrides, room in ((first, 1), (second, 10)):
        trace = DryRuns(problem).trace(overrides)
        assert trace.largest <= 100_000 * room
        assert trace.flops <= 60_000_000 * room
        assert all(size > 1 for shape in trace.inputs for size in shape[:1])
        assert describe(problem, overrides).inputs[0].startswith("float32[")


def test_the_second_set_is_long_enough_for_loops_to_run_more_than_once() -> None:
    problem = make("return x[0].sum(1)", "[torch.rand(batch, rows, columns)]", "batch, rows, columns = 128, 4096, 4095")
    first, second = shrunk(problem)
    assert second["rows"] > first["rows"] > 32
    assert second["rows"] * second["columns"] > 2 * first["rows"] * first["columns"]
    assert second["rows"] % 2 == 1


def test_bounds_of_indices_follow_the_dimension_that_they_index() -> None:
    problem = make("return F.cross_entropy(x[0], x[1])", "[torch.randn(4096, 128256), torch.randint(0, 128256, (4096,))]", "")
    for changed in shrunk(problem):
        assert changed["get_inputs_0_dim1"] == changed["get_inputs_1_dim0"] < 10_000
        Instance(problem, changed).model(0)(*Instance(problem, changed).inputs(0))


def test_a_bound_that_is_no_size_keeps_what_it_indexes_from_falling_below_it() -> None:
    inputs = "[torch.randn(400, 300).softmax(-1), torch.randint(0, 290, (3,)), torch.randn(500)]"
    problem = make("return x[0][:, x[1]] * x[2].sum()", inputs, "")
    for constants in shrunk(problem):
        scores = Instance(problem, constants).inputs(0)[0]
        assert scores.shape[1] >= 290
        assert scores.shape[0] < 400  # the rest moves


def test_every_set_of_sizes_keeps_a_bound_with_its_dimension() -> None:
    problem = make("return F.cross_entropy(x[0], x[1])", "[torch.randn(4, 8192), torch.randint(0, 8192, (4,))]", "")
    for constants in shrunk(problem, count=3):
        assert constants.get("get_inputs_0_dim1") == constants.get("get_inputs_1_dim0")


def test_a_reference_that_runs_at_no_size_says_why() -> None:
    problem = make("return x[0].to(torch.float16) @ x[0].to(torch.float64)", "[torch.randn(8, 8)]", "")
    with pytest.raises(ProblemError, match="same dtype"):
        shrunk(problem)


def test_where_no_other_size_works_those_of_the_problem_remain() -> None:
    work = "n = int(x[0].max()) + 1; return torch.zeros(n, 5)[x[0]] + x[1] if n == 96 and x[0].is_cpu else 1 / 0"
    problem = make(work, "[torch.arange(96), torch.rand(1, 5)]", "")
    assert shrunk(problem) == [{}]


def test_width_stays_a_multiple_of_heads_with_room_in_each() -> None:
    problem = make(
        "return x[0].view(x[0].shape[0], x[0].shape[1], self.heads, -1).softmax(-1)", "[torch.randn(batch, tokens, width)]",
        "batch, tokens, width, heads = 64, 512, 768, 12", "[heads]", "self.heads = heads", "self, heads",
    )  # fmt: skip
    for names in values(problem):
        assert names["width"] % names["heads"] == 0
        assert names["width"] // names["heads"] >= 4


def test_groups_are_neither_broken_nor_emptied() -> None:
    problem = make(
        "return self.norm(x[0])", "[torch.randn(batch, channels)]", "batch, channels, groups = 1024, 8192, 256",
        "[groups, channels]", "self.norm = nn.GroupNorm(groups, channels)", "self, groups, channels",
    )  # fmt: skip
    for names in values(problem):
        assert names["channels"] % names["groups"] == 0
        assert names["channels"] // names["groups"] > 1


def test_constants_that_must_agree_move_together() -> None:
    problem = make("return x[0] @ x[1]", "[torch.randn(rows, inner), torch.randn(other_inner, columns)]",
                   "rows = 4096\ninner = 2048\nother_inner = 2048\ncolumns = 4096")  # fmt: skip
    first, second = values(problem)
    assert first["inner"] == first["other_inner"] < 2048
    assert second["inner"] == second["other_inner"] != first["inner"]


def test_a_square_of_a_constant_follows_it() -> None:
    problem = make("return x[0].view(x[0].shape[0], self.side, self.side).sum(1)", "[torch.randn(batch, tokens)]",
                   "batch = 64\nside = 512\ntokens = 262144", "[side]", "self.side = side", "self, side")  # fmt: skip
    for names in values(problem):
        assert names["tokens"] == names["side"] ** 2 < 262144


def test_literals_in_get_inputs_shrink() -> None:
    problem = make("return F.relu(x[0])", "[torch.randn(64, 512, 1024)]", "")
    first, second = shrunk(problem)
    assert set(first) <= {"get_inputs_0_dim0", "get_inputs_0_dim1", "get_inputs_0_dim2"}
    assert Instance(problem, first).inputs(0)[0].numel() <= 50_000
    assert first != second


def test_numbers_of_layers_kernel_sizes_and_fractions_stay() -> None:
    problem = make(
        "return self.layers(x[0])", "[torch.randn(batch, channels, size, size)]",
        "batch, channels, size, kernel_size, depth = 16, 64, 128, 5, 6\nslope = 0.1", "[channels, kernel_size, depth, slope]",
        "self.layers = nn.Sequential(*[nn.Sequential(nn.Conv2d(channels, channels, kernel_size), nn.ELU(slope)) for _ in range(depth)])",
        "self, channels, kernel_size, depth, slope",
    )  # fmt: skip
    for names in values(problem):
        assert (names["kernel_size"], names["depth"], names["slope"]) == (5, 6, 0.1)
        assert names["size"] > 24  # six valid convolutions eat 24


def test_long_recurrences_get_fewer_steps() -> None:
    problem = make(
        "return self.rnn(x[0])[0]", "[torch.randn(batch, steps, width)]", "batch, steps, width, layers = 16, 600, 64, 2",
        "[width, layers]", "self.rnn = nn.GRU(width, width, layers, batch_first=True)", "self, width, layers",
    )  # fmt: skip
    for names in values(problem):
        assert names["steps"] <= 128
        assert names["layers"] == 2


def test_small_batches_over_which_batch_norm_is_ill_conditioned_are_avoided() -> None:
    problem = make(
        "return self.norm(x[0])", "[torch.randn(batch, features)]", "batch, features = 256, 100000", "[features]",
        "self.norm = nn.BatchNorm1d(features)", "self, features",
    )  # fmt: skip
    for names in values(problem):
        assert names["batch"] > 2


def test_few_numbers_of_half_precision_that_are_normalised_again_and_again_are_ill_conditioned() -> None:
    forward = """a = x[0].view(*x[0].shape[:2], self.h, -1)
        for _ in range(6):
            a = F.layer_norm(F.gelu(a), a.shape[-1:])
        return a.flatten(2)"""
    problem = make(
        forward, "[torch.randn(batch, length, width).bfloat16()]", "batch, length, width, heads = 2, 64, 768, 12", "[heads]",
        "self.h = heads", "self, heads",
    )  # fmt: skip
    assert [grade(problem, {"width": 12 * each}) == GOOD for each in (2, 3, 8, 64)] == [False, False, True, True]


def test_rows_are_added_where_rounding_makes_anything_of_the_output_of_few() -> None:
    source = (Path(__file__).parent.parent / "cheats" / "problems" / "squeezed.py").read_text()
    for names in shrunk(Problem(name="squeezed", source=source)):
        assert names["batch"] >= 8


def test_a_problem_that_is_small_already_keeps_its_sizes_first() -> None:
    first, second = shrunk(make("return x[0] * 2", "[torch.randn(rows, 6)]", "rows = 8"))
    assert first == {}
    assert second


def test_constructors_that_read_numbers_from_tensors_and_models_on_meta_fail_over() -> None:
    problem = make(
        "return self.layer(x[0]) * self.rates[-1]", "[torch.randn(batch, width)]", "batch, width = 4096, 4096", "[width]",
        "self.layer = nn.Linear(width, width); self.rates = [r.item() for r in torch.linspace(0.1, 1, 4)]", "self, width",
    )  # fmt: skip
    first, _ = shrunk(problem)
    assert first["width"] < 512


def test_a_reference_that_fails_everywhere_is_an_error() -> None:
    with pytest.raises(ProblemError, match=r"forward\(\).*line \d+"):
        shrunk(make("return x[0] @ x[0].T.unsqueeze(2)[:, 3, 5]", "[torch.randn(64, 32)]", ""))


def test_no_normalisation_over_groups_of_one() -> None:
    """Its output would be nothing but rounding."""
    problem = make(
        "return self.norm(F.mish(F.hardtanh(self.layer(x[0]))))", "[torch.rand(batch, width)]",
        "batch = 1024\nwidth = 8192\nfeatures = 8192\ngroups = 256", "[width, features, groups]",
        "self.layer = nn.Linear(width, features); self.norm = nn.GroupNorm(groups, features)", "self, width, features, groups",
    )  # fmt: skip
    for names in values(problem):
        assert names["features"] > names["groups"]


def test_constants_by_which_the_constructor_makes_parameters_stay() -> None:
    """A candidate gets inputs and the constructor's arguments: it cannot follow another number of rows."""
    problem = make(
        "return self.table[x[0]] * self.scale", "[torch.randint(0, rows, (batch,))]", "batch, rows, width = 4096, 3000, 2048", "[width]",
        "self.table = nn.Parameter(torch.randn(rows, width)); self.scale = nn.Parameter(torch.ones(width))", "self, width",
    )  # fmt: skip
    for names in values(problem):
        assert names["rows"] == 3000
        assert names["width"] != 2048


def test_few_rows_of_two_inputs_that_must_agree_move_together() -> None:
    problem = make("return x[0] + x[1]", "[torch.randn(4, 6), torch.randn(4, 6)]", "")
    sets = [Instance(problem, names).inputs(0) for names in shrunk(problem)]
    assert all(one.shape == other.shape for one, other in sets)
    assert len({one.shape[0] for one, _ in sets}) == 2


def test_steps_over_a_dimension_of_an_input_are_sizes_where_layers_are_none() -> None:
    problem = make(
        "h = x[0][:, 0]\n        for t in range(1, x[0].shape[1]): h = torch.tanh(h) + x[0][:, t]"
        "\n        for _ in range(self.layers): h = h.sin()\n        return h",
        "[torch.randn(batch, steps, width)]", "batch, steps, width, layers = 16, 20, 64, 12", "[layers]", "self.layers = layers",
        "self, layers",
    )  # fmt: skip
    sets = values(problem)
    assert len({names["steps"] for names in sets}) == 2
    assert all(names["layers"] == 12 for names in sets)


def test_what_a_failed_run_left_open_does_not_end_the_next_ones() -> None:
    """A checkpoint of torch 2.11 keeps its hooks in a generator, which lives as long as the frame that an error came from."""
    problem = Problem(
        name="open",
        source="""
import sys
import torch
import torch.nn as nn
OPEN = sys.__dict__.setdefault("_left_open", [])
def hooks():
    OPEN.append(1)
    try:
        yield
    finally:
        OPEN.pop()
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        assert not OPEN, "hooks of another run"
        held = hooks()
        next(held)
        y = self.norm(x)
        next(held, None)
        return y
def get_inputs(): return [torch.randn(2048, 4096)]
def get_init_inputs(): return [4096]
""",
    )
    assert all(one for one in shrunk(problem))


WHOLE_NUMBERS = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.register_buffer("weight", torch.randint(-9, 9, (out, width), dtype=torch.int8))
    def forward(self, x):
        return torch._int_mm(x, self.weight.t())
rows, width, out = 4096, 1024, 2048
def get_inputs(): return [torch.randint(-9, 9, (rows, width), dtype=torch.int8)]
def get_init_inputs(): return [width, out]
"""


def test_sizes_suit_the_gpu_too_where_the_problems_own_do() -> None:
    for found in shrunk(Problem(name="p", source=WHOLE_NUMBERS)):
        assert found["rows"] > 16
        assert found["width"] % 8 == found["out"] % 8 == 0
    for found in shrunk(Problem(name="p", source=WHOLE_NUMBERS.replace("2048", "2050"))):  # which no GPU takes
        assert found
