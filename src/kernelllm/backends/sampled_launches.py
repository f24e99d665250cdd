"""The interface of sampled runs: runs in which only some programs of each launch are executed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Stopped(BaseException):
    """A run of sampled programs has no more time, or goes on from what is missing. No Exception: a candidate may catch those."""


class SampledLaunches(ABC):
    """A run of which every launch runs some of its programs; the rest of what they would have written is missing."""

    configurations_left = False
    """Whether a launch had more than one autotuned configuration that no launch had before this run."""

    @abstractmethod
    def __enter__(self) -> SampledLaunches:
        """Launches are sampled from now on."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Launches run whole again."""

    @abstractmethod
    def lacks(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Whether the memory of any of these lacks something, or may."""

    @abstractmethod
    def changed(self, tensors: Iterable[torch.Tensor], *, missing: bool) -> None:
        """Torch wrote into these; ``missing``: from memory that lacks something."""

    @abstractmethod
    def derived(self, known: Sequence[torch.Tensor], made: torch.Tensor) -> None:
        """Torch made a tensor, element by element, of these, whose memory lacks something, and of others that lack nothing."""

    @abstractmethod
    def written(self, tensor: torch.Tensor) -> tuple[torch.Tensor, float] | None:
        """Indices of elements of a contiguous copy of ``tensor`` that hold their final value, and how many all programs write at most."""

    @abstractmethod
    def holes(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Indices of the elements of a contiguous copy of ``tensor`` that no program of any launch writes; None where that is not known."""

    @abstractmethod
    def unwritten_read(self, starts: Iterable[int]) -> int:
        """How many elements of the memory at these addresses no program writes though what is stored depends on them; 0 where that is
        not known."""
