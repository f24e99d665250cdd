"""Lists of a tensor's parts that are joined again."""

import torch
from compiled import captured, problem

from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.judge import Judge

TOKENS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.into = nn.Parameter(torch.randn(width)), nn.Linear(width, width)
    def forward(self, x, y, z):
        rows = [self.first, *self.into(x)]
        rows.extend(y.t())
        turned = torch.stack(list(z.unbind(1)), 2)
        several = torch.cat([z[:, i] for i in range(5, 11)] + [z[:, 3], z[:, 2]], 1)
        return torch.tanh(torch.stack(rows)), turned * 2, several.exp()
def get_inputs(): return [torch.randn(24, 40), torch.randn(40, 30), torch.randn(3, 12, 7)]
def get_init_inputs(): return [40]
"""


def test_neighbours_are_joined_as_the_part_that_they_were(quick: Judge) -> None:
    joined = captured(TOKENS).graph.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert sorted(len(node.args[0]) for node in joined) == [3, 3]  # what is stacked alone is the tensor, turned
    (candidate,) = Compiler().write(problem(TOKENS), 1)
    verdict = quick.judge(problem(TOKENS), candidate)
    assert verdict.correct, verdict.message
