"""Tells whether a model goes on holding the memory of its outputs after they were handed over.

It takes one set after the other, until the model writes into them again or memory is full.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernelllm.backends.host_tensors import has_storage
from kernelllm.judge.transport import values

KEEPS = "the model holds the memory of each of its outputs, which nobody else does"
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
        """These were made by one call. Those that autograd may hold are left out."""
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


def keeps_all(call: Callable[[], Any]) -> bool:
    """Whether the model that is called holds the outputs of all its calls."""
    found = KeptOutputs()
    for _ in range(_TRIED):
        found.note(values.flatten(call()))
    gc.collect()
    return found.held(()) == _TRIED
