"""Convolutions of each channel by itself become sums over their windows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.compiler.capture.rewrites import faster_convolutions
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

MIXED = Options(extern="allow", symbolic=False, mixed=True)


@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation", "dtype"),
    [
        ((4,), [1], [3], [1], torch.float32),
        ((5,), [3], [0], [2], torch.bfloat16),
        ((3, 3), [2, 2], [1, 1], [1, 1], torch.float16),
        ((2, 3), [1, 1], [0, 2], [2, 1], torch.float32),
    ],
)
def test_it_is_what_torch_computes(
    window: tuple[int, ...], stride: list[int], padding: list[int], dilation: list[int], dtype: torch.dtype
) -> None:
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(window), 6)

    given = [torch.randint(-4, 5, size).to(dtype) for size in ((2, 6, *(11 + n for n in range(len(window)))), (6, 1, *window), (6,))]
    graph = make_fx(forward, tracing_mode="fake")(*given)
    faster_convolutions.rewrite(graph, MIXED)
    graph.recompile()
    assert "convolution" not in str(graph.graph)
    torch.testing.assert_close(graph(*given), forward(*given), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation", "more", "dtype"),
    [
        ((2, 2), [2, 2], [0, 0], [1, 1], [0, 0], torch.float16),
        ((3, 3), [2, 3], [1, 2], [1, 1], [1, 0], torch.bfloat16),
        ((5,), [3], [1], [2], [2], torch.float32),
        ((1, 4), [1, 2], [0, 4], [1, 1], [0, 1], torch.float32),
    ],
)
def test_a_transposed_one_is_what_torch_computes(
    window: tuple[int, ...], stride: list[int], padding: list[int], dilation: list[int], more: list[int], dtype: torch.dtype
) -> None:
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, True, more, 6)

    given = [torch.randint(-4, 5, size).to(dtype) for size in ((2, 6, *(11 + n for n in range(len(window)))), (6, 1, *window), (6,))]
    graph = make_fx(forward, tracing_mode="fake")(*given)
    faster_convolutions.rewrite(graph, MIXED)
    graph.recompile()
    assert "convolution" not in str(graph.graph)
    torch.testing.assert_close(graph(*given), forward(*given), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("window", "stride", "padding", "dilation", "outputs", "dtype", "replaced"),
    [
        ((3, 3), [1, 1], [1, 1], [1, 1], 3, torch.float32, True),
        ((3, 2), [2, 1], [1, 0], [1, 2], 1, torch.bfloat16, True),
        ((7,), [3], [2], [2], 1, torch.float16, True),
        ((3, 3), [1, 1], [1, 1], [1, 1], 3, torch.float16, False),
        ((3, 3), [1, 1], [1, 1], [1, 1], 4, torch.float32, False),
        ((5, 5), [1, 1], [2, 2], [1, 1], 1, torch.float32, False),
    ],
)
def test_one_to_few_channels_is_a_sum_over_all(
    window: tuple[int, ...], stride: list[int], padding: list[int], dilation: list[int], outputs: int, dtype: torch.dtype, replaced: bool
) -> None:
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(window), 1)

    shapes = (2, 24, *(13 + n for n in range(len(window)))), (outputs, 24, *window), (outputs,)
    given = [torch.randint(-2, 3, size).to(dtype) for size in shapes]
    graph = make_fx(forward, tracing_mode="fake")(*given)
    faster_convolutions.rewrite(graph, MIXED)
    graph.recompile()
    assert ("convolution" not in str(graph.graph)) == replaced
    torch.testing.assert_close(graph(*given), forward(*given), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("sizes", "stride", "groups", "other", "kept"),
    [
        ((8, 1, 3, 3), 1, 8, True, True),  # cuDNN has a fast kernel for it, channels last
        ((8, 1, 3, 3), 1, 8, False, False),  # nothing else in the graph is channels last
        ((8, 1, 3, 3), 2, 8, True, False),
        ((8, 1, 7, 7), 2, 8, False, False),  # few channels: a kernel of ours
        ((16, 1, 3, 3), 2, 8, False, True),  # two windows for each channel
        ((8, 2, 3, 3), 2, 4, False, True),
    ],
)  # fmt: skip
def test_which_stay_the_librarys(sizes: tuple[int, ...], stride: int, groups: int, other: bool, kept: bool) -> None:
    def forward(x: torch.Tensor, weight: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.conv2d(x, mix) if other else x
        return torch.nn.functional.conv2d(x, weight, stride=stride, groups=groups)

    graph = make_fx(forward, tracing_mode="fake")(torch.rand(2, 8, 9, 9), torch.rand(sizes), torch.rand(8, 8, 1, 1))
    faster_convolutions.rewrite(graph, MIXED)
    assert str(graph.graph).count("aten.convolution.default") == other + kept


@pytest.mark.parametrize(
    ("window", "padding", "dilation", "dtype"),
    [((4,), [3], [1], torch.float32), ((3, 3), [1, 1], [1, 1], torch.bfloat16), ((2, 3), [0, 4], [2, 1], torch.float32)],
)
def test_its_gradients_are_what_torch_computes(
    window: tuple[int, ...], padding: list[int], dilation: list[int], dtype: torch.dtype
) -> None:
    sizes = [11 + n for n in range(len(window))]
    x, weight = (torch.randint(-4, 5, size).to(dtype) for size in ((2, 6, *sizes), (6, 1, *window)))
    ones, rest = [1] * len(window), (False, [0] * len(window), 6)
    grad = torch.ones_like(torch.ops.aten.convolution(x, weight, None, ones, padding, dilation, *rest)).cumsum(-1) % 5

    def backward(wanted: list[bool]) -> Callable[..., list[torch.Tensor]]:
        def called(*given: torch.Tensor) -> list[torch.Tensor]:
            found = torch.ops.aten.convolution_backward(*given, [6], ones, padding, dilation, *rest, wanted)
            return [t for t, asked in zip(found, wanted, strict=True) if asked]

        return called

    def rewritten(wanted: list[bool]) -> torch.fx.GraphModule:
        graph = make_fx(backward(wanted), tracing_mode="fake")(grad, x, weight)
        faster_convolutions.rewrite(graph, MIXED)
        graph.recompile()
        return graph

    torch.testing.assert_close(
        rewritten([True, False, True])(grad, x, weight), backward([True, False, True])(grad, x, weight), atol=0, rtol=0
    )
    text = str(rewritten([True, True, True]).graph)
    assert "convolution" not in text
    assert f"window_gradient.default](args = (%arg0_1, %arg1_1, {list(window)}, {padding}, {dilation})" in text


CAUSAL = """
import torch
import torch.nn as nn
batch, steps, width = 2, 33, 6
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3)
    def forward(self, x, gate):
        return nn.functional.silu(self.conv(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)) * gate
