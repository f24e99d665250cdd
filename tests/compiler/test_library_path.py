"""A graph of fixed sizes lowered as torch.compile lowers it: its layouts, its library calls, its attention."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import interpreted
import pytest
import torch
import triton
from compiled import IMPORTS, LINEAR, captured, problem
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.compiler.capture.rewrites import faster_convolutions
from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.emit import launcher
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate, Problem
from kernelllm.judge import Judge

LIBRARY = Options(extern="allow", symbolic=False)

NETWORK = """
class Model(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, hidden, 3, padding=1, bias=False), nn.BatchNorm2d(hidden)
        self.again = nn.Conv2d(hidden, channels, 3, padding=1)
        self.eval().double().float()
    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        y = self.again(y).flatten(2)
        return torch.softmax(y @ y.transpose(-2, -1) / 2.0, -1) @ y + x.flatten(2)
batch, channels, hidden, size = 2, 8, 72, 3
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return [channels, hidden]
"""

RUN = """
import importlib.util, torch
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND, Problem
from kernelllm.judge.worker import setup
from kernelllm.problems.instance import Instance
instance = Instance(Problem(name="network", source=open({problem!r}).read()))
reference, (x,), (sizes, _) = instance.model(0), instance.inputs(1), instance.init_inputs(0)
with torch.no_grad():
    first = reference(x)
    changed = {{k: v * 1.5 if v.is_floating_point() else v for k, v in reference.state_dict().items()}}
    before = {{k: v.clone() for k, v in reference.state_dict().items()}}
    reference.load_state_dict(changed)
    second = reference(x)
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
spec = importlib.util.spec_from_file_location("candidate", {candidate!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model = module.ModelNew(*sizes)
assert model.has_known_sizes and not module.ModelNew(sizes[0], sizes[1] + 1).has_known_sizes
with torch.no_grad():
    for state, wanted in ((before, first), (changed, second)):
        model.load_state_dict(state)
        torch.testing.assert_close(model(x), wanted, atol=1e-4, rtol=1e-4)
    made = model.prepared()
    assert all(a is b for a, b in zip(made, model.prepared()))
    model.conv.weight = torch.nn.Parameter(before["conv.weight"] * 1.5)
    assert made[0] is not model.prepared()[0]
    torch.testing.assert_close(model(x), second, atol=1e-4, rtol=1e-4)
print("ran")
"""


def test_known_sizes_take_a_path_with_channels_last_convolutions_whose_weights_are_reordered_when_they_change(tmp_path: Path) -> None:
    text = compiled(problem(NETWORK), Options(fixed=True))
    assert text.count("memory_format=torch.channels_last") >= 4
    assert "FIXED_SIZES" not in text
    assert 'sources = (state_at(self, "conv", "weight"), state_at(self, "again", "weight"))' in text
    (tmp_path / "problem.py").write_text(IMPORTS + NETWORK)
    (tmp_path / "candidate.py").write_text(text)
    script = RUN.format(problem=str(tmp_path / "problem.py"), candidate=str(tmp_path / "candidate.py"))
    assert interpreted.run(script).strip().endswith("ran")


WRITTEN_OUT = """
class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v + 1.0
batch, heads, steps, width = 2, 4, 48, 64
def get_inputs(): return [torch.rand(batch, heads, steps, width, dtype=torch.bfloat16) for _ in range(3)]
def get_init_inputs(): return []
"""


def test_attention_that_is_written_out_becomes_torchs() -> None:
    text = compiled(problem(WRITTEN_OUT), LIBRARY)
    assert "scaled_dot_product_attention(" in text
    assert "torch.bmm" not in text


def test_the_judge_runs_both_paths(hybrid: Judge) -> None:
    candidate = next(Compiler(extern="auto").write(problem(LINEAR), 1))
    assert candidate.params == {"fixed": True, "mixed": True}
    assert "forward_at_known_sizes" in candidate.source
    verdict = hybrid.judge(problem(LINEAR), candidate)
    assert verdict.correct, verdict.message
    assert {s.label for s in verdict.shapes} > {"original"}


NAMES = """
class Model(nn.Module):
    def forward(self, known, out, grid, check):
        return known * out + torch.sigmoid(grid) * check
def get_inputs(): return [torch.rand(24, 36) for _ in range(4)]
def get_init_inputs(): return []
"""


def test_arguments_may_have_names_that_the_file_uses(hybrid: Judge) -> None:
    candidate = next(Compiler(extern="auto").write(problem(NAMES), 1))
    assert "if known_2:" in candidate.source
    verdict = hybrid.judge(problem(NAMES), candidate)
    assert verdict.correct, verdict.message


ACROSS = """
class Model(nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).mean(1, keepdim=True) + 1e-5)
batch, channels, size = 16, 64, 128
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return []
"""


def test_a_sum_across_memory_is_taken_for_many_neighbours_at_once() -> None:
    assert "BLOCK_ROWS=32, BLOCK_COLS=64" in compiled(problem(ACROSS), LIBRARY)


PAIRS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(4 * width, 8)
    def forward(self, x, y):
        pairs = torch.cat((x, y[:, None].expand_as(x), x - y[:, None], x * y[:, None]), 2)
        return self.fc(pairs), (x * x).sum((0, 1))
batch, length, width = 8, 256, 16
def get_inputs(): return [torch.rand(batch, length, width), torch.rand(batch, width)]
def get_init_inputs(): return [width]
"""


def test_parts_side_by_side_are_one_kernel_and_blocks_that_divide_a_size_need_no_mask() -> None:
    text = compiled(problem(PAIRS), Options(fixed=True, mixed=True))
    path = text[text.index("_2_kernel(") :]
    assert path.count("viewed_4_ptr") == 2
    assert "program_id < " not in path  # Inductor's kernel for several parts has a grid of its own
    assert " < n_cols" not in path


TUNED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.register_buffer("seen", torch.zeros(1024, width))
    def forward(self, x, y):
        self.seen.add_(x[:1024] * y[:1024])
        return torch.sigmoid(self.fc(x)) * y, x[:4].sigmoid()
rows, width = 2048, 192
def get_inputs(): return [torch.rand(rows, width), torch.rand(rows, width)]
def get_init_inputs(): return [width]
"""


def test_the_mixed_path_tunes_what_inductor_would_and_neither_small_kernels_nor_those_that_write_over_what_they_read() -> None:
    text = compiled(problem(TUNED), Options(fixed=True, mixed=True))
    kernels = re.findall(r"(tune\(\n(?:    .*\n)+\)\n@triton\.jit|@triton\.jit)(?:\(.*\))?\ndef (\w+)\(", text)
    tuned = [name for decorator, name in kernels if decorator.startswith("tune")]
    assert len(tuned) == 1
    assert "sigmoid" in tuned[0]
    other, path = text.split("def forward_at_known_sizes")
    assert f"{tuned[0]}[lambda meta: " in path
    assert f"{tuned[0]}[" not in other
    assert path.count("num_warps=") == 2
    asked = compiled(problem(TUNED), Options(fixed=True, autotune=True))
    assert asked.count("@triton.autotune(") == 1


COUNTED = """
class Model(nn.Module):
    def forward(self, x, keep):
        rows = torch.where(keep)[0]
        return torch.tanh(x[rows]) @ x[:64] + 1.0, torch.sigmoid(x) @ x[:64] + x[:, :64].exp()
rows, width = 4096, 64
def get_inputs(): return [torch.rand(rows, width), torch.rand(rows) > 0.5]
def get_init_inputs(): return []
"""


def test_a_kernel_of_a_counted_size_is_not_tuned() -> None:
    """It would be tuned again for each count."""
    text = compiled(problem(COUNTED), Options(fixed=True, mixed=True, extern="allow"))
    keys = re.findall(r"key=(.*),", text)
    assert keys
    assert set(keys) == {"[]"}


SOFTMAX = """
class Model(nn.Module):
    def forward(self, x):
        y = x @ x[: x.shape[1]]
        y = (torch.softmax(y * 0.5, -1) + y) @ x[: x.shape[1]]
        return torch.softmax(y * 0.5, -1) + y
rows, width = 96, 40
def get_inputs(): return [torch.rand(rows, width)]
def get_init_inputs(): return []
"""


def test_a_tuned_path_that_the_judge_runs_whole_is_right(hybrid: Judge) -> None:
    """Where kernels are compiled the second launch has the blocks that won, without a look at the others."""
    text = compiled(problem(SOFTMAX), Options(fixed=True, mixed=True))
    assert text.count("@triton.autotune(") == 1
    assert text.split("def forward_at_known_sizes")[1].count("_kernel[") == 2
    verdict = hybrid.judge(problem(SOFTMAX), Candidate(source=text))
    assert verdict.correct, verdict.message


PRODUCTS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = (nn.Linear(*shape, dtype=torch.bfloat16) for shape in ((width, 4 * width), (4 * width, 64)))
    def forward(self, x, y):
        return self.down(F.silu(self.up(x))) + 1.0, y @ y + 1.0
batch, width = 4096, 2048
def get_inputs(): return [torch.rand(batch, width, dtype=torch.bfloat16), torch.rand(width, width)]
def get_init_inputs(): return [width]
"""


def test_a_mixed_path_takes_templates_for_the_products_that_gain_and_leaves_the_others_to_torch() -> None:
    text = compiled(problem(PRODUCTS), Options(extern="allow", symbolic=False, mixed=True))
    assert text.count("= half_matmul(") == text.count("= matmul(") == text.count("torch.addmm(") == 1
    assert "silu_kernel" not in text
    costly = compiled(problem(PRODUCTS.replace("F.silu", "F.gelu")), Options(extern="allow", symbolic=False, mixed=True))
    assert "half_matmul(" not in costly
    assert costly.count("torch.addmm(") == 2


@pytest.mark.parametrize(
    ("window", "channels", "bias", "op"),
    [((2, 3), 3, True, "addmm"), ((2, 2, 2), 2, False, "mm"), ((3,), 16, True, "convolution")],
)
def test_convolutions_of_patches_are_products_and_those_over_one_dimension_have_two(
    window: tuple[int, ...], channels: int, bias: bool, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faster_convolutions, "_LARGE", 0)
    flat = op == "convolution"

    def forward(x: torch.Tensor, weight: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        stride, padding = ([2], [1]) if flat else (list(window), [0] * len(window))
        ones = [1] * len(window)
        return torch.ops.aten.convolution(x, weight, b if bias else None, stride, padding, ones, False, [0] * len(window), 1)

    sizes = [(2, channels, *(2 * n + 1 for n in window)), (16, channels, *window), (16,)]
    given = [torch.randint(-3, 4, size).bfloat16() for size in sizes]
    graph = make_fx(forward, tracing_mode="fake")(*given)
    faster_convolutions.rewrite(graph, Options(extern="allow", symbolic=False, mixed=True))
    graph.recompile()
    targets = [str(n.target) for n in graph.graph.nodes]
    assert targets.count(f"aten.{op}.default") == 1
    assert flat == ("aten.convolution.default" in targets)
    torch.testing.assert_close(graph(*given), forward(*given), atol=0, rtol=0)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_grouped_convolution_over_one_dimension_keeps_the_layout_of_its_neighbours(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faster_convolutions, "_LARGE", 0)

    def forward(x: torch.Tensor, weight: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.conv1d(torch.conv1d(x, weight), window, groups=groups)

    graph = make_fx(forward, tracing_mode="fake")(torch.rand(2, 16, 9), torch.rand(16, 16, 1), torch.rand(16, 16 // groups, 3))
    faster_convolutions.rewrite(graph, Options(extern="allow", symbolic=False, mixed=True))
    assert ("aten.unsqueeze.default" in {str(n.target) for n in graph.graph.nodes}) is (groups == 1)


@pytest.mark.parametrize(("length", "turned"), [(2**12, True), (2**8, False)])
def test_pointwise_convolutions_over_one_dimension_keep_the_layout_of_small_ones(length: int, turned: bool) -> None:
    def forward(x: torch.Tensor, points: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.conv1d(torch.conv1d(x, points)[:, :64], window)

    graph = make_fx(forward, tracing_mode="fake")(torch.empty(16, 512, length), torch.empty(1024, 512, 1), torch.empty(64, 64, 3))
    faster_convolutions.rewrite(graph, Options(extern="allow", symbolic=False, mixed=True))
    assert ("aten.unsqueeze.default" in {str(n.target) for n in graph.graph.nodes}) is turned


POSITIONS = """
class Model(nn.Module):
    def __init__(self, width, window, groups):
        super().__init__()
        self.conv = nn.Conv1d(width, width, window, padding=window // 2, groups=groups).bfloat16()
    def forward(self, x):
        return x + F.gelu(self.conv(x.transpose(1, 2))[..., :-1]).transpose(1, 2)
length, width, window, groups = 320, 128, 64, 4
def get_inputs(): return [torch.randn(4, length, width, dtype=torch.bfloat16)]
def get_init_inputs(): return [width, window, groups]
"""


def test_a_large_convolution_over_one_dimension_in_groups_is_a_kernel(hybrid: Judge) -> None:
    source = compiled(problem(POSITIONS), Options(extern="avoid", fixed=True, mixed=True))
    known = source.partition("def forward_at_known_sizes")[2]
    assert "conv(" in known
    assert "convolution" not in known
    verdict = hybrid.judge(problem(POSITIONS), Candidate(source=source))
    assert verdict.correct, verdict.message


PACKED = """
class Model(nn.Module):
    def __init__(self, groups, out):
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 256, (out, groups, 32), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(out, groups, 1, dtype=torch.bfloat16))
    def forward(self, x):
        weight = torch.stack((self.packed & 15, self.packed >> 4), -1).flatten(2).to(x.dtype) * self.scale
        return x @ weight.flatten(1).t()
groups, out = 32, 2048
def get_inputs(): return [torch.rand(1, 64 * groups, dtype=torch.bfloat16)]
def get_init_inputs(): return [groups, out]
"""


def test_a_row_times_packed_weights_is_one_kernel_though_scales_are_read_by_quotients() -> None:
    path = compiled(problem(PACKED), Options(extern="allow", symbolic=False, mixed=True)).partition("def forward")[2]
    assert path.count("_kernel[") == 1


TRAINED = """
class Model(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, hidden, 3, bias=False), nn.BatchNorm2d(hidden))
    def forward(self, x):
        return torch.relu(self.layers(x))
batch, channels, hidden, size = 2, 3, 8, 9
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return [channels, hidden]
"""


KEPT_SMALL = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("weight", torch.randint(-8, 8, (width, width), dtype=torch.int8))
        self.scale = nn.Parameter(torch.rand(width, 1))
    def forward(self, x):
        return torch.relu(F.linear(x, self.weight.to(x.dtype) * self.scale))
tokens, width = 32, 64
def get_inputs(): return [torch.rand(tokens, width)]
def get_init_inputs(): return [width]
"""


def test_weights_that_are_kept_small_are_not_held_in_full_beside_them() -> None:
    text = compiled(problem(KEPT_SMALL), Options(fixed=True, mixed=True))
    assert "def forward_at_known_sizes" in text
    assert "self.prepared()" not in text


def test_the_path_for_known_sizes_updates_running_statistics(hybrid: Judge) -> None:
    text = compiled(problem(TRAINED), Options(fixed=True))
    path = text.partition("def forward_at_known_sizes")[2]
    assert 'state_at(self, "layers.1", "running_mean")' in path
    verdict = hybrid.judge(problem(TRAINED), Candidate(source=text))
    assert verdict.correct, verdict.message


class Compiled:
    """Stands for what a launch gives back."""

    function, packed_metadata = "function", "metadata"

    def __init__(self, calls: list[tuple[object, ...]]) -> None:
        self.run = lambda *arguments: calls.append(("direct", *arguments))


class Kernel:
    """Stands for a kernel of Triton."""

    arg_names = ("x_ptr", "x_ptr_2", "n", "BLOCK")
    fn = staticmethod(lambda x_ptr, x_ptr_2, n, BLOCK: None)

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Compiled]:
        return lambda *arguments, **options: self.calls.append(("looked at", grid, *arguments)) or Compiled(self.calls)


class OnGpu:
    """Stands for a tensor on a GPU."""

    def __init__(self, address: int, dtype: torch.dtype = torch.float32, device: int = 0) -> None:
        self.data_ptr, self.dtype, self.get_device = lambda: address, dtype, lambda: device


WRITTEN_INTO = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
    def forward(self, p, g, m, cache, place):
        before = self.fc(p)
        m.mul_(0.9).add_(g, alpha=0.1)
        p.addcmul_(m, torch.rsqrt(g * g + 1), value=-0.01)
        cache[:, 1::2] += 1
        cache.index_copy_(0, place, before[:3])
        return before, self.fc(p), m, cache.sum(1)
rows, width = 20, 32
def get_inputs(): return [*(torch.randn(rows, width) for _ in range(3)), torch.randn(width, 40).t(), torch.tensor([4, 9, 2])]
def get_init_inputs(): return [width]
"""


def test_inputs_that_are_written_into_have_a_path_for_known_sizes(hybrid: Judge) -> None:
    """In the memory that the problem's own inputs have; in another the general path decides."""
    source = compiled(problem(WRITTEN_INTO), Options(fixed=True))
    assert ".stride() == (1, 40)" in source
    verdict = hybrid.judge(problem(WRITTEN_INTO), Candidate(source=source))
    assert verdict.correct, verdict.message


def test_a_launch_is_looked_at_again_where_numbers_types_devices_or_alignment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"functools": functools, "torch": torch, "triton": triton}
    exec(launcher.TEXT_STRAIGHT + launcher.TEXT, space)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(get_current_stream=lambda device: 70 + device))
    kernel = Kernel()
    launch = space["Launcher"](kernel)
    x, y = OnGpu(64), OnGpu(128)
    others = [OnGpu(64, torch.float16), OnGpu(68), OnGpu(64, device=1), OnGpu(64, device=1), OnGpu(64, device=-1)]  # 1 is not current
    for first, n in ((x, 4), (y, 4), (x, 5), *((other, 4) for other in others), (x, 4)):
        launch[(3, 2)](first, y, n, num_warps=4, BLOCK=8)
    assert [c[0] for c in kernel.calls] == ["looked at", "direct", "direct", *["looked at"] * 5, "direct"]  # Triton compiles 5 as 4
    assert kernel.calls[1][1:] == (3, 2, 1, 70, "function", "metadata", None, None, None, y, y, 4, 8)
    assert not any(isinstance(part, OnGpu) for key in launch.known for part in key)
    for n in (1, 1.0, True, 0.0, -0.0):  # equal to Python, but not to a kernel; the last two are of one type and go as they are
        kernel.calls.clear()
        launch[(3, 2)](x, y, n, num_warps=4, BLOCK=8)
    assert kernel.calls[0][0] == "direct"
    assert str(kernel.calls[0][-2]) == "-0.0"
    assert len(launch.known) == 2 + 3 + 1


def test_a_tuned_launch_goes_to_the_driver_with_the_blocks_that_won(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tuned(Kernel):
        configs = (SimpleNamespace(kwargs={"BLOCK": 4}), SimpleNamespace(kwargs={"BLOCK": 8}))
        best_config = configs[1]

    runtime = SimpleNamespace(Autotuner=Tuned, driver=triton.runtime.driver)
    space: dict[str, Any] = {"torch": torch, "triton": SimpleNamespace(runtime=runtime)}
    exec(launcher.TEXT_STRAIGHT + launcher.TEXT, space)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(get_current_stream=lambda device: 70))
    kernel, x, y = Tuned(), OnGpu(64), OnGpu(128)
    launch = space["Launcher"](kernel)
    for n in (33, 33, 16):
        launch[lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
    assert [c[0] for c in kernel.calls] == ["looked at", "direct", "looked at"]
    assert kernel.calls[1][1:] == (5, 1, 1, 70, "function", "metadata", None, None, None, x, y, 33, 8)


def test_launches_that_differ_in_their_tensors_alone_are_looked_at_once_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"torch": torch, "triton": triton}
    exec(launcher.TEXT_STRAIGHT + launcher.TEXT_ALIKE, space)
    current = 0
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(get_current_stream=lambda device: 70 + device))
    kernel, x, y = Kernel(), OnGpu(64), OnGpu(128)
    launch = space["AlikeLauncher"](kernel)
    for first in (x, y, OnGpu(64, torch.float16), OnGpu(68), OnGpu(64, device=1), x):
        launch[(3, 2)](first, y, 4, num_warps=4, BLOCK=8)
    assert [c[0] for c in kernel.calls] == ["looked at", "direct", *["looked at"] * 3, "direct"]
    assert kernel.calls[1][1:] == (3, 2, 1, 70, "function", "metadata", None, None, None, y, y, 4, 8)
    current = 1
    kernel.calls.clear()
    there = OnGpu(128, device=1)
    for first, second in ((OnGpu(64, device=1), there), (OnGpu(80, device=1), there), (x, y), (OnGpu(64, device=1), y)):
        launch[(3, 2)](first, second, 4, num_warps=4, BLOCK=8)
    assert [c[0] for c in kernel.calls] == ["looked at", "direct", "direct", "looked at"]  # Triton tells of a tensor that is elsewhere
    assert kernel.calls[1][4] == 71


def test_kernels_whose_launches_have_the_same_numbers_are_told_from_others() -> None:
    kernel = "@triton.jit\ndef {}_kernel(x_ptr, n, BLOCK: tl.constexpr):\n    pass"
    names = ("once", "twice", "other", "sizes", "tuned")
    host = """
once_kernel[(4,)](x, 4, BLOCK=8)
for i in range(3):
    twice_kernel[(max(1, 4),)](x.view(2, 2), 4, BLOCK=8)
twice_kernel[(max(1, 4),)](y[0], 4, BLOCK=8)
other_kernel[(4,)](x, 4, BLOCK=8)
other_kernel[(4,)](x, 5, BLOCK=8)
sizes_kernel[(n,)](x, 4, BLOCK=8)
tuned_kernel[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](x, 64)
"""
    made = launcher.wrapped([kernel.format(name) for name in names], host, always=True)
    ways = {text.split("(")[0].split()[-1]: text.split("\n")[0] for text in made if text.startswith("@")}
    alike, each = "@AlikeLauncher", "@Launcher"
    assert ways == {"once_kernel": alike, "twice_kernel": alike, "other_kernel": each, "sizes_kernel": each, "tuned_kernel": alike}


def test_gradients_of_a_convolution_in_one_dimension_stay_torch_s() -> None:
    source = """
import torch
import torch.nn as nn
size = 6
class Model(nn.Module):
    def forward(self, grad, x, weight):
        called = torch.ops.aten.convolution_backward.default(
            grad.tanh(), x.transpose(1, 2), weight, [4], [1], [1], [1], False, [0], 4, [True, True, True])
        return called[0] * 2, called[1], called[2]
def get_inputs(): return [torch.randn(size, 4, 5), torch.randn(size, 5, 4), torch.randn(4, 1, 3)]
def get_init_inputs(): return []
"""
    (candidate,) = Compiler(extern="allow").write_here(Problem(name="backward", source=source), 1, ())
    assert "convolution_backward" in candidate.source  # its input is not contiguous, and no GPU's driver is there


BIASED = """
class Model(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.bias, self.out = nn.Parameter(torch.zeros(heads, 48, 48, dtype=torch.bfloat16)), nn.Linear(64 * heads, 8, dtype=torch.bfloat16)
    def forward(self, q, k, v):
        scores = q @ k.transpose(-2, -1) * 0.5 + self.bias
        return self.out((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))
batch, heads, steps, width = 2, 4, 48, 64
def get_inputs(): return [torch.rand(batch, heads, steps, width, dtype=torch.bfloat16) for _ in range(3)]
def get_init_inputs(): return [heads]
"""


def test_attention_under_a_bias_is_a_template_whose_result_needs_no_copy() -> None:
    path = compiled(problem(BIASED), Options(fixed=True, mixed=True)).split("def forward_at_known_sizes")[1]
    assert "half_attention(" in path
    assert "attended.transpose(1, 2).view(" in path


MASKED = """
class Model(nn.Module):
    def forward(self, q, k, v, mask):
        return torch.tanh(F.scaled_dot_product_attention(q, k, v, attn_mask=MASK))
batch, heads, steps, keys = 2, 4, 48, 640
def get_inputs():
    k, v = torch.rand(2, batch, heads, keys, 64, dtype=torch.bfloat16)
    return [torch.rand(batch, heads, steps, 64, dtype=torch.bfloat16), k, v, torch.rand(SHAPE) > 0.3]
def get_init_inputs(): return []
"""
AHEAD = "mask & (torch.arange(k.shape[2], device=q.device) <= 600 + torch.arange(q.shape[2], device=q.device)[:, None])"


@pytest.mark.parametrize(("mask", "shape", "template"), [
    ("mask", "batch, 1, steps, keys", False), ("mask", "steps, keys", False), (AHEAD, "batch, 1, 1, keys", True),
    ("mask", "batch, heads, steps, keys", True),
], ids=["of pairs", "of steps", "regular", "a head"])  # fmt: skip
def test_attention_under_a_long_mask_is_cudnn_s_where_no_block_of_keys_is_left_out(mask: str, shape: str, template: bool) -> None:
    text = compiled(problem(MASKED.replace("MASK", mask).replace("SHAPE", shape)), Options(fixed=True, mixed=True))
    path = text.split("def forward_at_known_sizes")[1]
    assert ("half_attention(" in path or "scored_attention(" in path) == template


FULL = {
    "positions from zero on": "(torch.arange(steps, device=q.device) >= 0)[None, None, :, None].expand(batch, 1, steps, k.shape[2])",
    "keys before the end": "torch.arange(k.shape[2], device=q.device)[None, :] < k.shape[2]",
    "nothing hidden, nothing added": (
        "torch.where(~torch.ones(steps, k.shape[2], dtype=torch.bool, device=q.device), float('-inf'), 0.0).to(q.dtype)"
    ),
    "all but a late key": "torch.arange(k.shape[2], device=q.device)[None, :] < k.shape[2] - 1",
}  # fmt: skip


@pytest.mark.parametrize("mask", FULL)
def test_a_mask_that_hides_nothing_is_left_out(mask: str) -> None:
    """As libraries make masks while a model is compiled: attention under one is several times as slow."""
    text = compiled(problem(MASKED.replace("MASK", FULL[mask]).replace("SHAPE", "2, 2")), Options(fixed=True))
    assert ("attn_mask=" in text) is (mask == "all but a late key")


ROTATED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
    def forward(self, x, k, v, cos, sin):
        q = self.q(x).view(batch, steps, heads, 64).transpose(1, 2)
        first, second = q.chunk(2, -1)
        q = q * cos + torch.cat((-second, first), -1) * sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, steps, -1))
batch, heads, steps = 2, 4, 48
def get_inputs():
    rest = [torch.rand(steps, 64), torch.rand(steps, 64)]
    return [torch.rand(batch, steps, 256), torch.rand(batch, heads, steps, 64), torch.rand(batch, heads, steps, 64), *rest]
def get_init_inputs(): return [256]
"""


def test_a_query_is_in_the_order_in_which_attention_s_result_is_read(hybrid: Judge) -> None:
    candidate = Candidate(source=compiled(problem(ROTATED), Options(fixed=True)))
    path = candidate.source.split("def forward_at_known_sizes")[1]
    assert path.count("_kernel[") == 1  # the rotation, and no copy in front of the product
    verdict = hybrid.judge(problem(ROTATED), candidate)
    assert verdict.correct, verdict.message


NORMED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    def forward(self, x, angles):
        q, k, v = self.qkv(x).reshape(batch, steps, 3, heads, 64).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = (self.turned(y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6), angles) for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, steps, -1))
    def turned(self, x, angles):
        return x * angles.cos() + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * angles.sin()
batch, steps, heads, width = 2, 64, 4, 256
def get_inputs(): return [torch.randn(batch, steps, width), torch.rand(steps, 64)]
def get_init_inputs(): return [width]
"""


def test_query_and_key_are_normed_and_turned_by_one_kernel(hybrid: Judge) -> None:
    candidate = Candidate(source=compiled(problem(NORMED), Options(fixed=True, extern="allow")))
    path = candidate.source.split("def forward_at_known_sizes")[1]
    assert path.count("_kernel[") == 1
    verdict = hybrid.judge(problem(NORMED), candidate)
    assert verdict.correct, verdict.message


HANDED_ON = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
    def forward(self, x):
        y = self.first(x)
        kept = self.second(F.gelu(y))
        return torch.sigmoid(kept) * 2, y
rows, width = 64, 48
def get_inputs(): return [torch.rand(rows, width)]
def get_init_inputs(): return [width]
"""


def test_kernels_write_in_place_where_nothing_else_reads_the_memory(hybrid: Judge) -> None:
    text = compiled(problem(HANDED_ON), LIBRARY)
    forward = text.split("def forward(")[1]
    assert forward.count("torch.empty") == 1, forward  # what gelu makes: its input is a result
    verdict = hybrid.judge(problem(HANDED_ON), Candidate(source=text))
    assert verdict.correct, verdict.message


WINDOW_GRADIENTS = """
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.window, self.point = nn.Conv2d(channels, channels, 7, padding=3, groups=channels), nn.Conv2d(channels, channels, 1)
        self.half()
    def forward(self, x, grad):
        x = x.detach().requires_grad_(True)
        y = self.point(F.silu(self.window(x)))
        return torch.autograd.grad(y, [x, self.window.weight, self.window.bias], grad)
images, channels, side = 2, 32, 8
def get_inputs(): return [torch.randn(images, channels, side, side).half(), torch.randn(images, channels, side, side).half()]
def get_init_inputs(): return [channels]
"""


def test_gradients_of_a_convolution_are_cudnn_s_channels_last_and_the_bias_has_a_sum_of_its_own(hybrid: Judge) -> None:
    text = compiled(problem(WINDOW_GRADIENTS), Options(extern="allow", symbolic=False, mixed=True))
    calls = [call[: call.index("\n        )")] for call in text.split("convolution_backward(\n")[1:]]
    (window,) = (call for call in calls if "[3, 3]" in call or "(3, 3)" in call)
    assert window.rstrip().endswith("False]"), window
    assert re.search(r", (\w+),", window)[1] != "x", window  # type: ignore[index]
    members = re.findall(r"part(?:_\d)? = \w+\[[01]\](.*)", text)
    assert members
    assert all(member.startswith(".contiguous(") for member in members), "cuDNN has strides of its own"
    verdict = hybrid.judge(problem(WINDOW_GRADIENTS), Candidate(source=text))
    assert verdict.correct, verdict.message


STEPS = """
class Model(nn.Module):
    def forward(self, x, weight):
        h, made = torch.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            h = torch.tanh(x[:, step] + h @ weight)
            made.append(h)
        return torch.stack(made, 1)
rows, steps, width = 4, 8, 32
def get_inputs(): return [torch.randn(rows, steps, width), torch.randn(width, width) * 0.1]
def get_init_inputs(): return []
"""


def test_a_kernel_is_not_compiled_for_each_step_of_an_unrolled_loop(hybrid: Judge) -> None:
    text = compiled(problem(STEPS), Options(extern="allow", symbolic=False, mixed=True, unroll=True))
    (head,) = re.findall(r"def \w+_kernel\([^)]*\bsize\b[^)]*\)", text)
    assert "size: tl.constexpr" not in head
    verdict = hybrid.judge(problem(STEPS), Candidate(source=text))
    assert verdict.correct, verdict.message


COUNTERS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)) for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x
batch, width = 12, 16
def get_inputs(): return [torch.randn(batch, width)]
def get_init_inputs(): return [width]
"""


def test_counters_are_raised_by_one_launch(hybrid: Judge) -> None:
    text = compiled(problem(COUNTERS), Options(fixed=True, mixed=True))
    path = text.partition("def forward_at_known_sizes")[2]
    assert path.count("torch._foreach_add_(") == 1
    assert path.count("num_batches_tracked") == 4
    verdict = hybrid.judge(problem(COUNTERS), Candidate(source=text))
    assert verdict.correct, verdict.message


SPECTRUM = """
class Model(nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x, dim=1)
        return torch.fft.irfft(spectrum / (spectrum.abs() + 1.0), dim=1)
def get_inputs(): return [torch.randn(6, 4096)]
"""


def test_what_reads_a_spectrum_as_pairs_is_a_kernel() -> None:
    """Its parts were complex to Inductor, which leaves arithmetic of such to torch."""
    text = compiled(problem(SPECTRUM), LIBRARY)
    assert "libdevice.hypot" in text
    assert "aten.hypot(" not in text


def test_a_product_with_zero_reads_what_may_be_nan() -> None:
    forward = "class Model(nn.Module):\n    def forward(self, x):\n        return x * 0 + 1\n"
    source = compiled(problem(forward + "def get_inputs(): return [torch.randn(3, 5)]\n"), LIBRARY)
    assert "tl.load(x_ptr" in source


JOINED_TO_NOTHING = """
class Model(nn.Module):
    def forward(self, x, nothing):
        return torch.cat([nothing, x.exp().view(1, 6, 2, 8).transpose(1, 2)], -2)
def get_inputs(): return [torch.rand(6, 16), torch.zeros(0)]
def get_init_inputs(): return []
"""


def test_what_is_joined_to_an_empty_cache_lies_as_torch_lays_it_and_is_not_copied_behind_the_file() -> None:
    (result,) = captured(JOINED_TO_NOTHING, LIBRARY).graph.graph.output_node().args[0]
    assert result.meta["val"].shape == (1, 2, 6, 8)
    assert result.meta["val"].is_contiguous()


WAVES = """
class Model(nn.Module):
    def __init__(self, reach):
        super().__init__()
        axis = torch.arange(-reach, reach + 1)
        grid = torch.cartesian_prod(axis, axis)
        self.register_buffer("waves", grid[grid.square().sum(1) <= reach * reach].float())
    def forward(self, x):
        return torch.cos(x[:, :, None] * self.waves.t()).sum((1, 2))
batch, reach = 5, 3
def get_inputs(): return [torch.randn(batch, 2)]
def get_init_inputs(): return [reach]
"""


def test_elements_that_the_constructor_counts_are_a_known_size() -> None:
    source = compiled(problem(WAVES), Options(fixed=True, mixed=True))
    path = source.partition("def forward_at_known_sizes")[2]
    assert "self.waves.shape == (29, 2)" in source  # where the numbers are random, the count is another in each model
    assert "29" in path.partition("cos_sum")[0]


def test_a_fault_in_what_is_for_speed_alone_costs_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("a pattern of what nobody wrote before")

    monkeypatch.setattr("kernelllm.compiler.capture.rewrites.faster_templates.fuse", fails)
    assert "def forward_at_known_sizes" in compiled(problem(WAVES), Options(fixed=True, mixed=True))


TWO_CONVOLUTIONS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)
        self.half()
    def forward(self, x):
        return self.first(x).relu() + self.second(x)
batch, width, side = 4, 96, 32
def get_inputs(): return [torch.randn(batch, width, side, side, dtype=torch.float16)]
def get_init_inputs(): return [width]
"""


def test_an_input_is_laid_out_once_for_all_convolutions_that_read_it() -> None:
    source = compiled(problem(TWO_CONVOLUTIONS), Options(extern="allow", symbolic=False, mixed=True))
    forward = source[source.index("    def forward(") :]
    assert forward.count("dtype=torch.float16, memory_format=torch.channels_last") == 1
    assert forward.count("torch.nn.functional.conv2d(") == 2
