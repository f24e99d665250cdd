"""Other parameters and buffers for a reference, and what it depends on."""

from __future__ import annotations

import pytest
import torch

from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.trials.reference_runs.reference import Reference, prepare
from kernelllm.judge.trials.state.alternate_states import alternate_state, missing_but_used
from kernelllm.judge.trials.state.amplified_terms import amplified_parameters

SOURCE = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.randn(6, 8)]
def get_init_inputs():
    return []
"""


def reference(init: str, forward: str) -> Reference:
    problem = Problem(name="p", source=SOURCE.format(init=init, forward=forward))
    return prepare(problem, SizeSet(label="original"), {}, "cpu", 42, True)


@pytest.mark.parametrize("mode", ["self.train()", "self.eval()"])
def test_running_statistics_get_other_valid_values(mode: str) -> None:
    one = reference(f"self.norm = nn.BatchNorm1d(8); {mode}", "self.norm(x)")
    before, other = one.state(), alternate_state(one, 7)
    assert all(not torch.equal(other[name], before[name]) for name in before)
    assert bool((other["norm.running_var"] > 0).all())
    assert other["norm.num_batches_tracked"].dtype is torch.int64
    assert torch.equal(other["norm.running_mean"], alternate_state(one, 7)["norm.running_mean"])


def test_tables_that_the_constructor_computes_stay() -> None:
    one = reference("self.register_buffer('mask', torch.ones(8, 8).tril())", "x @ self.mask")
    assert torch.equal(alternate_state(one, 7)["mask"], one.state()["mask"])


def test_names_that_share_a_tensor_get_the_same_value() -> None:
    one = reference("self.a = nn.Parameter(torch.ones(8)); self.b = self.a", "x * self.a + self.b")
    other = alternate_state(one, 7)
    assert torch.equal(other["a"], other["b"])
    assert not torch.equal(other["a"], one.state()["a"])
    assert missing_but_used(one, ("b",), 7) == ()  # loading the other name is enough


@pytest.mark.parametrize(
    ("forward", "missing", "matter"),
    [
        ("x * self.a + self.b", ("a", "b"), ("a", "b")),
        ("x * self.a + self.b", ("b",), ("b",)),
        ("x * self.a", ("b",), ()),
        ("nn.functional.batch_norm(x + self.b, None, None, self.a, training=True)", ("b",), ()),
        ("nn.functional.batch_norm(x + self.b, None, None, self.a, training=True)", ("a", "b"), ("a",)),
    ],
)
def test_a_missing_name_matters_where_the_output_depends_on_it(forward: str, missing: tuple[str, ...], matter: tuple[str, ...]) -> None:
    one = reference("self.a = nn.Parameter(torch.ones(8)); self.b = nn.Parameter(torch.zeros(8))", forward)
    before = {name: value.clone() for name, value in one.state().items()}
    assert missing_but_used(one, missing, 7) == matter
    assert all(torch.equal(value, before[name]) for name, value in one.state().items())


def test_float8_parameters_get_other_values() -> None:
    made = "self.w = nn.Parameter(torch.rand(8).to(torch.float8_e4m3fn), False); "
    made += "self.register_buffer('s', torch.ones(8).to(torch.float8_e5m2))"
    one = reference(made, "x * self.w.float() * self.s.float()")
    before, other = one.state(), alternate_state(one, 7)
    assert {n: t.dtype for n, t in other.items()} == {n: t.dtype for n, t in before.items()}
    assert not any(torch.equal(other[n].float(), before[n].float()) for n in before)


def test_what_a_forward_keeps_is_no_state() -> None:
    one = reference("self.register_buffer('seen', None)", "self.register_buffer('seen', x[:3]) or self.seen * 2")
    one.run(one.inputs(3), 3)
    assert one.model.seen is not None
    assert one.state() == {}
    assert missing_but_used(one, ("seen",), 7) == ()


def test_parameters_are_not_so_large_that_rounding_decides_about_positions() -> None:
    """Codes of a quantiser behind a large bias: whoever rounds otherwise gets others."""
    for factor, found in (("1e5", ["b"]), ("1e7", [])):
        code = f"({factor} * (1e-4 * self.b).square().sum() ** 2 * x).floor().long()"
        one = reference("self.b = nn.Parameter(torch.randn(8))", f"(x + 1e-4 * self.b, {code})")
        assert list(amplified_parameters(one)) == found
