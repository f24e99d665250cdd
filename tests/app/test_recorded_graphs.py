"""torch.compile(backend="kernelllm", mode="reduce-overhead"): written files are replayed as CUDA graphs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import compile_fx

from kernelllm.app.dynamo import compile_jobs, graph_kernel, recorded_graph
from kernelllm.app.dynamo.backend import kernelllm
from kernelllm.app.dynamo.graph_report import compile_report
from kernelllm.app.dynamo.recorded_graph import PLAIN_CALLS
from kernelllm.app.dynamo.writing import WriteRequest, WriteResult


class References:
    """Stands for the process that writes: hands back the graph's own problem."""

    def start(self, device: str) -> None:
        pass

    def write(self, order: WriteRequest, limit_s: float) -> WriteResult:
        return WriteResult(source=order.problem.source + "\nModelNew = Model\n", verified=order.verify)


class Recorder:
    """Stands for Inductor's recording. Notes how it was asked, and the calls."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.calls: list[int] = []

    def __call__(self, model: Callable[[list[Any]], Any], **how: Any) -> Callable[[list[Any]], Any]:
        number = len(self.asked)
        self.asked.append(how)
        self.calls.append(0)

        def run(inputs: list[Any]) -> Any:
            self.calls[number] += 1
            return model(inputs)

        return run


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    made = Recorder()
    monkeypatch.setenv("KERNELLLM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compile_jobs, "processes", References)
    monkeypatch.setattr(compile_jobs, "_waited", 0.0)
    monkeypatch.setattr(graph_kernel.in_process, "runs_without_gpu", lambda: True)
    monkeypatch.setattr(compile_fx, "cudagraphify", made)
    monkeypatch.setattr(recorded_graph, "_recordable", lambda graph: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    compile_report().clear()
    torch._dynamo.reset()
    return made


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
        self.register_buffer("scale", torch.rand(3) + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).tanh() * self.scale


def compiled(module: nn.Module, **options: Any) -> Any:
    return torch.compile(module, backend=kernelllm, options={"fallback": "eager", "mode": "reduce-overhead", **options})


def test_a_training_step_is_recorded_after_some_plain_calls(recorder: Recorder) -> None:
    eager = Net()
    other = copy.deepcopy(eager)
    fast = compiled(other)
    for step in range(PLAIN_CALLS + 4):  # the first one decides what runs
        x = torch.randn(5, 4)
        for model in (eager, other):
            model.zero_grad()
        one, two = eager(x), fast(x)
        torch.testing.assert_close(two, one)
        one.square().sum().backward()
        two.square().sum().backward()
        torch.testing.assert_close([p.grad for p in other.parameters()], [p.grad for p in eager.parameters()])
        assert len(recorder.asked) == (2 if step > PLAIN_CALLS else 0), step
    forward, backward = recorder.asked
    assert (forward["is_backward"], forward["is_inference"], backward["is_backward"]) == (False, False, True)
    assert len(forward["static_input_idxs"]) == len(forward["placeholders"]) - 1  # all but x
    assert 0 < len(backward["static_input_idxs"]) < len(backward["placeholders"])  # weights, not what the forward kept
    names = {backward["placeholders"][i].name for i in backward["static_input_idxs"]}
    assert names <= {forward["placeholders"][i].name for i in forward["static_input_idxs"]}
    assert recorder.calls == [3, 3]
    assert str(compile_report()).count("as a CUDA graph") == 2


def test_each_size_has_plain_calls_of_its_own(recorder: Recorder) -> None:
    fast, eager = compiled(net := Net()), copy.deepcopy(net)
    with torch.no_grad():
        for rows in (2, 3, *[5] * PLAIN_CALLS, 5, *[7] * PLAIN_CALLS, 7, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(fast(x), eager(x))
    assert [asked["is_inference"] for asked in recorder.asked] == [True]
    assert recorder.calls == [3]


def test_what_waits_for_the_gpu_is_not_recorded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[Any] = []

    def watch(mode: Any) -> None:
        modes.append(mode)
        if mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=2)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", watch)
    fast, eager = compiled(net := Net()), copy.deepcopy(net)
    with torch.no_grad():
        for _ in range(PLAIN_CALLS + 3):
            x = torch.randn(2, 4)
            torch.testing.assert_close(fast(x), eager(x))
    assert not recorder.asked
    assert modes == ["warn", 0]


def test_other_modes_launch_each_kernel(recorder: Recorder) -> None:
    fast = compiled(Net(), mode="default")
    with torch.no_grad():
        for _ in range(PLAIN_CALLS + 3):
            fast(torch.randn(2, 4))
    assert not recorder.asked


class Decoder(nn.Module):
    """A cache that is written in place, dropout where it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.dropout = Net(), nn.Dropout(0.5)
        self.register_buffer("cache", torch.zeros(16, 4))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, self.place, x.mean(0, keepdim=True))
        self.place += 1
        return self.dropout(self.net(x + self.cache.sum(0)))


@pytest.mark.gpu
def test_replays_follow_inputs_caches_weights_and_random_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KERNELLLM_CACHE_DIR", str(tmp_path))
    compile_report().clear()
    torch._dynamo.reset()
    eager = Decoder().cuda().eval()
    other = copy.deepcopy(eager)
    fast = compiled(other, verify="off", wait_s=200.0)
    with torch.no_grad():
        for step in range(12):
            x = torch.randn(6, 4, device="cuda")
            if step == 9:
                for model in (eager, other):
                    model.net.layers[0].weight.mul_(2)
            torch.testing.assert_close(fast(x).clone(), eager(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(other.cache, eager.cache)
    assert "as a CUDA graph" in str(compile_report()), str(compile_report())
    other.train()
    masks = set()
    for _ in range(12):
        other.zero_grad()
        other.cache.zero_()
        other.place.zero_()
        result = fast(torch.ones(6, 4, device="cuda"))
        masks.add(tuple((result == 0).flatten().tolist()))
        result.sum().backward()
        weight = other.net.layers[3].bias.grad
        assert weight is not None
        assert weight.isfinite().all()
    assert len(masks) > 6  # each call draws its own
