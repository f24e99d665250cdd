"""The values of a forward while it is gone through: those with a name in the file, and those that are still to be computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch


class Unsupported(Exception):
    """A module has something that is not written step by step."""


@dataclass(eq=False)
class StepValue:
    """One value of the forward."""

    value: Any
    """What it is on tensors without data."""
    text: str | None = None
    """The host expression that has it; None while it is a step of a kernel that is still to be written."""
    form: str = ""
    """What the kernel does: ``relu({0})``."""
    parts: list[StepValue] = field(default_factory=list)

    scalar: bool = False
    """Whether the text is a number, though the module has a tensor for it."""

    @property
    def tensor(self) -> bool:
        """Whether it is a tensor in the file."""
        return isinstance(self.value, torch.Tensor) and not self.scalar

    def constant(self) -> bool:
        """Whether it is written as a number of its own, and holds for every module of the kind."""
        return self.text is not None and not re.search(r"[A-Za-z_]\w*", re.sub(r"\b(?:True|False|None|inf)\b", "", self.text))

    def leaves(self) -> Iterator[StepValue]:
        """Values with a text that this one is made of, in order, each once."""
        seen: set[int] = set()
        todo = [self]
        while todo:
            one = todo.pop(0)
            if id(one) in seen:
                continue
            seen.add(id(one))
            if one.text is not None:
                yield one
            else:
                todo = [*one.parts, *todo]

    def reads(self, name: str) -> bool:
        """Whether the host's variable of that name is needed for it."""
        return any(re.search(rf"(?<![\w.]){name}\b", leaf.text or "") for leaf in self.leaves())


Given = StepValue | None
"""An argument, where there is one."""


class FileInSteps(Protocol):
    """A file that is being written, as rules see it."""

    def step(self, form: str, *parts: StepValue) -> StepValue:
        """A step of a kernel."""

    def number(self, value: float) -> StepValue:
        """A number of its own."""

    def python(self, text: str, value: Any) -> StepValue:
        """What the host reads."""

    def call(self, text: str, *kept: StepValue) -> StepValue:
        """A call of a host function. ``kept``: what is needed once more."""

    def host(self, value: StepValue, target: str = "") -> str:
        """The host's text of a value; a kernel is written where it needs one."""
