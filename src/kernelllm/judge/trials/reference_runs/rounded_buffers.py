"""Keeps a module's buffers as runs under other roundings leave them: codes of a quantised cache, statistics deep in a network."""

from __future__ import annotations

import torch

MOST = 2**24
"""Elements of a buffer beyond which no copies are kept."""


class RoundedBuffers:
    """Copies of buffers after each of the runs since the last :meth:`clear`."""

    def __init__(self) -> None:
        self._found: dict[str, list[torch.Tensor]] = {}

    def clear(self) -> None:
        self._found.clear()

    def keep(self, model: torch.nn.Module) -> None:
        for name, buffer in model.named_buffers(remove_duplicate=False):
            if 1 < buffer.numel() <= MOST:
                self._found.setdefault(name, []).append(buffer.detach().clone())

    def of(self, name: str) -> tuple[torch.Tensor, ...]:
        return tuple(self._found.get(name, ()))
