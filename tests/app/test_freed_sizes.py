"""Loops over a dimension, which a capture unrolls, do not fix it where the loop is found again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernelllm.app.live.call_arguments import input_sets
from kernelllm.app.live.freed_sizes import freed
from kernelllm.app.live.module_capture import captured, in_mode, problem_of
from kernelllm.problems.instance import Instance


class Scan(nn.Module):
    """A running state of the rows, shifted by one: the capture writes the end of the slice as a number."""

    def __init__(self, table: int = 1) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.rand(4))
        self.place = nn.Parameter(torch.randn(table, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, found = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = h * self.decay + x[:, t]
            found.append(h)
        y = torch.stack(found, 1)
        return torch.cat((x[:, :1], y), 1)[:, : x.shape[1]] + self.place


@pytest.mark.parametrize("table", [1, 11])
def test_a_loop_over_a_dimension_serves_other_sizes_where_nothing_else_fixes_it(table: int) -> None:
    module, x = Scan(table), torch.randn(3, 11, 4)
    call = input_sets(module, x)[0]
    with in_mode(module, train=False):
        live = captured(module, call)
        live, problem = freed(module, live, problem_of(module, live, "scan"))
    signature = live.signature
    if table > 1:
        assert "where 11 is fixed" in signature.sizes([torch.randn(3, 7, 4)])
        return
    assert signature.sizes([x]) == "proven"
    assert signature.sizes([torch.randn(3, 7, 4)]) == "unproven"  # compared once
    assert not signature.unfit(module, input_sets(module, torch.randn(2, 30, 4))[0])
    instance = Instance(problem, {"size1": 6})
    inputs, model = instance.inputs(0), instance.model(0)
    model.load_state_dict(module.state_dict())
    assert inputs[0].shape == (3, 6, 4)
    torch.testing.assert_close(model(*inputs), module(*inputs))
