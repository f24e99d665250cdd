"""What torch's operators count: a matrix product counts as one, by whatever operator it is done."""

from __future__ import annotations

from collections import Counter, OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelllm.judge.checks.light_operators import known_light
from kernelllm.judge.checks.operator_families import HEAVY, coverage, family
from kernelllm.judge.operator_counter import OperatorCounter
from kernelllm.judge.tensor_leaves import tensor_leaves

M, K, N = 4, 8, 6
LEFT, RIGHT = torch.ones(M, K), torch.ones(N, K)
SYSTEM = torch.eye(K + 1).repeat(M, 1, 1)
EACH, ROWS = torch.arange(N).repeat(M), torch.arange(M).repeat_interleave(N)
ALL_LEFT, ALL_RIGHT = LEFT[:, None].expand(M, N, K), RIGHT[None].expand(M, N, K)


class _Watching(list[Any]):
    """A list of a candidate's own, whose methods must not be called."""

    def __iter__(self) -> Any:
        raise AssertionError("looked into")


def test_tensors_among_arguments_are_those_that_torch_finds() -> None:
    pair = namedtuple("pair", "left right")(LEFT, [RIGHT, 3])
    given = (LEFT, [RIGHT, (SYSTEM, None, "text")], {"a": {"b": EACH}}, pair, OrderedDict(c=ROWS), torch.nn.Parameter(LEFT), 1.0, slice(2))
    found, wanted = tensor_leaves(*given), [t for t in torch.utils._pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]
    assert [id(t) for t in found] == [id(t) for t in wanted]
    assert tensor_leaves(_Watching([LEFT])) == []


def _in_inference_mode(function: Callable[..., Any], *operands: Any) -> None:
    with torch.inference_mode():
        function(*operands)


def _bag_gradients() -> None:
    torch.ops.aten._embedding_bag_per_sample_weights_backward(LEFT, RIGHT, EACH, torch.arange(M) * N, ROWS, 0)


@pytest.mark.parametrize(
    "product",
    [
        lambda: LEFT @ RIGHT.t(),
        lambda: torch.mm(LEFT, RIGHT.t(), out=torch.empty(M, N)),
        lambda: torch.zeros(M, N).addmm_(LEFT, RIGHT.t()),
        lambda: torch.view_as_complex(LEFT.view(M, -1, 2)) @ torch.view_as_complex(RIGHT.view(N, -1, 2)).t(),
        lambda: (torch.view_as_complex(LEFT.view(M, 1, -1, 2)) * torch.view_as_complex(RIGHT.view(1, N, -1, 2))).real.sum(-1),
        lambda: torch._trilinear(LEFT, RIGHT, torch.ones(1).expand(K), [1], [0], [0, 1], [2]),
        lambda: torch.linalg.ldl_solve(SYSTEM[0], torch.arange(1, K + 2, dtype=torch.int32), torch.ones(K + 1, M * N)),
        lambda: torch.ops.aten._cholesky_solve_helper(torch.ones(K + 1, M * N), SYSTEM[0], False),
        lambda: torch.linalg.solve_triangular(SYSTEM, torch.ones(K + 1, N), upper=False),
        lambda: torch.ops.aten._cdist_backward(LEFT, torch.ones(M, N), RIGHT.t().contiguous(), 2.0, torch.ones(M, K)),
        lambda: torch.ops.aten._cdist_forward(LEFT, RIGHT.view(N, 1, K), 2.0, 1),
        _bag_gradients,
        lambda: torch._softmax_backward_data(ALL_LEFT, ALL_RIGHT, -1, torch.float32),
        lambda: torch.ops.aten._weight_norm_interface_backward(
            ALL_LEFT.flatten(0, 1), ALL_RIGHT.flatten(0, 1), torch.ones(M * N, 1), torch.ones(M * N, 1), 0
        ),
        lambda: torch._foreach_addcmul_([torch.zeros(M, N)] * K, list(LEFT.t()[..., None]), list(RIGHT.t()[:, None])),
        lambda: _in_inference_mode(torch.nn.functional.cosine_similarity, LEFT[:, None], RIGHT[None], -1),
        lambda: _in_inference_mode(torch.einsum, "ik,jk,k->ij", LEFT, RIGHT, torch.ones(K)),
    ],
)
def test_a_product_is_counted_by_whatever_operator_torch_does_it(product: Callable[[], Any]) -> None:
    with OperatorCounter(ops := Counter[str](), flops := Counter[str]()):
        product()
    share = coverage(ops, flops, {}, {"mm": 2.0 * M * K * N})
    assert share is not None
    assert share < 0.1


def test_an_operator_in_no_list_counts_as_a_product_beyond_what_the_reference_does_by_it() -> None:
    with OperatorCounter(ops := Counter[str](), flops := Counter[str]()):
        torch.ops.aten._test_functorch_fallback(torch.ones(64, 64), torch.ones(64, 64))
    heavy = {"mm": 2.0 * 64**3}
    assert (coverage(ops, flops, {}, heavy), coverage(ops, flops, ops, heavy)) == (0.0, 1.0)


def test_light_operators_are_none_of_the_heavy_ones() -> None:
    beside = {"lu_unpack", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell"}  # what is left once the products are done
    names = {name.removeprefix("aten::").split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    assert {name for name in names if family(f"aten.{name}") in HEAVY and known_light(name)} <= beside
