"""Which elements of each tensor the kernels of a run have stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch


class WrittenElements:
    """The elements that kernels stored so far, of each memory by its address."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[int, Any]] = {}
        """Bytes of an element, and whether each was stored."""
        self._unknown: set[int] = set()
        self._none_known = False

    def store(self, start: int, nbytes: int, width: int, indices: Any) -> None:
        """Elements of so many bytes are stored in memory of ``nbytes``."""
        if start in self._unknown or self._none_known:
            return
        known, stored = self._marks.get(start, (width, None))
        if known != width:
            self.forget([start])
            return
        if stored is None:
            stored = np.zeros(nbytes // width, dtype=np.bool_)
            self._marks[start] = width, stored
        stored[indices] = True

    def width(self, start: int) -> int:
        """Bytes of an element; 0 where nothing is known."""
        return self._marks.get(start, (0, None))[0]

    def unwritten(self, start: int, width: int, indices: Any) -> Any:
        """Which of these elements no kernel stored; None where that is not known."""
        known, stored = self._marks.get(start, (0, None))
        return None if stored is None or known != width else ~stored.take(indices, mode="clip")

    def forget(self, starts: Iterable[int]) -> None:
        """What is stored in these from now on is not known, and what was is of no use."""
        self._unknown.update(starts)
        for start in starts:
            self._marks.pop(start, None)

    def forget_all(self) -> None:
        """Anything may have been stored anywhere."""
        self._none_known = True
        self._marks.clear()

    def holes(self, tensor: torch.Tensor, start: int) -> torch.Tensor | None:
        """Indices of the elements of a contiguous copy of ``tensor``, whose memory is at ``start``, that no kernel stored. None where that
        is not known."""
        width, stored = self._marks.get(start, (0, None))
        parts, rest = divmod(tensor.element_size(), width or 1)
        if stored is None or rest or not parts:
            return None
        steps = [step * parts for step in tensor.stride()]
        marks = torch.from_numpy(stored).as_strided((*tensor.shape, parts), (*steps, 1), int(tensor.storage_offset()) * parts)
        return torch.nonzero(~marks.all(-1).reshape(-1)).reshape(-1)
