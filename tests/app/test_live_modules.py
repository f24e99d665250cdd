"""Live modules: what a module with kernels shares with its original, which calls its kernels get, and what is refused at once.

The written files are plain PyTorch here, so that nothing is compiled; the page on live modules is run with the compiler.
"""

from __future__ import annotations

import collections
import contextvars
import copy
import dataclasses
import functools
import inspect
import io
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import kernelllm
import kernelllm.app.in_process
from kernelllm.app.live.call_arguments import input_sets
from kernelllm.app.live.dispatch import KernelModule, KernelsNotUsed
from kernelllm.app.live.module_capture import captured, in_mode, problem_of
from kernelllm.app.live.optimize_module import check_module, materialize
from kernelllm.app.live.program import LiveProgram
from kernelllm.app.live.watched import Watched
from kernelllm.core.errors import CaptureError, ProblemError, UsageError
from kernelllm.problems.instance import Instance


class Net(nn.Module):
    """A bit of everything: layers with a mode, tied weights, a buffer that is not saved, a plain tensor, a default, a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.randn(4), persistent=False)
        self.plain = torch.randn(4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, scale: float = 1.0) -> dict[str, Any]:
        hidden = self.second(torch.relu(self.first(self.norm(x)))) * scale + self.shift * self.plain
        return {"out": hidden if mask is None else hidden * mask, "parts": (hidden.sum(-1), 3)}


def with_kernels(net: nn.Module, *inputs: Any, train: bool = False) -> KernelModule:
    """As ``optimize`` makes it, with the problem's own source for a written file."""
    programs = []
    with in_mode(net, train):
        for call in input_sets(net, list(inputs)):
            graph = captured(net, call)
            source = problem_of(net, graph, "net").source.replace("class Model(", "class ModelNew(")
            programs.append(LiveProgram(source, graph.signature, graph.output, graph.constants, fills=graph.fills))
    return KernelModule(net, programs)


