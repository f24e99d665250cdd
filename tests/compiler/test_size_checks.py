"""Sizes that an operator does not take: the written file raises an error, as eager does, and reads nothing beyond a tensor."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled import IMPORTS, captured, problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options

TEXT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(24, 16)
        self.weight = nn.Parameter(torch.randn(5, 3, 5))
    def forward(self, mirrored, tokens, listed, convolved, pooled, halves, square, single, related, chosen):
        count = torch.arange(tokens.shape[1], device=tokens.device)
        step = torch.arange(related.shape[1], device=related.device)
        return (
            F.pad(mirrored, (3, 2), mode="reflect"), tokens + self.places(count), listed[:, [0, 5]] * 2,
            F.conv1d(convolved, self.weight, padding=1), F.max_pool2d(pooled, 3), F.glu(halves, -1), torch.linalg.det(square),
            single[5] + single[-2], related + self.places(step[:, None] - step[None] + 9).sum(1),
            chosen.gather(1, torch.tensor([[0, 3], [2, 1]], device=chosen.device)),
        )
def get_inputs():
    return [
        torch.randn(2, 3, 17), torch.randn(2, 20, 16), torch.randn(3, 40), torch.randn(2, 3, 32), torch.randn(2, 3, 18, 19),
        torch.randn(4, 30), torch.randn(6, 6), torch.randn(11, 7), torch.randn(2, 8, 16), torch.randn(2, 9),
    ]
"""
SMALLER = {
    "reflection": (0, (2, 3, 3)), "positions": (1, (2, 25, 16)), "list": (2, (3, 5)), "convolution": (3, (2, 3, 2)),
    "pool": (4, (2, 3, 2, 19)), "glu": (5, (4, 31)), "determinant": (6, (6, 5)), "select": (7, (5, 7)),
    "relative positions": (8, (2, 12, 16)), "gather": (9, (2, 3)),
}  # fmt: skip
"""Which input, and a shape that eager refuses."""


def _model(path: Path, source: str, name: str) -> Any:
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("sizes")
    written = compiled(problem(TEXT), Options())
    return [_model(folder / "sizes_net.py", IMPORTS + TEXT, "Model"), _model(folder / "sizes_candidate.py", written, "ModelNew")]


@pytest.mark.parametrize("case", SMALLER)
def test_sizes_that_eager_refuses_are_refused(models: list[Any], case: str) -> None:
    place, shape = SMALLER[case]
    usual = [(2, 3, 17), (2, 20, 16), (3, 40), (2, 3, 32), (2, 3, 18, 19), (4, 30), (6, 6), (11, 7), (2, 8, 16), (2, 9)]
    inputs = [torch.randn(shape if number == place else one) for number, one in enumerate(usual)]
    eager, written = models
    with pytest.raises((RuntimeError, IndexError)), torch.no_grad():
        eager(*inputs)
    with pytest.raises(ValueError, match=r"the kernels (were written for|take)"), torch.no_grad():
        written(*inputs)  # ahead of the first launch, which takes a GPU


ONES = """
class Model(nn.Module):
    def forward(self, many, squeezed, upper, hot, largest, repeated, chosen, first, normed, query):
        return (
            many * 2 if len(many) > 1 else many, squeezed.squeeze(0) * 2, upper[torch.triu_indices(4, 4)[0]],
            F.one_hot(torch.arange(hot.shape[0]), 9), largest.amax(0), F.pad(repeated, (2, 2), mode="replicate"),
            chosen.gather(1, torch.tensor([[0, 3], [2, 1]])), first[0] * 2, torch.softmax(first, 1),
            first[torch.where(torch.arange(40) < first.shape[0], torch.arange(40), 0)] + 1,
            F.batch_norm(normed, None, None, training=True), F.scaled_dot_product_attention(query, query, query),
        )
def get_inputs():
    sizes = (3, 8), (4, 8), (8, 8), (5, 8), (6, 8), (7, 8, 8), (9, 8), (10, 8), (11, 4, 12), (2, 3, 5, 24)
    return [torch.randn(size) for size in sizes]
"""


def test_what_torch_takes_for_granted_of_sizes_that_vary_is_checked() -> None:
    """It takes them to be 2 or more: with fewer eager refuses, or computes something else."""
    found = captured(ONES)
    read = {size.symbol: (size.sources[0].name, size.sources[0].dim) for size in found.sizes}
    checked = {(*read[left], sign, right) for left, sign, right in found.guards if left in read}
    assert checked == {
        ("many", 0, ">=", "2"), ("squeezed", 0, "!=", "1"), ("upper", 0, ">=", "4"), ("hot", 0, "<=", "9"), ("largest", 0, ">=", "1"),
        ("repeated", 1, ">=", "1"), ("repeated", 2, ">=", "1"), ("chosen", 0, ">=", "2"), ("chosen", 1, ">=", "4"), ("first", 0, ">=", "1"),
        ("normed", 0, ">=", "1"), ("normed", 2, ">=", "1"), ("query", 3, ">=", "1"),
    }  # fmt: skip


LOOKED_UP = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.register_buffer("chosen", torch.tensor([1, 5, 3]))
    def forward(self, tokens, positions):
        return self.table(tokens) + self.table.weight[positions] + self.table.weight[self.chosen].sum()
def get_inputs():
    return [torch.randint(0, 20, (11, 13)), torch.randint(0, 20, (13,))]
"""


def test_positions_in_tensors_are_asserted_by_the_kernels() -> None:
    text = compiled(problem(LOOKED_UP), Options())
    assert text.count("tl.device_assert(") == 3
    assert "debug=True" in text  # of which Triton hangs assertions
    assert "tl.device_assert(" not in compiled(problem(LOOKED_UP), Options(short=True))


CHAIN = """
class Model(nn.Module):
    def forward(self, rows, table):
        most = total = rows[0]
        for row in rows.unbind(0):
            most, total = torch.maximum(most, row), total + row
        for _ in range(40):
            row = row + row
        return table[most], table[total], table[row % 6]
def get_inputs(): return [torch.ones(500, 4, dtype=torch.long), torch.randn(2000, 6)]
def get_init_inputs(): return []
"""


def test_bounds_of_positions_are_not_looked_for_without_end() -> None:
    """Python's stack is 1,000 calls deep."""
    assert captured(CHAIN, Options(extern="allow", symbolic=False)).graph
