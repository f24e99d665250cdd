"""References with flex attention: the judge runs them as what they compute, and what is timed is torch's own."""

from __future__ import annotations

import pytest
import torch
from judge.problems import candidate

from kernelllm.core.types import Candidate, Problem, Status
from kernelllm.judge import Judge
from kernelllm.judge.timing import roofline
from kernelllm.problems import seeds
from kernelllm.problems.instance import Instance
from kernelllm.problems.unfused_flex import unfused_flex

SOURCE = """
import torch
import torch.nn as nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
flex_attention = torch.compile(flex_attention)

class Model(nn.Module):
    def forward(self, q, k, v, document):
        def near(b, h, row, column):
            return (row >= column) & (document[b, row] == document[b][column])

        def capped(score, b, h, row, column):
            return torch.tanh(score) - 0.1 * (h + 1) * (row - column)

        mask = create_block_mask(near, q.shape[0], None, q.shape[2], q.shape[2], device=q.device)
        return flex_attention(q, k, v, score_mod=capped, block_mask=mask, enable_gqa=True)

batch, length, groups, width = 2, 24, 2, 16
def get_inputs():
    document = (torch.rand(batch, length) < 0.1).long().cumsum(1)
    return [torch.randn(batch, n * groups, length, width) for n in (2, 1, 1)] + [document]
def get_init_inputs(): return []
"""
PROBLEM = Problem(name="flex", source=SOURCE)
KERNEL = '''
@triton.jit
def attend(q, k, v, document, out, T, heads, group, W, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    row, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    columns, ds = tl.arange(0, BLOCK), tl.arange(0, D)
    inside, wide = columns < T, ds < W
    both = inside[:, None] & wide[None, :]
    place = ((batch * heads + head) * T + row) * W + ds
    there = ((batch * (heads // group) + head // group) * T + columns[:, None]) * W + ds[None, :]
    query = tl.load(q + place, mask=wide, other=0.0)
    scores = tl.sum(tl.load(k + there, mask=both, other=0.0) * query[None, :], 1) * scale
    scores = 2 / (1 + tl.exp(-2 * scores)) - 1 - SLOPE * (head + 1) * (row - columns)
    same = tl.load(document + batch * T + columns, mask=inside, other=-1) == tl.load(document + batch * T + row)
    scores = tl.where(inside & same & (columns <= row), scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 0))
    values = tl.load(v + there, mask=both, other=0.0)
    tl.store(out + place, tl.sum(values * weights[:, None], 0) / tl.sum(weights, 0), mask=wide)
'''
FORWARD = """        q, k, v, document = (t.contiguous() for t in (q, k, v, document))
        out = torch.empty_like(q)
        batch, heads, length, width = q.shape
        D, BLOCK = triton.next_power_of_2(width), triton.next_power_of_2(length)
        attend[(length, heads, batch)](
            q, k, v, document, out, length, heads, heads // k.shape[1], width, width ** -0.5, D=D, BLOCK=BLOCK)
        return out"""


def written(slope: str) -> Candidate:
    return candidate(KERNEL.replace("SLOPE", slope), FORWARD, arguments="q, k, v, document")


def test_a_kernel_is_held_against_what_flex_attention_computes(warm: Judge) -> None:
    right, wrong = warm.judge(PROBLEM, written("0.1")), warm.judge(PROBLEM, written("0.11"))
    assert right.status is Status.CORRECT, right.message
    assert wrong.status is Status.INCORRECT, wrong.message
    assert roofline.floor_of(PROBLEM, "sm_90") is not None


def test_only_problems_that_run_for_us_leave_torchs_kernel() -> None:
    instance = Instance(Problem(name="plain", source=SOURCE.replace("flex_attention = torch", "compiled = torch")))
    from torch.nn.attention import flex_attention as module

    real = module.flex_attention_hop
    model, inputs = instance.model(0), instance.inputs(0)
    with torch.no_grad(), seeds.own_generators():
        assert module.flex_attention_hop is not real
        ours = model(*inputs)
    assert module.flex_attention_hop is real
    assert not module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    module._WARNINGS_SHOWN.clear()
    with torch.no_grad(), pytest.warns(UserWarning, match="without torch.compile"):
        theirs = model(*inputs)
    torch.testing.assert_close(ours, theirs)


def test_a_thread_that_was_given_up_leaves_nothing_replaced() -> None:
    Instance(PROBLEM)
    from torch.nn.attention import flex_attention as module

    real, compiled = module.flex_attention_hop, torch.compile(torch.sin, backend=lambda *_: pytest.fail("compiled"))
    around, inside = unfused_flex(), unfused_flex(lambda *_: None)
    around.__enter__()
    inside.__enter__()
    around.__exit__(None, None, None)
    assert module.flex_attention_hop is not real
    assert compiled(torch.zeros(1)) == 0
    inside.__exit__(None, None, None)
    assert module.flex_attention_hop is real
    with pytest.raises(BaseException, match="compiled"):
        compiled(torch.zeros(1))