@pytest.fixture(autouse=True)
def kernels_run_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(kernelllm.app.in_process, "runs_without_gpu", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def same(a: Any, b: Any) -> None:
    torch.testing.assert_close(a["out"], b["out"])
    torch.testing.assert_close(a["parts"], b["parts"])


@torch.no_grad()
def test_kernels_run_for_what_was_captured_and_the_original_for_the_rest(net: Net) -> None:
    made = with_kernels(net, (torch.randn(6, 4),))
    x = torch.randn(6, 4)
    for batch in (6, 3, 1):
        same(made(torch.randn(batch, 4).copy_(x[:batch])), net(x[:batch]))
    same(made(x=x, mask=None), net(x))
    same(made(torch.randn(4, 6).t().copy_(x)), net(x))
    assert (made.kernelllm.kernel_calls, made.kernelllm.original_calls.total()) == (5, 0)
    with pytest.warns(KernelsNotUsed, match="other arguments"):
        same(made(x, scale=2.0), net(x, scale=2.0))
    same(made(x, torch.ones(6, 4)), net(x, torch.ones(6, 4)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert made(x)["parts"][0].dtype is net(x)["parts"][0].dtype
    same(made.double()(x.double()), net(x.double()))
    assert made.kernelllm.kernel_calls == 5
    assert set(made.kernelllm.original_calls) == {"other arguments", "autocast", "x is float64, not float32"}


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(4), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.up(self.norm(x)).chunk(2, -1)
        return a * b.sigmoid()


class Twice(nn.Module):
    """A layer under two names, as the filters of SchNet."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.inner = nn.Sequential(self.layer, nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.layer(x)


@torch.no_grad()
def test_a_layer_under_two_names_keeps_its_weights() -> None:
    net = Twice()
    weight, before = net.layer.weight, net.layer.weight.clone()
    made, x = with_kernels(net, torch.randn(3, 4)), torch.randn(5, 4)
    assert net.layer.weight is weight
    assert torch.equal(weight, before)
    torch.testing.assert_close(made(x), net(x))
    assert made.kernelllm.kernel_calls == 1


class FloatNorm(nn.Module):
    """As norms of language models: in float32, and back to the type of what came."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.next = nn.Parameter(torch.rand(4) + 0.5), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        rows = self.next(self.weight * wide.to(x.dtype))
        return torch.softmax(torch.cat((rows, rows))[: x.shape[0]], -1, dtype=torch.float32).to(x.dtype)


@torch.no_grad()
def test_a_module_that_converts_back_to_the_type_of_its_input_has_kernels_in_half_precision() -> None:
    net = FloatNorm().eval()
    made = with_kernels(net, torch.randn(3, 4))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        made.to(dtype)
        for rows in (3, 5):
            x = torch.randn(rows, 4, dtype=dtype)
            assert torch.equal(made(x), net(x))
    assert made.kernelllm.kernel_calls == 6


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_compared_once(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    made = with_kernels(Gated().eval(), torch.randn(6, 4))
    made.to(dtype)
    for batch in (6, 3, 6):
        x = torch.randn(batch, 4, dtype=dtype)
        torch.testing.assert_close(made(x), made.kernelllm.original(x))
    assert made.kernelllm.kernel_calls == 3
    (program,) = made.kernelllm.programs
    other = program.source.replace("        return mul", "        return (1 + (x.dtype != torch.float32)) * mul")
    assert other != program.source
    wrong = KernelModule(Gated().eval(), [dataclasses.replace(program, source=other, tried=set())])
    wrong(x.float())
    wrong.to(dtype)
    with pytest.warns(KernelsNotUsed, match="float16: output"):
        torch.testing.assert_close(wrong(x), wrong.kernelllm.original(x))
    assert wrong.kernelllm.kernel_calls == 1


@torch.no_grad()
def test_both_are_one_module_in_every_way_that_weights_are_handled(net: Net) -> None:
    made, x = with_kernels(net, (torch.randn(6, 4),)), torch.randn(5, 4)
    assert list(made.state_dict()) == list(net.state_dict())
    assert [id(p) for p in made.parameters()] == [id(p) for p in net.parameters()]
    other = Net()
    made.load_state_dict(other.state_dict(), assign=True)
    net.second.weight = net.first.weight  # which assigning takes apart
    net.shift.mul_(2)
    net.norm.running_mean.add_(1)
    same(made(x), net(x))
    made.double().float()
    same(made(x), net(x))
    stored = io.BytesIO()
    torch.save(made, stored)
    stored.seek(0)
    for twin in (copy.deepcopy(made), torch.load(stored, weights_only=False)):
        twin.first.weight.add_(1)
        same(twin(x), twin.kernelllm.original(x))
        assert twin.kernelllm.kernel_calls == made.kernelllm.kernel_calls + 1
        assert not torch.equal(twin.first.weight, net.first.weight)
    same(made(x), net(x))
    assert not made.kernelllm.original_calls


def test_modes_and_gradients(net: Net) -> None:
    made, x = with_kernels(net, (torch.randn(6, 4),)), torch.randn(6, 4)
    with pytest.raises(RuntimeError, match="for inference"):
        made(x)["out"].sum().backward()
    assert made.train() is made
    assert net.training
    with pytest.warns(KernelsNotUsed, match="train"):
        made(x)["out"].sum().backward()
    assert net.first.weight.grad is not None
    made.kernelllm.programs[0].differentiable = True
    net.zero_grad()
    made.eval()(x)["out"].sum().backward()
    assert net.first.weight.grad is not None
    assert made.kernelllm.kernel_calls == 2
    made.kernelllm.programs[0].differentiable = False
    assert made(x.requires_grad_())["out"].sum().backward() is None
    assert made.kernelllm.kernel_calls == 2


@torch.no_grad()
def test_layers_inside_of_a_fused_one_have_a_mode_too() -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.5, batch_first=True).eval(), torch.randn(2, 3, 8)
    made = with_kernels(layer, (x,))
    torch.testing.assert_close(made(x), layer(x))
    made.train()
    with pytest.warns(KernelsNotUsed, match=r"train\(\) mode"):
        made(x)
    assert made.kernelllm.kernel_calls == 1


def test_train_mode_updates_running_statistics_as_torch_does(net: Net) -> None:
    twin, x = copy.deepcopy(net).train(), torch.randn(6, 4)
    before = net.norm.running_mean.clone()
    made = with_kernels(net, (x,), train=True)
    assert torch.equal(net.norm.running_mean, before)
    with torch.no_grad():
        same(made.train()(x), twin(x))
    torch.testing.assert_close(dict(made.named_buffers()), dict(twin.named_buffers()))
    assert made.kernelllm.kernel_calls == 1


@torch.no_grad()
def test_changes_that_kernels_would_not_see_go_to_the_original(net: Net) -> None:
    made, x = with_kernels(net, (torch.randn(6, 4),)), torch.randn(6, 4)
    handle = net.first.register_forward_hook(lambda module, args, output: output + 1)
    with pytest.warns(KernelsNotUsed, match="hooks"):
        same(made(x), net(x))
    handle.remove()
    net.register_forward_hook(lambda module, args, output: {**output, "more": 1})
    assert made(x)["more"] == 1  # the module's own hooks run around both
    assert made.kernelllm.kernel_calls == 1
    net.norm.eps = 1.0
    same(made(x), net(x))
    same(copy.deepcopy(made)(x), net(x))
    net.norm.eps = 1e-5
    net.first = nn.Linear(4, 4)
    same(made(x), net(x))
    net.first.forward = lambda x: x * 0  # type: ignore[method-assign]
    same(made(x), net(x))
    assert made.kernelllm.original_calls["a submodule or a plain attribute was changed"] == 3


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    nested: dict[str, list[float]] = dataclasses.field(default_factory=lambda: {"more": [3.0]})


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


SHIFT = 1.0
flags = types.ModuleType("flags")
flags.LEVEL = 1.0  # type: ignore[attr-defined]


class Settings:
    bend = 0.5


NESTED = Config()


def shifted(x: torch.Tensor) -> torch.Tensor:
    return (x + SHIFT) * Settings.bend + NESTED.scale + flags.LEVEL


class Configured(nn.Module):
    """What it computes hangs on values and tensors that attributes of attributes hold, its class, and globals."""

    power = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.config, self.factors, self.tensors, self.act = Config(), {"last": 0.5}, [torch.randn(4)], torch.relu
        self.slotted, self.array, self.number, self.more = Slotted(2.0), np.ones(2), np.float32(2), []
        self.leaky, self.hidden = functools.partial(nn.functional.leaky_relu, negative_slope=0.5), [nn.Linear(4, 4, bias=False)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.leaky(shifted(self.hidden[0](x)) * self.slotted.value * float(self.array[0]) * float(self.number)) * self.power
        x = self.act(x * self.config.scale * self.config.nested["more"][0] * self.factors["last"]) + self.tensors[0]
        return sum(self.more, x)


CHANGES: dict[str, Callable[[Configured], None]] = {
    "a class's attribute": lambda net: setattr(type(net), "power", 3.0),
    "an attribute in the class's place": lambda net: setattr(net, "power", 4.0),
    "a global": lambda net: globals().update(SHIFT=2.0),
    "a global function": lambda net: globals().update(shifted=lambda x: x),
    "a global class": lambda net: setattr(Settings, "bend", 0.25),
    "a global object": lambda net: setattr(NESTED, "scale", 0.25),
    "an imported module": lambda net: setattr(flags, "LEVEL", 0.25),
    "a slot": lambda net: setattr(net.slotted, "value", 3.0),
    "an array": lambda net: net.array.__setitem__(0, 3.0),
    "a number of NumPy": lambda net: setattr(net, "number", np.float32(3)),
    "an empty list": lambda net: net.more.append(1.0),
    "a function's argument": lambda net: net.leaky.keywords.update(negative_slope=0.1),
    "a module in a list": lambda net: setattr(net.hidden[0], "weight", nn.Parameter(torch.ones(4, 4))),
    "a bias that was None": lambda net: setattr(net.hidden[0], "bias", nn.Parameter(torch.ones(4))),
    "a field": lambda net: setattr(net.config, "scale", 5.0),
    "an object": lambda net: setattr(net, "config", Config(7.0)),
    "a member of a list": lambda net: net.config.nested["more"].__setitem__(0, 4.0),
    "a dictionary": lambda net: net.factors.update(last=8.0),
    "a tensor": lambda net: net.tensors.__setitem__(0, torch.randn(4)),
    "a function": lambda net: setattr(net, "act", torch.tanh),
}


@torch.no_grad()
def test_what_attributes_hold_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    original, x = Configured(), torch.randn(5, 4)
    first = with_kernels(original, (torch.randn(6, 4),))
    first.kernelllm.original.tensors[0].add_(1)
    torch.testing.assert_close(first(x), original(x))
    assert first.kernelllm.kernel_calls == 1
    for what, change in CHANGES.items():
        made = copy.deepcopy(first)
        with monkeypatch.context() as patched:
            for owner, name, value in ((Configured, "power", 2.0), (Settings, "bend", 0.5), (NESTED, "scale", 2.0), (flags, "LEVEL", 1.0)):
                patched.setattr(owner, name, value)
            for name in ("SHIFT", "shifted"):
                patched.setitem(globals(), name, globals()[name])
            change(made.kernelllm.original)
            torch.testing.assert_close(made(x), made.kernelllm.original(x), msg=what)
        assert made.kernelllm.kernel_calls == 1, what


@torch.no_grad()
def test_traces_modes_and_types_that_kernels_do_not_see() -> None:
    net, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).eval(), torch.randn(3, 4)
    net[1].weight = net[0].bias
    made = with_kernels(net, (x,))
    traced = torch.jit.trace(made, x, check_trace=False)
    torch.testing.assert_close(traced(x + 1), net(x + 1))
    with FlopCounterMode(display=False) as counted, PlusOne():
        torch.testing.assert_close(made(x), net(x))
    assert counted.get_total_flops() > 0
    negative = torch._neg_view(x)
    assert negative.is_contiguous()
    torch.testing.assert_close(made(negative), net(negative))
    with torch.device("cpu"):
        made(x)
    assert made.kernelllm.kernel_calls == 1
    net[0].weight.data = net[0].weight.data.double()
    with pytest.raises(RuntimeError, match="dtype"):
        made(x)
    net.float()
    net[1].bias.data = torch.ones(1).expand(4)
    torch.testing.assert_close(made(x), net(x))
    net[1].weight = nn.Parameter(torch.zeros(4))  # two parameters now
    torch.testing.assert_close(made(x), net(x))
    assert "parameters or buffers of several types" in made.kernelllm.original_calls
    assert made.kernelllm.kernel_calls == 1
    del made[0].bias
    with pytest.raises(AttributeError, match="bias"):
        made(x)


@torch.no_grad()
class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.inner = nn.Parameter(torch.randn(4)), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x)) * self.weight


def test_scripts_take_the_original_and_what_cannot_be_done_is_said() -> None:
    net, x = Gate().eval(), torch.randn(3, 4)
    fast = with_kernels(net, (x,))
    torch.testing.assert_close(torch.jit.script(nn.Sequential(fast))(x), net(x))
    with pytest.raises(UsageError, match="cannot trace a module with kernels itself"):
        torch.fx.symbolic_trace(fast)
    with pytest.raises(UsageError, match="takes no parametrization itself"):
        nn.utils.parametrize.register_parametrization(fast, "weight", nn.Tanh())


def test_the_first_call_draws_no_random_numbers() -> None:
    fast = with_kernels(Gate().eval(), (torch.randn(3, 4),))
    program = fast.kernelllm.programs[0]
    program.source = program.source.replace("super().__init__()", "super().__init__(); torch.rand(9)")
    torch.manual_seed(0)
    fast(torch.zeros(3, 4))
    drawn = torch.rand(3)
    torch.manual_seed(0)
    assert fast.kernelllm.kernel_calls == 1
    assert torch.equal(torch.rand(3), drawn)


def test_another_default_dtype_is_what_new_tensors_have() -> None:
    class Ramp(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.arange(x.shape[-1]) * 0.5

    x = torch.randn(3, 4)
    made = with_kernels(Ramp(), (x,))
    torch.set_default_dtype(torch.float64)
    try:
        assert made(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert made(x).dtype is torch.float32
    assert made.kernelllm.kernel_calls == 1


class PlusOne(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result + 1 if func is nn.functional.linear else result


def test_code_that_is_put_around_layers_or_tensors_is_not_dropped(net: Net) -> None:
    made, x, seen = with_kernels(net, (torch.randn(6, 4),)), torch.randn(6, 4), []
    handles = [net.second.register_full_backward_hook(lambda *_: seen.append("backward"))]
    made.kernelllm.programs[0].differentiable = True
    with pytest.warns(KernelsNotUsed, match="hooks"):
        made(x)["out"].sum().backward()
    handles[0].remove()
    handles.append(register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__)))
    made(x)
    handles[1].remove()
    assert {"backward", "Linear"} <= set(seen)
    both = torch.func.vmap(lambda t: made(t)["out"])(torch.stack([x, x + 1]))
    torch.testing.assert_close(both, torch.stack([net(x)["out"], net(x + 1)["out"]]))
    net.second.__class__ = type("Other", (nn.Linear,), {"forward": lambda self, x: x * 0})
    same(made(x), net(x))
    assert made.kernelllm.kernel_calls == 0
    net.second.__class__ = nn.Linear
    same(made(x), net(x))
    assert made.kernelllm.kernel_calls == 1


def test_hooks_that_transformers_leaves_once_hidden_states_were_asked_for(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    capturing: Any = types.ModuleType("transformers.utils.output_capturing")
    capturing._active_collector = contextvars.ContextVar("collector", default=None)
    monkeypatch.setitem(sys.modules, capturing.__name__, capturing)

    def capture(module: nn.Module, args: Any, output: Any) -> None:
        if (found := capturing._active_collector.get()) is not None:
            found.append(output)

    capture.__module__ = capturing.__name__
    net.first.register_forward_hook(capture)
    check_module(net)
    fast, x, found = with_kernels(net, (torch.randn(3, 4),)), torch.randn(3, 4), list[Any]()
    fast(x)
    assert fast.kernelllm.kernel_calls == 1
    token = capturing._active_collector.set(found)
    fast(x)
    assert (fast.kernelllm.kernel_calls, len(found)) == (1, 1)
    capturing._active_collector.reset(token)
    net.first.register_forward_hook(lambda *_: None)
    fast(x)
    assert fast.kernelllm.kernel_calls == 1


def test_hooks_and_replicas_of_the_whole() -> None:
    grads: list[Any] = []
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    made, twin = with_kernels(net, (x,)), copy.deepcopy(net)
    made.kernelllm.programs[0].differentiable = True
    for module in (made.eval(), twin):
        module.register_full_backward_hook(lambda module, given, came: grads.append(given))
        module(x.clone().requires_grad_()).sum().backward()
    torch.testing.assert_close(*grads)
    assert made.kernelllm.kernel_calls == 1
    replica = made._replicate_for_data_parallel()  # nn.DataParallel takes parameters off it
    assert (type(replica), len(list(net.parameters()))) == (nn.Sequential, 2)


class Counting(nn.Module):
    """Writes into an input and into a buffer, through views."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.chunk(2)[1].add_(x[2:])
        self.seen[0] += 1
        return cache.sum(-1)


def test_a_forward_that_writes_is_never_done_twice() -> None:
    net, x, caches = Counting(), torch.ones(4, 3), (torch.zeros(4, 3), torch.zeros(4, 3))
    made = with_kernels(net, (x, caches[0]))
    assert (net.seen[0], caches[0].sum()) == (0, 0)
    torch.testing.assert_close(made(x, caches[0]), Counting()(x, caches[1]))
    torch.testing.assert_close(*caches)
    with pytest.warns(KernelsNotUsed, match="not contiguous"):
        made(x, torch.zeros(3, 4).t())
    assert net.seen[0] == 2
    program = made.kernelllm.programs[0]
    head, results, tail = program.source.rpartition("        return ")
    failing = dataclasses.replace(program, source=f"{head}        torch.tensor([1.0]).view(2)\n{results}{tail}")
    with pytest.raises(RuntimeError, match="shape"):
        KernelModule(net, [failing])(x, caches[0])
    assert net.seen[0] == 3


@torch.no_grad()
def test_errors_of_a_file_and_wrong_results_end_at_the_original(net: Net) -> None:
    x = torch.randn(6, 4)
    made = with_kernels(net, (x,))
    program = made.kernelllm.programs[0]
    guard = '        if x.shape[0] > 6:\n            raise ValueError("too long")\n'
    program.source = program.source.replace("        if self.training", f"{guard}        if self.training")
    made = KernelModule(net, [program])
    same(made(x), net(x))
    with pytest.warns(KernelsNotUsed, match="too long"):
        same(made(torch.cat([x, x])), net(torch.cat([x, x])))
    result = kernelllm.check(program.source.replace("class ModelNew", "class Other"), net, x)
    assert result.best is None
    with pytest.warns(KernelsNotUsed, match="no kernels were verified"):
        same(result.module(x), net(x))
    assert "Written for eval() mode" in repr(result)
    assert "<table>" in result._repr_html_()


def test_a_checkpoint_may_end_its_recomputation_inside_of_the_kernels() -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).train(), torch.randn(3, 4)
    graph = captured(net, input_sets(net, x)[0])
    source = problem_of(net, graph, "net").source.replace("class Model(", "class ModelNew(")
    made = KernelModule(net, [LiveProgram(source, graph.signature, graph.output, graph.constants, differentiable=True)])
    torch.utils.checkpoint.checkpoint(made, x, use_reentrant=False).sum().backward()
    found = [p.grad for p in net.parameters()]
    assert all(torch.equal(f, g) for f, g in zip(found, torch.autograd.grad(net(x).sum(), list(net.parameters())), strict=True))
    assert not made.kernelllm.original_calls


class ByLargest(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.abs().max().item()


def test_numbers_read_off_tensors_stay_in_the_kernels() -> None:
    torch.manual_seed(0)
    result = kernelllm.optimize(ByLargest().eval(), torch.randn(64, 128))
    assert result.best is not None
    assert (result.best.verdict.correct, result.best.verdict.coverage) == (True, 1)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    more: list[torch.Tensor]


class Odd(nn.Module):
    """Returns and takes what ``kind`` says."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any, extra: Any = None) -> Any:
        y = self.linear(x["x"] if isinstance(x, dict) else x)
        return {"dataclass": lambda: Output(y, [y + 1]), "generator": lambda: (row for row in y), "fails": lambda: y.nope,
                "values": lambda: y if y.sum() > 0 else -y}.get(self.kind, lambda: y)()  # fmt: skip


@torch.no_grad()
def test_dataclasses_and_nested_arguments_work() -> None:
    x = torch.randn(3, 4)
    result = with_kernels(Odd("dataclass"), ({"x": x},))({"x": x})
    assert isinstance(result, Output)
    torch.testing.assert_close(result.more[0], result.logits + 1)
    lazy = nn.Sequential(nn.ReLU(), nn.LazyLinear(2), nn.Identity())
    materialize(lazy, ((x,), {}))
    made = with_kernels(lazy, (x,))
    torch.testing.assert_close(made(x), lazy(x))
    assert (made[1], len(made), made.kernelllm.kernel_calls) == (lazy[1], 3, 1)
    made[2] = nn.Tanh()
    del made[0]
    torch.testing.assert_close(made(x), lazy(x))
    assert (type(lazy[1]), len(lazy), made.kernelllm.kernel_calls) == (nn.Tanh, 2, 1)


@pytest.mark.parametrize(
    ("module", "inputs", "error", "text"),
    [
        (lambda: Odd("plain"), None, UsageError, "example inputs"),
        (lambda: Odd("plain"), (1, 2, 3), UsageError, "do not fit Odd.forward"),
        (lambda: Odd("plain"), (x for x in "ab"), UsageError, "generator"),
        (lambda: Odd("plain"), (torch.ones(2, 4), object()), UsageError, "neither a tensor nor a number"),
        (lambda: Odd("plain").to("meta"), torch.ones(2, 4), UsageError, "meta"),
        (lambda: Odd("plain"), torch.ones(2, 4, device="meta"), UsageError, "on meta and the module on cpu"),
        (lambda: Odd("generator"), torch.ones(2, 4), UsageError, "a generator"),
        (lambda: Odd("fails"), torch.ones(2, 4), ProblemError, "AttributeError"),
        (lambda: Odd("values"), torch.ones(2, 4), CaptureError, "Odd cannot be captured"),
        (lambda: torch.jit.script(nn.Linear(4, 4)), torch.ones(2, 4), UsageError, "TorchScript"),
    ],
)
def test_what_a_newcomer_meets_is_one_line(module: Callable[[], nn.Module], inputs: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        kernelllm.optimize(module(), inputs)
    assert "\n" not in str(caught.value)


def test_hooks_are_refused(net: Net) -> None:
    net.first.register_forward_hook(lambda *_: None)
    with pytest.raises(UsageError, match=r"first has hooks"):
        check_module(net)


def test_the_problem_stands_alone_and_knows_its_mode(net: Net) -> None:
    with in_mode(net, False):
        problem = problem_of(net, captured(net, ((torch.randn(6, 4),), {})), "net")
    model = Instance(problem).model(0)
    model.load_state_dict(net.state_dict())
    x = torch.randn(5, 4)
    torch.testing.assert_close(model(x)[0], net(x)["out"])
    with pytest.raises(RuntimeError, match=r"eval\(\)"):
        model.train()(x)


class Norm(nn.Module):
    def __init__(self, back: bool) -> None:
        super().__init__()
        self.back, self.weight = back, nn.Parameter(torch.ones(16))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        wide = input.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return wide.to(input.dtype) if self.back else wide.sin()


def test_a_graph_of_tied_weights_is_for_half_precision_too() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[2].weight = module[0].weight
    assert not captured(module, input_sets(module, torch.randn(3, 4))[0]).float32_alone


def test_a_graph_is_for_float32_where_the_module_converts_back_to_the_type_of_its_input() -> None:
    x = torch.randn(6, 16)
    for back in (True, False):
        module = Norm(back)
        with in_mode(module, False):
            model = Instance(problem_of(module, captured(module, ((x,), {})), "norm")).model(0)
        model.load_state_dict(module.state_dict())
        torch.testing.assert_close(model(x), module(x))
        if back:
            with pytest.raises(ValueError, match="float32"):
                model.half()(x.half())
        else:
            assert model.half()(x.half()).dtype is module.half()(x.half()).dtype


def test_guards_that_torch_cannot_solve_leave_the_batch_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """SymPy gives up on some that images have (Segformer's)."""
    export = torch.export.export

    def unsolved(*args: Any, dynamic_shapes: Any, **options: Any) -> Any:
        if sum(dim is torch.export.Dim.AUTO for dim in dynamic_shapes[0][0].values()) > 1:
            raise NotImplementedError("The inequality cannot be solved")
        return export(*args, dynamic_shapes=dynamic_shapes, **options)

    monkeypatch.setattr(torch.export, "export", unsolved)
    module = nn.Linear(4, 4)
    signature = captured(module, input_sets(module, torch.randn(3, 5, 4))[0]).signature
    assert not signature.unfit(module, input_sets(module, torch.randn(6, 5, 4))[0])
    assert signature.unfit(module, input_sets(module, torch.randn(3, 6, 4))[0])


def test_guards_with_functions_of_sizes_are_looked_at() -> None:
    def half(x: torch.Tensor) -> torch.Tensor:
        return x[: round(x.shape[0] * 0.5)] + 1.0

    class Half(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return half(x) * math.ceil(float(x.shape[1] // 8) - 0.5) if math.ceil(float(x.shape[1] // 8) - 0.5) >= 2 else x

    signature = captured(Half(), input_sets(Half(), torch.randn(12, 40))[0]).signature
    assert not signature.unfit(Half(), input_sets(Half(), torch.randn(20, 40))[0])


class Memory(nn.Module):
    """Keeps something of each call for the next one, where ``kind`` says."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear, self.many, self.one = kind, nn.Linear(4, 4), [torch.zeros(4)], torch.zeros(4)
        self.calls = 0
        self.register_buffer("buffer", torch.zeros(4))
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) + self.many[0] + self.one + self.buffer + (0 if self.last is None else self.last)
        if self.kind == "last":
            self.last = y.mean(0)
        elif self.kind == "one":
            self.one.copy_(y.mean(0))
        elif self.kind == "many":
            self.many[0] = y.mean(0)
        elif self.kind == "buffer":
            self.buffer = y.mean(0)
        elif self.kind == "table" and self.last is None:
            self.last = torch.ones(4)
        elif self.kind == "told":
            self.told = y.mean(0)
        elif self.kind in ("calls", "counter"):
            self.calls += 1
            y = y * self.calls if self.kind == "calls" else y
        return y


@torch.no_grad()
@pytest.mark.parametrize("kind", ["last", "one", "many", "buffer", "calls"])
def test_what_a_call_keeps_for_the_next_is_refused_and_put_back(kind: str) -> None:
    module, x = Memory(kind), torch.randn(3, 4)
    untouched, before = copy.deepcopy(module), {n: v.clone() for n, v in module.state_dict().items()}
    with pytest.raises(CaptureError, match=rf"keeps {kind}"):
        captured(module, ((x,), {}))
    torch.testing.assert_close(dict(module.state_dict()), before)
    for _ in range(2):
        torch.testing.assert_close(module(x), untouched(x))


@torch.no_grad()
def test_what_is_kept_once_is_no_memory_and_what_is_left_for_others_is_told() -> None:
    x = torch.randn(3, 4)
    for kind, left in (("table", ()), ("told", ("told",))):
        module = Memory(kind)
        assert captured(module, ((x,), {})).left == left
        assert all(type(v) is torch.Tensor for v in (module.last, getattr(module, "told", None)) if v is not None)


@pytest.mark.gpu
def test_on_a_gpu_kernels_run_there_and_the_original_on_the_cpu() -> None:
    net, x = nn.Sequential(nn.Linear(64, 64), nn.GELU()).cuda(), torch.randn(8, 64, device="cuda")
    made = kernelllm.optimize(net, x).module
    with torch.no_grad():
        torch.testing.assert_close(made(x), net(x), rtol=1e-3, atol=1e-3)
        assert made.kernelllm.kernel_calls == 1
        made.cpu()
        with pytest.warns(KernelsNotUsed, match="move it to 'cuda'"):
            torch.testing.assert_close(made(x.cpu()), net(x.cpu()))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_hooks_that_make_a_layer_s_weight_are_captured_with_it(normed: Any) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(normed(nn.Linear(6, 4)), nn.ReLU()).eval(), torch.randn(3, 6)
    check_module(net)
    made = with_kernels(net, x)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(made(x), net(x))
            list(net.parameters())[1].mul_(2)
        assert made.kernelllm.kernel_calls == 2
        net[0].register_forward_pre_hook(lambda _, given: (2 * given[0],))
        torch.testing.assert_close(made(x), net(x))
    assert made.kernelllm.kernel_calls == 2
    with pytest.raises(UsageError, match="has hooks"):
        check_module(net)


def _deprecated(name: str) -> None:
    """Reaches a good part of Python's library and of NumPy."""
    caller = inspect.getouterframes(inspect.currentframe())[1]
    raise DeprecationWarning(f"{name} of {caller.filename}: {np.tri(3)} {np.full(2, math.nan)}")


class Deprecates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fill, self.numbers = math.nan, [math.nan, np.float32(2)]

    def forward(self, x: torch.Tensor, old: Any = None) -> torch.Tensor:
        if old is not None:
            _deprecated("old")
        return torch.nan_to_num(x * self.numbers[1], nan=0.0).relu()


def test_what_python_and_numpy_hold_is_not_looked_at_in_each_call() -> None:
    net, x = Deprecates().eval(), torch.randn(3, 6)
    watched = Watched(net.modules())
    assert not watched.changed_names()
    assert sum(len(places[0]) for places in (watched._equal, watched._same)) < 20
    made = with_kernels(net, x)
    made(x)
    assert made.kernelllm.kernel_calls == 1
    net.numbers[1] = np.float32(3)
    torch.testing.assert_close(made(x), net(x))
    assert made.kernelllm.kernel_calls == 1


class ReadsByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * getattr(self.first, "out_channels")  # noqa: B009


def test_of_torch_s_layers_what_code_reads_is_looked_at_in_each_call() -> None:
    layer = nn.Conv2d(3, 4, 3)
    watched = Watched([layer])
    layer.out_channels = 5
    assert not watched.changed()
    layer.stride = (2, 2)
    assert watched.changed()
    net = ReadsByName()
    watched = Watched(net.modules())
    net.first.out_channels = 5
    assert watched.changed()


@pytest.mark.parametrize("layer", [nn.LSTM(4, 3, 2, batch_first=True), nn.GRU(4, 3, bidirectional=True, batch_first=True), nn.RNN(4, 3)])
def test_recurrent_layers_are_captured_for_every_number_of_steps(layer: nn.Module) -> None:
    signature = captured(layer.eval(), ((torch.randn(2, 5, 4),), {})).signature
    assert [isinstance(size, str) for size in signature.shapes[0]] == [True, True, False]


class Shared(collections.UserDict[str, Any]):
    """A dictionary that layers hand on, as that of shared keys and values in Gemma 3n."""


@dataclasses.dataclass
class Carried:
    state: torch.Tensor
    steps: list[torch.Tensor]


class Filling(nn.Module):
    """Leaves what it computes in an argument, for the caller or the next layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, into: Any) -> torch.Tensor:
        hidden = self.layer(x)
        if isinstance(into, list):
            into.append(hidden)
        elif isinstance(into, Carried):
            into.state = into.state * 2 + hidden
            into.steps.append(hidden)
        else:
            into["seen"] = (hidden, into.pop("first", None))
        return hidden.sum(-1)


@pytest.mark.parametrize(
    "given",
    [
        lambda: [],
        lambda: [torch.ones(3)],
        lambda: {"first": torch.ones(2), "other": [torch.zeros(1)]},
        lambda: Shared(first=torch.ones(2)),
        lambda: collections.OrderedDict(),
        lambda: Carried(torch.ones(4), []),
    ],
)
def test_what_a_forward_leaves_in_its_arguments_is_there_for_the_caller(given: Callable[[], Any]) -> None:
    net = Filling().eval()
    module = with_kernels(net, (torch.randn(2, 4), given()))
    for rows in (2, 5):
        x, mine, theirs = torch.randn(rows, 4), given(), given()
        kept = mine["other"] if "other" in getattr(mine, "keys", list)() else None
        torch.testing.assert_close(module(x, mine), net(x, theirs))
        mine, theirs = (vars(v) if isinstance(v, Carried) else v for v in (mine, theirs))
        assert type(mine) is type(theirs)
        torch.testing.assert_close(*((dict(v) if isinstance(v, Shared) else v) for v in (mine, theirs)))
        assert kept is None or mine["other"] is kept
    assert module.kernelllm.kernel_calls == 2


def test_a_forward_that_leaves_an_object_in_its_argument_is_refused() -> None:
    class Leaving(Filling):
        def forward(self, x: torch.Tensor, into: Any) -> torch.Tensor:
            into["made"] = object()
            return self.layer(x)

    with pytest.raises(UsageError, match="leaves in an argument"):
        with_kernels(Leaving(), (torch.randn(2, 4), {}))
