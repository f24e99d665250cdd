"""Attention whose kernel computes what is done to the scores, or a mask that is made of positions, tile by tile."""

import pytest
import torch
from compiled import captured, problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

BODY = """
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.table = nn.Parameter(torch.randn(4, 2 * size + 1))
    def forward(self, q, k, v, lengths):
        at = torch.arange(q.shape[2], device=q.device)
        apart = at[:, None] - at[None, :]
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
        return LINES
batch, length = 2, 40
def get_inputs(): return [*(torch.randn(batch, 4, length, 16) for _ in range(3)), torch.randint(1, length, (batch,))]
def get_init_inputs(): return [6]
"""
HIDDEN = "masked_fill(~({}), float('-inf')).softmax(-1) @ v"
WINDOW = "scores.masked_fill(apart.abs() >= self.size, torch.finfo(scores.dtype).min).softmax(-1) @ v"
TABLE = "(torch.sigmoid(scores) + self.table[:, apart.clamp(-self.size, self.size) + self.size]).softmax(-1) @ v"
TRIANGLE = "scores.masked_fill(torch.ones(q.shape[2], q.shape[2], device=q.device).tril() == 0, -1e9).softmax(-1) @ v"
MASKED = "F.scaled_dot_product_attention(q, k, v, {})"
CASES = {
    "capped scores": ("(self.size * torch.tanh(scores / self.size))." + HIDDEN.format("apart >= 0"), ("upper",)),
    "a window of finite numbers": (WINDOW, ("lower", "upper")),
    "a penalty for distance": (MASKED.format("torch.where(apart < 0, float('-inf'), -0.1 * apart.float())"), ("upper",)),
    "a table of distances": (TABLE, ("tensor_0",)),
    "blocks up to a length": (
        MASKED.format("(at[:, None] // 8 >= at // 8) & (at < lengths[:, None])[:, None, None]"), ("seen_from", "upper"),
    ),
    "a triangle of ones": (TRIANGLE, ("upper",)),
}  # fmt: skip


def body(case: str) -> str:
    return BODY.replace("LINES", CASES[case][0])


def operators(text: str) -> list[str]:
    return [str(n.target) for n in captured(text).graph.graph.nodes if str(n.target).startswith("kernelllm.")]


@pytest.mark.parametrize("case", CASES)
def test_one_operator_computes_scores_and_mask(case):
    found = operators(body(case))
    assert len(found) == 1
    assert found[0].startswith("kernelllm.scored_attention_")


@pytest.mark.parametrize("case", CASES)
def test_files_are_right(quick: Judge, case):
    of = problem(body(case))
    file = compiled(of, Options(any_dtype=False))
    assert "scored_attention_kernel" in file
    assert all(word in file for word in CASES[case][1])
    verdict = quick.judge(of, Candidate(source=file))
    assert verdict.correct, verdict.message


def test_a_mask_that_leaves_a_row_without_keys_is_added():
    rows = body("a window of finite numbers").replace("apart.abs() >= self.size", "apart.abs() < self.size")
    assert "scored_attention" not in " ".join(operators(rows))  # such a row has equal weights


def test_few_queries_stay_as_they_were():
    assert "scored_attention" not in " ".join(operators(body("a penalty for distance").replace("length = 2, 40", "length = 2, 8")))


def test_a_mask_in_memory_stays_there():
    given = BODY.replace("LINES", "F.scaled_dot_product_attention(q, k, v, self.mask)")
    given = given.replace("self.size = size", "self.register_buffer('mask', torch.rand(40, 40) > 0.3)")
    assert operators(given) == ["kernelllm.attention.default"]


def test_half_precision_reads_key_heads_once():
    grouped = body("capped scores").replace("q @ k.tr", "q @ (k := k[:, :2].repeat_interleave(2, 1)).tr")
    grouped = grouped.replace("@ v", "@ v[:, :2].repeat_interleave(2, 1)").replace("16)", "16, dtype=torch.float16)")
    node = next(n for n in captured(grouped).graph.graph.nodes if "scored" in str(n.target))
    assert [n.meta["val"].shape[1] for n in node.args[:3]] == [4, 2, 2]
    assert node.args[0].meta["val"].dtype == torch.float16


GRADIENTS = """    def forward(self, q, k, v, lengths, given):
        with torch.enable_grad():
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            out = self.attend(q, k, v, lengths)
            return out.detach() * 2, *torch.autograd.grad(out, (q, k, v), given)
batch,"""
GROUPED = "(q @ k[:, :2].repeat_interleave(2, 1).mT)." + HIDDEN.format("apart >= 0") + "[:, :2].repeat_interleave(2, 1)"
FILLED = "torch.where((left := scores.masked_fill(apart < 9, -math.inf)).amax(-1, True) == -math.inf, 0.0, left.softmax(-1)) @ v"
LEARNT = "(scores + self.table.mean(1)[:, None, None] * apart)." + HIDDEN.format("apart >= 0")


def with_gradients(lines: str, dtype: str = "torch.float32") -> str:
    text = BODY.replace("LINES", lines).replace("forward(", "attend(").replace("batch,", GRADIENTS, 1)
    return text.replace(", (batch,))", ", (batch,)), torch.randn(batch, 4, length, 16)").replace("16)", f"16, dtype={dtype})")


GRADIENTS_OF = {
    **{case: (lines, "torch.float32") for case, (lines, _) in CASES.items()}, "a learnt penalty": (LEARNT, "torch.float32"),
    "rows without keys": (FILLED, "torch.float32"),
    "shared key heads": (GROUPED, "torch.float16"), "a length in half precision": (CASES["blocks up to a length"][0], "torch.float16"),
}  # fmt: skip


@pytest.mark.parametrize("case", GRADIENTS_OF)
def test_one_operator_computes_gradients(case):
    found = operators(with_gradients(*GRADIENTS_OF[case]))
    assert sorted(name.rpartition("_")[0] for name in found) == ["kernelllm.scored_attention", "kernelllm.scored_gradients"]


@pytest.mark.parametrize("case", GRADIENTS_OF)
def test_gradients_are_right(quick: Judge, case):
    of = problem(with_gradients(*GRADIENTS_OF[case]))
    file = compiled(of, Options(any_dtype=False))
    assert "scored_gradients_key_kernel" in file
    verdict = quick.judge(of, Candidate(source=file))
    assert verdict.correct, verdict.message


def test_the_gradient_of_a_learnt_bias_takes_the_weights():
    learnt = with_gradients(LEARNT).replace("(q, k, v), given)", "(q, k, v, self.table), given)")
    assert "scored_gradients" not in " ".join(operators(learnt))
