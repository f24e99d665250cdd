"""Loops of forward substitution: they are triangular systems, however they are written; other loops stay."""

import pytest
import torch
from compiled import problem

from kernelllm.compiler.loops.substitution import with_systems

MODEL = """
class Model(nn.Module):
    def forward(self, k, decay):
        n = k.shape[-2]
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool, device=k.device))
        a = {made}
        for i in range(1, n):
            {body}
        return a + torch.eye(n, dtype=a.dtype)
def get_inputs(): return [torch.randn(2, 3, 9, 4) / 2, torch.rand(2, 3, 9, 9)]
def get_init_inputs(): return []
"""
MASKED = "-((k @ k.mT) * decay).masked_fill(mask, 0)"
SPLIT = """row = a[..., i, :i].clone()
            sub = a[..., :i, :i].clone()
            a[..., i, :i] = row + (row.unsqueeze(-1) * sub).sum(-2)"""
FORMS = {
    "rows and parts": (MASKED, SPLIT),
    "in one line": ("((k @ k.mT) * decay).tril(-1)", "a[..., i, :i] += (a[..., i, :i, None].clone() * a[..., :i, :i].clone()).sum(-2)"),
    "a difference": (MASKED, 'a[..., i, :i] = a[..., i, :i] - torch.einsum("bhj,bhjk->bhk", a[..., i, :i], a[..., :i, :i])'),
    "full above": ("(k @ k.mT) * decay", SPLIT),
}


def run(source: str) -> torch.Tensor:
    scope: dict = {}
    exec(source, scope)
    torch.manual_seed(0)
    result: torch.Tensor = scope["Model"]()(*scope["get_inputs"]())
    return result


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_put_into_each_other_are_a_system(form: str) -> None:
    made, body = FORMS[form]
    old = problem(MODEL.format(made=made, body=body))
    new = with_systems(old).source
    assert f"a.copy_(_forward_substituted(a, {-1 if form == 'a difference' else 1}, {form != 'full above'}, n))" in new
    torch.testing.assert_close(run(new), run(old.source))


def test_of_a_larger_matrix_the_rows_that_the_loop_reaches_alone() -> None:
    old = problem(MODEL.format(made=MASKED, body=SPLIT).replace("range(1, n)", "range(1, n - 2)"))
    new = with_systems(old).source
    assert "_forward_substituted(a, 1, True, n - 2)" in new
    torch.testing.assert_close(run(new), run(old.source))


def test_a_matrix_whose_other_dimensions_are_named_one_by_one() -> None:
    named = SPLIT.replace("a[..., ", "a[:, :, ")
    old = problem(MODEL.format(made=MASKED, body=named))
    new = with_systems(old).source
    assert "_forward_substituted(a, 1, True, n)" in new
    torch.testing.assert_close(run(new), run(old.source))


@pytest.mark.parametrize("body", [
    "a[..., i, :i] = a[..., i, :i] + a[..., i - 1, :i]",
    "a[..., i, :i] = a[..., i, :i] + (k[..., i, :1, None] * a[..., :i, :i]).sum(-2)",
    "last = a[..., i, :i].clone()\n            a[..., i, :i] = last * 2",
    "for j in range(i):\n                a[..., i, j] = a[..., i, j] * 2",
    SPLIT + "\n        a = a + row.sum()",
])  # fmt: skip
def test_other_loops_stay(body: str) -> None:
    old = problem(MODEL.format(made=MASKED, body=body))
    assert with_systems(old) is old
