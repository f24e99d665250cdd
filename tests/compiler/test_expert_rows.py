"""Experts that each look for their rows: one product of all rows where that is right, and no wait for lengths."""

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem
from kernelllm.judge import Judge

EXPERTS = """
class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 24), nn.Linear(24, width, bias=False)
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        return self.down(F.silu(self.up(self.norm(x))))
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.count, self.gate = count, nn.Linear(width, count)
        self.experts = nn.ModuleList(Expert(width) for _ in range(count))
        self.weight = nn.Parameter(torch.randn(count, width, width) * 0.2)
    def forward(self, x):
        score, chosen = CHOICE
        out = torch.zeros_like(x)
        for expert in range(self.count):
            FOUND
            if token.numel() == 0:
                continue
            ADDED
        return out
batch = 24
def get_inputs(): return [torch.randn(batch, 16)]
def get_init_inputs(): return [16, 4]
"""
TOP = "self.gate(x).softmax(-1).topk(2, -1)"
MASK = "place, token = torch.where(F.one_hot(chosen, self.count).permute(2, 1, 0)[expert])"
EQUAL = "token, place = torch.where(chosen == expert)"
STACKED = "out.index_add_(0, token, torch.tanh(x[token] @ self.weight[expert]) * score[token, place, None])"
LAYERS = "out[token] += self.experts[expert](x[token]) * score[token, place, None]"
MIXTRAL = "out.index_add_(0, token, self.experts[expert](x[None, token].reshape(-1, x.shape[1])) * score[token, place, None])"
ROWS = "token, place = (chosen == expert).nonzero(as_tuple=True)"


def _written(choice: str, found: str, added: str) -> str:
    return EXPERTS.replace("CHOICE", choice).replace("FOUND", found).replace("ADDED", added)


@pytest.mark.parametrize("found", [MASK, EQUAL, ROWS], ids=["one_hot", "equal", "nonzero"])
@pytest.mark.parametrize(("added", "products"), [(STACKED, 1), (LAYERS, 2), (MIXTRAL, 2)], ids=["stack", "layers", "mixtral"])
def test_experts_that_look_for_their_rows_are_one_product(found: str, added: str, products: int, quick: Judge) -> None:
    text = _written(TOP, found, added)
    (candidate,) = Compiler().write(problem(text), 1)
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert candidate.source.count("= grouped_matmul(") == products
    assert "nonzero(" not in candidate.source


def test_experts_of_which_each_token_has_one(quick: Judge) -> None:
    found, added = "(token,) = torch.where(chosen == expert)", "out[token] += self.experts[expert](x[token]) * score[token, None]"
    text = _written("self.gate(x).softmax(-1).max(-1)", found, added)
    (candidate,) = Compiler().write(problem(text), 1)
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert candidate.source.count("= grouped_matmul(") == 2


SWITCH = {
    "assigned": "out[chosen == expert] = self.experts[expert](x[chosen == expert])",
    "added": "out[chosen == expert] += torch.tanh(x[chosen == expert] @ self.weight[expert]) * score[chosen == expert].unsqueeze(-1)",
}


@pytest.mark.parametrize(("how", "products"), [("assigned", 2), ("added", 1)])
@pytest.mark.parametrize("batch", ["16", "3, 16"], ids=["tokens", "sentences"])
def test_experts_of_a_mask_of_tokens(how: str, products: int, batch: str, quick: Judge) -> None:
    text = _written("self.gate(x).softmax(-1).max(-1)", "token = chosen", SWITCH[how]).replace("randn(batch, 16)", f"randn(batch, {batch})")
    (candidate,) = Compiler().write(problem(text), 1)
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert candidate.source.count("= grouped_matmul(") == products
    assert "nonzero(" not in candidate.source


OTHERS = {
    "a token that has two experts, and keeps what the last wrote": (TOP, EQUAL, LAYERS.replace("+=", "=")),
    "numbers that may be none of theirs": (TOP.replace("2, -1)", "2, -1)[0], torch.arange(2 * len(x)).view(-1, 2) % 7"), EQUAL, STACKED),
    "a matrix is read twice": (TOP, EQUAL, STACKED.replace("weight[expert]", "weight[expert // 2]")),
    "rows of one expert meet each other": (TOP, EQUAL, STACKED.replace("x[token] @", "(x[token] - x[token].mean(0)) @")),
    "rows of one expert become columns that are summed": (
        TOP, EQUAL, STACKED.replace("x[token] @", "(x[token] + (self.gate.weight[0][:, None] * score[token, place]).sum(1)) @")),
    "a token that has an expert twice, and is written once": (
        "self.gate(x).softmax(-1).topk(1, -1)[0].expand(-1, 2), self.gate(x).topk(1, -1)[1].expand(-1, 2)", EQUAL, LAYERS),
    "what is between is read": (TOP, EQUAL + "\n            out = out * 1.5", STACKED),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_experts_that_are_not_one_product_stay_apart(case: str, quick: Judge) -> None:
    text = _written(*OTHERS[case])
    (candidate,) = Compiler().write(problem(text), 1)
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert "grouped_matmul(" not in candidate.source


EDGES = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, edges, weights):
        kept = edges[0] != edges[1]
        edges, weights = edges[:, kept], weights[kept]
        count = x.new_zeros(x.shape[0]).scatter_add(0, edges[1], torch.ones(edges.shape[1]))
        total = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]] * weights[:, None])
        return total / (count[:, None] + 1)
nodes, width, count = 12, 16, 40
def get_inputs(): return [torch.randn(nodes, width), torch.randint(0, nodes, (2, count)), torch.rand(count)]
def get_init_inputs(): return []
"""


def test_tensors_of_as_many_elements_as_a_mask_has_leave_sizes_general() -> None:
    assert "FIXED_SIZES" not in compiled(Problem(name="edges", source=EDGES), Options())
