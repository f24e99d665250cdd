"""Sizes that only the values of tensors tell: torch finds the positions, kernels do the rest."""

from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.judge import Judge

EXPERTS = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.count, self.gate = count, nn.Linear(width, count)
        self.weight = nn.Parameter(torch.randn(count, width, width) * 0.2)
    def forward(self, x):
        score, chosen = self.gate(x).softmax(-1).topk(2, -1)
        of = F.one_hot(chosen, self.count).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in torch.greater(of.sum((-1, -2)), 0).nonzero():
            expert = expert[0]
            if expert == self.count:
                continue
            place, token = torch.where(of[expert])
            out.index_add_(0, token, torch.tanh(x[token] @ self.weight[expert]) * score[token, place, None])
        return out
def get_inputs(): return [torch.randn(24, 16)]
def get_init_inputs(): return [16, 3]
"""

MASKED = """
class Model(nn.Module):
    def forward(self, x, y):
        found = x > 0.2
        out = y.exp()
        out[found] = y[found] * 2
        values, counts = torch.unique((x * 3).round(), return_counts=True)
        return out, y[found] + 1, (values * counts).sum(), y[x > 100].sum()
def get_inputs(): return [torch.randn(40), torch.randn(40, 6)]
"""


def test_a_loop_over_the_experts_that_tokens_chose(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(EXPERTS), 1)
    verdict = judge.judge(problem(EXPERTS), candidate)
    assert verdict.correct, verdict.message
    assert candidate.source.count("torch.ops.aten.nonzero(") == 3  # one for each expert


def test_masks_as_indices_and_unique_values(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(MASKED), 1)
    verdict = judge.judge(problem(MASKED), candidate)
    assert verdict.correct, verdict.message
