"""An output of an early call, read again after later calls: a new call must not write into it, unless the reference's does."""

from __future__ import annotations

from typing import Any

import torch

from kernelllm.core.types import Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import values


class HeldOutput:
    """What the candidate returned in one trial, which its worker holds since, and what the reference returned."""

    def __init__(self) -> None:
        self._mine: list[torch.Tensor] = []
        self._theirs: list[torch.Tensor] = []
        self._theirs_before: list[torch.Tensor] = []

    def keep(self, mine: Any, theirs: Any) -> None:
        """The candidate's output, as copied right after the run, and the reference's."""
        self._mine, self._theirs = values.flatten(mine), values.flatten(theirs)
        self._theirs_before = [t.clone() for t in self._theirs]

    def check(self, process: CandidateProcess) -> None:
        """Read it again. Raises CandidateFailure where it has changed."""
        if not self._mine:
            return
        now = values.flatten(process.held_output())
        stay = [same(before, t) for before, t in zip(self._theirs_before, self._theirs, strict=True)]
        for number, (before, after, stays) in enumerate(zip(self._mine, now, stay, strict=False)):
            if stays and not same(before, after):
                text = f"Output {number + 1} of an earlier call changed when ModelNew ran again: a later call writes into its memory."
                raise CandidateFailure(Status.INCORRECT, f"{text} Return a new tensor from each call.")


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, NaN included."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(left, right) or bool(((left == right) | ((left != left) & (right != right))).all())
