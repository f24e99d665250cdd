"""A module whose launches are replayed as CUDA graphs."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from kernelllm.compiler import cuda_graphs
from kernelllm.compiler.cuda_graphs import CudaGraphs


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.GELU(), torch.nn.Linear(16, 4))


class Accumulates(torch.nn.Module):
    """Writes into its input."""

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return x.add_(scale).sum(1)


def test_a_file_with_the_class_runs_calls_that_no_graph_can_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import torch\n\n\nclass ModelNew(torch.nn.Linear):\n    pass\n"
    made: Any = ModuleType("written")
    monkeypatch.setitem(sys.modules, "written", made)
    exec(cuda_graphs.added(text), vars(made))
    model, x = made.ModelNew(4, 3), torch.rand(2, 4)
    graphed = made.CudaGraphs(model)
    with torch.no_grad():
        torch.testing.assert_close(graphed(x), model(x))
    assert not graphed.graphs


@pytest.mark.gpu
def test_replays_give_what_the_module_gives_and_count_as_calls() -> None:
    plain, recorded = network().cuda(), network().cuda()
    graphed = CudaGraphs(recorded)
    kept = []
    with torch.no_grad():
        for rows in (6, 6, 6, 9, 6, 9, 9):
            x = torch.randn(rows, 8, device="cuda")
            kept.append((graphed(x), plain(x)))
            x.zero_()
        assert len(graphed.graphs) == 2
        for ours, theirs in kept:  # results of earlier calls are as they were
            torch.testing.assert_close(ours, theirs)
        for name, value in recorded.state_dict().items():  # running statistics moved once a call
            torch.testing.assert_close(value, plain.state_dict()[name])
        changed = {k: v * 2 if v.is_floating_point() else v for k, v in plain.state_dict().items()}
        for module in (plain, recorded):
            module.load_state_dict(changed)
        for mode in (True, False, True, True):
            x = torch.randn(6, 8, device="cuda")
            torch.testing.assert_close(graphed.train(mode)(x), plain.train(mode)(x))


@pytest.mark.gpu
def test_a_module_that_writes_into_its_input_is_run_itself() -> None:
    graphed = CudaGraphs(Accumulates())
    with torch.no_grad():
        for number in range(1, 4):
            x = torch.zeros(4, 2, device="cuda")
            assert [graphed(x, scale=number).tolist() for _ in range(2)] == [[2.0 * number] * 4, [4.0 * number] * 4]
            assert x.max() == 2 * number
