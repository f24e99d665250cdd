"""Files for modules with flex attention: one attention where functions only mask, products and a softmax where they change scores."""

import pytest
from compiled import captured, problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate, Problem
from kernelllm.judge import Judge

IMPORT = "from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention\n"
CAUSAL = IMPORT + """
def causal(b, h, row, column):
    return row >= column
class Model(nn.Module):
    def __init__(self, heads, length):
        super().__init__()
        self.heads = heads
        self.mask = create_block_mask(causal, None, None, length, length, device="cpu")
    def forward(self, x):
        q, k, v = x.view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return flex_attention(q, k, v, block_mask=self.mask).transpose(1, 2).flatten(2)
batch, length, width = 2, 40, 64
def get_inputs(): return [torch.randn(batch, length, 3 * width)]
def get_init_inputs(): return [4, length]
"""
BIASED = IMPORT + """
flex_attention = torch.compile(flex_attention)
class Model(nn.Module):
    def __init__(self, heads, groups):
        super().__init__()
        self.parts = [heads, groups, groups]
        self.bias = nn.Parameter(torch.randn(heads))
        self.register_buffer("slopes", torch.exp2(-8.0 * torch.arange(1, heads + 1) / heads))
    def forward(self, x, document):
        b, t, _ = x.shape
        def seen(i, h, row, column):
            return (row > column) & (document[i, row] == document[i][column])
        def biased(score, i, h, row, column):
            return score + self.bias[h] - self.slopes[h] * (row - column)
        q, k, v = x.view(b, t, sum(self.parts), -1).transpose(1, 2).split(self.parts, 1)
        mask = create_block_mask(seen, b, None, t, t, device=x.device)
        return flex_attention(q, k, v, score_mod=biased, block_mask=mask, enable_gqa=True).transpose(1, 2).flatten(2)
batch, length, width = 2, 40, 16
def get_inputs():
    return [torch.randn(batch, length, 8 * width), (torch.rand(batch, length) < 0.1).long().cumsum(1)]
def get_init_inputs(): return [4, 2]
"""
SUMS = IMPORT + """
class Model(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window
    def forward(self, q, k, v):
        near = lambda b, h, row, column: (row - column).abs() < self.window
        mask = create_block_mask(near, None, None, q.shape[2], k.shape[2], device=q.device)
        out, more = flex_attention(q, k, v, block_mask=mask, scale=0.3, return_aux=AuxRequest(lse=True))
        return out, more.lse
batch, length = 2, 33
def get_inputs(): return [torch.randn(batch, 2, length, 16) for _ in range(3)]
def get_init_inputs(): return [5]
"""


def written(body: str, **options: object) -> tuple[Problem, Candidate]:
    return problem(body), Candidate(source=compiled(problem(body), Options(**options)))  # type: ignore[arg-type]


def ours(body: str) -> list[str]:
    """The operators of the graph that compute by templates."""
    return [str(n.target) for n in captured(body).graph.graph.nodes if str(n.target).startswith("kernelllm.")]


@pytest.fixture(scope="module")
def judged(quick: Judge):
    def correct(of: Problem, file: Candidate) -> None:
        verdict = quick.judge(of, file)
        assert verdict.correct, verdict.message

    return correct


def test_a_causal_mask_is_attention_without_a_mask(judged):
    of, file = written(CAUSAL)
    assert "create_block_mask" not in file.source  # the mask of the constructor serves torch's kernel alone
    assert captured(CAUSAL).way == "make_fx"
    assert "mask=None" not in file.source
    judged(of, file)


def test_scores_with_a_learnt_bias_under_a_mask_of_documents(judged):
    of, file = written(BIASED)
    assert captured(BIASED).way == "make_fx"  # for any batch and length
    assert len(ours(BIASED)) == 1  # scores and mask are computed in one kernel
    judged(of, file)


def test_sums_of_rows_are_results_too(judged):
    judged(*written(SUMS))


def test_gradients_of_the_bias(judged):
    judged(*written(BIASED.replace("row > column", "row >= column"), backward=True))


def test_products_of_converted_halves_are_exact_in_tf32():
    half = SUMS.replace("torch.randn(batch, 2, length, 16)", "torch.randn(batch, 2, length, 16).bfloat16()")
    products = [n for n in captured(half).graph.graph.nodes if str(n.target) == "kernelllm.batched_matmul.default"]
    assert products[0].kwargs["allow_tf32"]


def test_a_live_module_with_a_causal_mask_is_a_problem_of_plain_operators():
    from kernelllm.app.live.module_capture import captured as traced
    from kernelllm.app.live.module_capture import problem_of
    from kernelllm.problems.instance import Instance

    instance = Instance(problem(CAUSAL))
    model, inputs = instance.model(0), instance.inputs(0)
    of = problem_of(model, traced(model, (tuple(inputs), {})), "live")
    assert "scaled_dot_product_attention" in of.source
    assert "flex_attention" not in of.source