def get_inputs(): return [torch.rand(batch, steps, width) for _ in range(2)]
def get_init_inputs(): return [width]
"""


@pytest.mark.parametrize("options", [Options(), MIXED])
def test_a_causal_convolution_and_what_follows_are_one_kernel_at_any_length(options: Options) -> None:
    text = compiled(Problem(name="causal", source=CAUSAL), options)
    assert text.count("@triton.jit") == 1
    assert "steps + 3" not in text


BLURRED = """
import torch
import torch.nn as nn
batch, channels, size = 2, 3, 24
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("window", torch.rand(channels, 1, 7, 7))
    def forward(self, x):
        return nn.functional.conv2d(x * 2, self.window, groups=self.window.shape[0]) + 1
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return [channels]
"""


@pytest.mark.parametrize(("channels", "last"), [(3, False), (32, True)])
def test_few_channels_keep_the_layout_in_which_torch_has_a_fast_kernel(channels: int, last: bool) -> None:
    source = BLURRED.replace("2, 3, 24", f"2, {channels}, 24")
    assert ("channels_last" in compiled(Problem(name="blurred", source=source), MIXED)) is last
    assert "channels_last" in compiled(Problem(name="blurred", source=source), Options(extern="allow", symbolic=False))


@pytest.mark.parametrize(
    ("window", "channels", "ours"),
    [((6, 11), 48, True), ((7, 7), 16, True), ((7, 7), 48, False), ((31,), 48, False), ((31,), 16, True)],
)
def test_large_windows_and_their_gradient_are_a_kernel_in_torchs_layout(window: tuple[int, ...], channels: int, ours: bool) -> None:
    ones, padding = [1] * len(window), [n // 2 for n in window]

    def forward(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        given = x, weight, None, ones, padding, ones, False, [0] * len(window), channels
        y = torch.ops.aten.convolution(*given)
        grad = torch.ops.aten.convolution_backward(y, x, weight, [0], *given[3:], [True, False, False])[0]
        return y, grad

    given = [torch.rand(2, channels, *[16] * len(window)), torch.rand(channels, 1, *window)]
    graph = make_fx(forward, tracing_mode="fake")(*given)
    faster_convolutions.rewrite(graph, MIXED)
    targets = [str(node.target) for node in graph.graph.nodes]
    assert targets.count("kernelllm.conv.default") == 2 * ours
    assert any("aten.convolution" in target for target in targets) == (not ours)
