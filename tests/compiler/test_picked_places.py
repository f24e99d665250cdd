"""Places that are picked from a few sorted numbers are found by comparisons."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.graph_editor import Editor
from kernelllm.compiler.capture.rewrites import short_sorts
from kernelllm.compiler.options import Options


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize(("length", "places"), [(2, [0]), (7, [3]), (9, [-1, 4]), (16, [0, 7, 15])])
def test_they_are_the_sort_s(length: int, places: list[int], dtype: torch.dtype, descending: bool) -> None:
    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        ordered = x.sort(1, descending)[0]
        return [ordered.select(1, place) for place in places]

    x = (torch.randn(200, length, 3) * 4).to(dtype)
    if dtype.is_floating_point:
        x[::3, 0], x[::5, -1], x[::7] = torch.nan, torch.inf, torch.nan
    graph = make_fx(forward)(x)
    (node,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.sort.default)
    with graph.graph.inserting_before(node):
        made = short_sorts.sort(Editor(graph, node, template_ops.register(), Options()), *node.args)
    assert made is not None
    assert not node.users
    graph.graph.erase_node(node)
    graph.recompile()
    assert operator.getitem not in {n.target for n in graph.graph.nodes}
    for mine, wanted in zip(graph(x), forward(x), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=0, equal_nan=True)
