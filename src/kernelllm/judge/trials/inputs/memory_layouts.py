"""Tries the same values in other layouts, as users have them: parts of larger tensors, and transposed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.reference_runs.reference_results import is_wrong
from kernelllm.problems.nested import mapped, tensors

_MATRIX, _IMAGES = 2, (4, 5)
"""Dimensions of a matrix, and of images and volumes."""
_ELSE = " (first dimensions that changed places in memory, one input of several, or a column of a table)"
_LAST = " (images with their channels last)"
WARNING = "With inputs that are not contiguous the result{} is another one{}: call .contiguous(), or refuse them."


def layouts(inputs: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """What is told of each, and the inputs: all transposed, all parts of longer rows, images with channels last; then vectors as columns of
    tables beside every second one of the others, with its first dimensions in the order of heads beside each other; then the rest of those
    that have such dimensions. Only where anything changes."""
    yield "", mapped(inputs, _transposed)
    yield "", mapped(inputs, _of_wider_rows)
    if any(tensor.dim() in _IMAGES for tensor in tensors(inputs)):
        yield _LAST, mapped(inputs, lambda tensor: permuted_layout(tensor) if tensor.dim() in _IMAGES else tensor)
    given = list({id(t): t for t in tensors(inputs)}.values())
    if len(given) == 1 and given[0].dim() == _MATRIX:
        return  # the tensor was transposed
    vectors = [t for t in given if t.dim() < _MATRIX]
    for chosen in ([*vectors, *(t for t in given[::2] if t.dim() >= _MATRIX)], [t for t in given[1::2] if t.dim() > _MATRIX]):
        changed = {id(t): other for t in chosen if (other := _scattered(t)) is not t}
        if changed:
            yield _ELSE, mapped(inputs, partial(_instead, others=changed))


def layout_warnings(
    process: CandidateProcess, inputs: list[Any], seed: int, own: Any, restore: Callable[[], None], of: str = ""
) -> list[str]:  # fmt: skip
    """A warning where the result is another one than the candidate's ``own`` on the same values. ``restore`` is called after each run."""
    for told, given in layouts(inputs):
        try:
            wrong = is_wrong(process.run(given, seed).value, own)
        except CandidateFailure as failure:  # an error is a limit that every kernel may have; memory of others is none
            wrong = failure.message.startswith("illegal memory access")
        restore()
        if wrong:
            return [WARNING.format(of, told)]
    return []


def permuted_layout(tensor: torch.Tensor) -> torch.Tensor:
    """A matrix transposed in memory, images and weights of convolutions with their channels last."""
    if tensor.dim() < 2 or not tensor.is_contiguous():
        return tensor
    return tensor.mT.contiguous().mT if tensor.dim() == 2 else tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def _instead(tensor: torch.Tensor, others: dict[int, torch.Tensor]) -> torch.Tensor:
    return others.get(id(tensor), tensor)


def _of_wider_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a part of a tensor with longer rows."""
    if tensor.dim() < 2 or not tensor.is_contiguous():
        return tensor
    return torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if tensor.dim() > 1 else tensor


def _scattered(tensor: torch.Tensor) -> torch.Tensor:
    """A vector as a column of a table, a matrix transposed, anything else with its last two of the other dimensions in another order: no
    one stride leads from each row to the next."""
    if tensor.numel() < 2 or not tensor.is_contiguous():
        return tensor
    if tensor.dim() == 1:
        return torch.stack([tensor, tensor], -1)[:, 0]
    return _transposed(tensor) if tensor.dim() == 2 else tensor.transpose(-2, -3).contiguous().transpose(-2, -3)
