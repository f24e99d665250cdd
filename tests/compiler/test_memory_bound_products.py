"""Products of fixed sizes that torch's library does badly: sums of elementwise kernels, and batches with rows that are aligned."""

from __future__ import annotations

import pytest
import torch
from compiled import captured
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.compiler.capture import intercept, passes
from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

MIXED = Options(extern="allow", symbolic=False, mixed=True)
BF16 = torch.bfloat16


@pytest.mark.parametrize(
    ("left", "right", "dtype", "products", "sums"),
    [
        ((2048, 96), (96, 1), torch.float32, 0, 1),  # one column
        ((1, 2048, 96), (1, 96, 1), torch.float32, 0, 1),
        ((64, 96), (96, 1), torch.float32, 1, 0),
        ((33, 1), (1, 40), BF16, 0, 1),  # one term
        ((33, 4), (4, 40), torch.float32, 0, 1),
        ((33, 12), (12, 40), torch.float32, 1, 0),
        ((50, 1, 96), (50, 96, 4), BF16, 0, 1),  # rows of many batches
        ((5, 1, 96), (5, 96, 200), BF16, 1, 0),
        ((5, 200, 96), (5, 96, 1), BF16, 1, 0),
    ],
)
def test_few_terms_or_results_are_sums(
    left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype, products: int, sums: int
) -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ y)

    torch.manual_seed(0)
    given = torch.randn(left).to(dtype), torch.randn(right).to(dtype)
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    text = str(graph.graph)
    assert (text.count("mm.default"), text.count("sum.dim_IntList")) == (products, sums)
    torch.testing.assert_close(graph(*given), forward(*given))


def test_a_matrix_that_is_made_for_a_row_alone_is_summed_where_it_is_made() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ torch.exp(y))

    given = torch.randn(5, 1, 96), torch.randn(5, 96, 200)
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    assert "bmm" not in str(graph.graph)
    torch.testing.assert_close(graph(*given), forward(*given))


@pytest.mark.parametrize(("rows", "terms", "columns"), [(1024, 64, 1023), (1024, 1001, 64)])
def test_batches_whose_rows_are_not_aligned_are_padded(rows: int, terms: int, columns: int) -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ y)

    given = torch.ones(8, rows, terms, dtype=BF16), torch.ones(8, terms, columns, dtype=BF16)
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    (product,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.bmm.default)
    assert [n % 8 for n in (*product.args[0].meta["val"].shape[1:], *product.args[1].meta["val"].shape[1:])] == [0] * 4
    torch.testing.assert_close(graph(*given), forward(*given))


def test_an_operand_whose_rows_are_not_aligned_is_copied_once_for_all_products() -> None:
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(torch.addmm(bias, x, weight.t())), dy.t() @ x, torch.relu(dy @ weight)

    given = tuple(torch.randint(-2, 3, size).to(BF16) for size in ((16384, 99), (176, 99), (176,), (16384, 176)))
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    pads = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.constant_pad_nd.default)
    assert sorted(str(n.args[0]) for n in pads) == ["weight_1", "x_1"]
    assert len(graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)) == 2
    torch.testing.assert_close(graph(*given), forward(*given), atol=0, rtol=0)


@pytest.mark.parametrize("equation", ["q,bqyx->byx", "bqyx,q->byx", "yqx,q->yx"])
def test_a_vector_times_a_dimension_in_the_middle_is_a_sum_where_it_lies(equation: str) -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.einsum(equation, x, y))

    torch.manual_seed(0)
    shapes = {"q": (9,), "bqyx": (3, 9, 32, 40), "yqx": (32, 9, 40)}
    given = [torch.randn(shapes[part]) for part in equation.split("->")[0].split(",")]
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    assert not any(name in str(graph.graph) for name in ("aten.bmm", "aten.mm", "aten.clone"))
    torch.testing.assert_close(graph(*given), forward(*given))


EINSUM = """
class Model(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.w = nn.Parameter(torch.randn(out, width))
    def forward(self, x, g):
        y = torch.einsum("btw,ow->bto", x, self.w)
        return y + g, torch.einsum("bto,btw->ow", g, x) / x.shape[0]
def get_inputs(): return [torch.randn(4, 64, width), torch.randn(4, 64, out)]
def get_init_inputs(): return [width, out]
width, out = 256, 128
"""


@pytest.mark.parametrize("options", [Options(), Options(extern="allow"), Options(extern="allow", symbolic=False, mixed=True)])
def test_a_batch_of_one_is_a_product_of_matrices(options: Options) -> None:
    called = [str(n.target) for n in captured(EINSUM, options).graph.graph.nodes]
    assert not [name for name in called if "bmm" in name or "batched" in name]


ROTATED_FACTOR = """
import torch
class Model(torch.nn.Module):
    def forward(self, left, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        right = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
        return torch.einsum("ntrh,ntrd->nhtd", left, right) / rank
batch, steps, rank, heads, width = 2, 64, 6, 8, 32
def get_inputs():
    turns = [torch.randn(steps, 1, width // 2).bfloat16() for _ in range(2)]
    return [torch.randn(batch, steps, rank, n).bfloat16() for n in (heads, width)] + turns
def get_init_inputs(): return []
"""


def test_terms_of_a_sum_are_not_stored_where_an_operand_is_made_of_many_tensors() -> None:
    (made,) = Compiler(extern="auto").write_here(Problem(name="p", source=ROTATED_FACTOR), 1)
    text = made.source
    known = text[text.index("def forward_at_known") :]
    assert "float32" not in known  # of the terms, each head's
    assert known.count("_kernel[") == 2
