"""Makes results of the inputs that the reference writes into: their values after a call are compared like an output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelllm.judge.transport import values


def comparable_inputs(tensors: Sequence[torch.Tensor], mutated: Sequence[int]) -> tuple[int, ...]:
    """Those of the inputs ``mutated`` that lie in memory of their own. A candidate gets views of one tensor as several: what is written
    into one is in no other."""
    strided = {number for number, tensor in enumerate(tensors) if tensor.layout is torch.strided}
    memory = {number: tensors[number].untyped_storage()._cdata for number in strided}
    shared = list(memory.values())
    return tuple(number for number in mutated if number in strided and shared.count(memory[number]) == 1)


def returning_inputs(call: Callable[..., Any], positions: Sequence[int]) -> Callable[..., list[torch.Tensor]]:
    """A call that gives its inputs at these positions as they are after it, in the output's place."""

    def called(*inputs: Any) -> list[torch.Tensor]:
        tensors = values.flatten(list(inputs))
        call(*inputs)
        return [tensors[position] for position in positions]

    return called
