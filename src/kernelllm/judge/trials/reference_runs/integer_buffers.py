"""Keeps a module's integer buffers as runs under other roundings leave them, which decide codes of a quantised cache."""

from __future__ import annotations

import torch

MOST = 2**24
"""Elements of a buffer beyond which no copies are kept."""


class IntegerBuffers:
    """Copies of such buffers after each of the runs since the last :meth:`clear`."""

    def __init__(self) -> None:
        self._found: dict[str, list[torch.Tensor]] = {}

    def clear(self) -> None:
        self._found.clear()

    def keep(self, model: torch.nn.Module) -> None:
        for name, buffer in model.named_buffers(remove_duplicate=False):
            if not (buffer.is_floating_point() or buffer.is_complex()) and 1 < buffer.numel() <= MOST:
                self._found.setdefault(name, []).append(buffer.detach().clone())

    def of(self, name: str) -> tuple[torch.Tensor, ...]:
        return tuple(self._found.get(name, ()))
