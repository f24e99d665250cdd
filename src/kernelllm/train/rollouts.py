"""Samples on their way: drawn, being judged while the model draws others and learns, then learnt from or too old."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from kernelllm.core.closing import Closing
from kernelllm.core.types import Attempt, Problem
from kernelllm.train.config import Recipe
from kernelllm.train.judged import judges
from kernelllm.train.rewards import Scorer

_FILE: Final = "rollouts.pt"


@dataclass
class Group:
    """The samples of one prompt."""

    prompt: int
    """Its place among the prompts."""
    drawn: int
    """The optimiser steps that the policy which drew them had taken."""
    prompt_ids: list[int]
    completion_ids: list[list[int]]
    completions: list[Any]
    """Texts, or chat messages."""
    logps: list[torch.Tensor]
    """Each token's log-probability under the policy that drew it; empty where that policy is always the one that learns."""
    judged: Future[list[Attempt | None]] = field(default_factory=Future)


Draw = Callable[[Sequence[int]], list[Group]]
"""Samples of the prompts with these places."""


class Rollouts(Closing):
    """Keeps ``rl.ahead`` steps' groups in flight beside those of the step itself. A context manager.

    A step takes the first groups that are judged, in the order in which they were drawn, and waits where there are too few.
    So one slow kernel does not hold up the rest. Its group waits for a later step, and is rejected when it is too old.
    With one judge nothing overtakes, and equal runs learn from the same groups.
    """

    def __init__(self, recipe: Recipe, score: Scorer, problems: Sequence[Problem]) -> None:
        self._how, self._score, self._problems, self._seed = recipe.rl, score, problems, recipe.training.seed
        self.ahead = ahead(recipe)
        self.stale = 0
        """Samples that were rejected for their age."""
        self._asked = 0
        self._flying: list[Group] = []
        width = self._how.workers * len(judges(self._how.device))
        self._threads = ThreadPoolExecutor(1 if width == 1 else 1 + -(-width // self._how.group), thread_name_prefix="kernelllm-rollouts")

    def taken(self, step: int, steps: int, draw: Draw) -> list[Group]:
        """The judged groups that step number ``step`` of ``steps`` learns from. What is missing in flight is drawn first."""
        fresh = [group for group in self._flying if step - group.drawn <= self._how.max_stale]
        for group in self._flying:
            if group not in fresh:
                group.judged.cancel()
                self.stale += len(group.completions)
        self._flying = fresh
        while missing := max(min(self.ahead + 1, steps - step) * self._how.prompts - len(self._flying), 0):
            for group in draw([self._next() for _ in range(min(missing, self._how.prompts))]):
                self._fly(group)
        while len(ready := [group for group in self._flying if group.judged.done()]) < self._how.prompts:
            wait([group.judged for group in self._flying if group not in ready], return_when=FIRST_COMPLETED)
        chosen = ready[: self._how.prompts]
        self._flying = [group for group in self._flying if group not in chosen]
        return chosen

    def save(self, folder: Path) -> None:
        """What is in flight. It is judged again by the run that goes on."""
        groups = [{k: v for k, v in vars(group).items() if k != "judged"} for group in self._flying]
        torch.save({"asked": self._asked, "stale": self.stale, "groups": groups}, folder / _FILE)

    def load(self, folder: Path) -> None:
        """What was in flight at a checkpoint."""
        kept = torch.load(folder / _FILE, weights_only=True)
        self._asked, self.stale = kept["asked"], kept["stale"]
        for group in kept["groups"]:
            self._fly(Group(**group))

    def close(self) -> None:
        """Judge nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _fly(self, group: Group) -> None:
        texts = [c if isinstance(c, str) else c[-1]["content"] for c in group.completions]
        group.judged = self._threads.submit(self._score, [(self._problems[group.prompt], text) for text in texts])
        self._flying.append(group)

    def _next(self) -> int:
        """Each time round all prompts, in an order of its own that does not hang on those before."""
        turn, place = divmod(self._asked, len(self._problems))
        self._asked += 1
        return int(torch.randperm(len(self._problems), generator=torch.Generator().manual_seed(self._seed + turn))[place])


def ahead(recipe: Recipe) -> int:
    """``rl.ahead``, or what fits: times that are taken on a GPU which trains meanwhile would say little."""
    if recipe.rl.ahead is not None:
        return recipe.rl.ahead
    return int(not (torch.cuda.is_available() and "cuda:0" in judges(recipe.rl.device)))
