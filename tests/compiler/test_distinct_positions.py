"""Sums at positions that are known to differ need no atomics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kernelllm.compiler.capture import intercept, passes
from kernelllm.compiler.options import Options

MIXED = Options(extern="allow", symbolic=False, mixed=True)


def best(scores: torch.Tensor) -> torch.Tensor:
    return torch.topk(scores, 7, dim=1)[1]


CHOICES: list[tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = [
    (best, True),
    (lambda scores: torch.sort(best(scores), dim=1)[0], True),
    (lambda scores: scores.t().argsort(0).t()[:, 3:10], True),
    (lambda scores: torch.topk(scores, 10, dim=0)[1], False),  # they differ along the other dimension
    (lambda scores: best(scores) // 2, False),
    (lambda scores: scores.argmax(1, keepdim=True).expand(-1, 4), False),
]


@pytest.mark.parametrize(("choose", "differ"), CHOICES)
def test_what_comes_to_places_that_differ_is_added_without_atomics(choose: Callable[[torch.Tensor], torch.Tensor], differ: bool) -> None:
    def forward(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        index = choose(scores).unsqueeze(-1).expand(-1, -1, x.shape[2])
        return x.scatter_add(1, index, x.gather(1, index).sigmoid())

    torch.manual_seed(0)
    given = torch.randn(10, 12, 6), torch.randn(10, 12)
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    assert ("scatter_add" not in str(graph.graph)) == differ


def test_rows_that_differ_are_added_to_a_table_without_atomics() -> None:
    def forward(table: torch.Tensor, scores: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.topk(scores, 5)[1]
        return table.index_add(0, chosen, table[chosen].exp()), table.index_add(0, rows, table[rows].exp())

    given = torch.randn(12, 6), torch.randn(12), torch.tensor([3, 3, 5])
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    sums = [n for n in graph.graph.nodes if str(n.target).startswith("aten.index_put") and len(n.args) > 3 and n.args[3]]
    assert len(sums) == 1  # of the rows that are given


RUNS: list[tuple[Callable[[int], torch.Tensor], bool]] = [
    (lambda rows: torch.arange(rows).repeat_interleave(3), True),
    (lambda rows: torch.arange(rows).view(-1, 1).expand(-1, 3).reshape(-1), True),
    (lambda rows: torch.arange(3 * rows) // 3, True),
    (lambda rows: torch.arange(rows).repeat(3), False),  # all rows, and all of them again
    (lambda rows: (torch.arange(3 * rows) + 1) // 4, False),
    (lambda rows: torch.arange(1, rows).repeat_interleave(3), False),
]


@pytest.mark.parametrize(("places", "in_runs"), RUNS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_what_comes_to_each_place_in_a_row_is_summed_without_atomics(
    places: Callable[[int], torch.Tensor], in_runs: bool, kind: torch.dtype
) -> None:
    def forward(x: torch.Tensor, added: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = places(x.shape[0])
        some = added[: rows.shape[0]]
        return x.index_add(0, rows, some), x.scatter_add(0, rows[:, None].expand(-1, x.shape[1]), some)

    torch.manual_seed(0)
    given = torch.randn(10, 6).to(kind), torch.randn(30, 6).to(kind)
    graph = make_fx(forward, intercept.decompositions(MIXED), tracing_mode="fake")(*given)
    passes.run(graph, MIXED)
    assert (not any(name in str(graph.graph) for name in ("scatter_add", "index_add", "index_put"))) == in_runs
    for found, expected in zip(graph(*given), forward(*given), strict=True):
        torch.testing.assert_close(found, expected)
