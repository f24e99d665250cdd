"""Tells whether a model goes on holding the memory of its outputs after they were handed over, or the tensors that it was given.

It takes one set after the other, until the model writes into them again or memory is full.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernelllm.backends.host_tensors import has_storage
from kernelllm.judge.transport import values

KEEPS = "the model holds the memory of each of its outputs, which nobody else does"
KEEPS_INPUTS = "the model holds each of its inputs, which nobody else does"
MANY = 6
"""Calls whose outputs may be held: a result that is kept for the next call is one."""
_TRIED = 3


class KeptOutputs:
    """The memory of the outputs of one model's calls, held by nobody here."""

    def __init__(self) -> None:
        self._memory: dict[int, tuple[StorageWeakRef, int]] = {}
        """With the number of the call that made it."""
        self._calls = 0

    def note(self, outputs: Iterable[torch.Tensor]) -> None:
        """Note the outputs of one call. Those that autograd may hold are left out."""
        self._calls += 1
        for tensor in outputs:
            if has_storage(tensor) and tensor.numel() and not tensor.requires_grad:
                found = StorageWeakRef(tensor.untyped_storage())
                self._memory.setdefault(found.cdata, (found, self._calls))

    def held(self, others: Sequence[torch.Tensor]) -> int:
        """Of how many calls some output still has its memory, without those of ``others``."""
        found = self._alive(others)
        if found > MANY:
            gc.collect()  # objects in cycles hold them for a while
            found = self._alive(others)
        return found

    def _alive(self, others: Sequence[torch.Tensor]) -> int:
        self._memory = {key: one for key, one in self._memory.items() if not one[0].expired()}
        known = {t.untyped_storage()._cdata for t in others if has_storage(t)}
        return len({call for key, (_, call) in self._memory.items() if key not in known})


class KeptInputs:
    """The tensors that one model's calls were given, held by nobody here."""

    def __init__(self) -> None:
        self._given: list[tuple[int, weakref.ref[torch.Tensor]]] = []
        self._calls = 0

    def note(self, inputs: Iterable[torch.Tensor]) -> None:
        """Note the inputs of one call."""
        self._calls += 1
        self._given += [(self._calls, weakref.ref(tensor)) for tensor in inputs]

    def held(self, now: Sequence[torch.Tensor]) -> int:
        """Of how many calls some input is still there, without those that ``now`` has."""
        found = self._alive(now)
        if found > MANY:
            gc.collect()
            found = self._alive(now)
        return found

    def _alive(self, now: Sequence[torch.Tensor]) -> int:
        self._given = [one for one in self._given if one[1]() is not None]
        known = {id(tensor) for tensor in now}
        return len({call for call, reference in self._given if id(reference()) not in known})


class HeldTensors:
    """Outputs and inputs of a worker's earlier calls that the model goes on holding."""

    def __init__(self) -> None:
        self._outputs, self._inputs = KeptOutputs(), KeptInputs()

    def told(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> tuple[str, ...]:
        """What is held of more than a few calls, this one of which is over. ``others``: what the judge's side holds itself."""
        self._outputs.note(outputs)
        self._inputs.note(inputs)
        found = (KEEPS, self._outputs.held(others)), (KEEPS_INPUTS, self._inputs.held(others))
        return tuple(text for text, calls in found if calls > MANY)


def keeps_inputs(call: Callable[[Any], Any], drawn: Callable[[], Any]) -> bool:
    """Whether the model that is called holds the inputs of all its calls."""
    found = KeptInputs()
    for _ in range(_TRIED):
        inputs = drawn()
        found.note(values.flatten(inputs))
        call(inputs)
        del inputs
    gc.collect()
    return found.held(()) == _TRIED


def keeps_all(call: Callable[[], Any]) -> bool:
    """Whether the model that is called holds the outputs of all its calls."""
    found = KeptOutputs()
    for _ in range(_TRIED):
        found.note(values.flatten(call()))
    gc.collect()
    return found.held(()) == _TRIED
