"""Attention operators with a score function of their own, made while a graph is rewritten: ``kernelllm::scored_attention_<key>``.

The key tells the code, so that equal ones are one operator, in all paths of a file.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelllm.compiler import template_ops

PREFIX = "scored_attention_"
SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, Tensor[] tensors, SymInt[] numbers, float? scale=None, bool allow_tf32=False, bool nan_rows=False) "
    "-> Tensor"
)
TEXTS: dict[str, str] = {}
"""The host function and kernels of each operator of this process, by its name."""


@dataclass
class ScoreCode:
    """What one kernel does to scores, as statements."""

    rows: list[str] = field(default_factory=list)
    """Before the loop over keys: of batch, head and query."""
    keep: list[str] = field(default_factory=list)
    """Of keys too: what the conditions read."""
    near: list[str] = field(default_factory=list)
    """Conditions that bound the keys of a query by ``lower`` and ``upper``: between them they hold."""
    other: list[str] = field(default_factory=list)
    """Conditions of another kind."""
    lower: list[str] = field(default_factory=list)
    upper: list[str] = field(default_factory=list)
    """The first and the last key that a query sees."""
    scores: list[str] = field(default_factory=list)
    result: str = "scores"
    tensors: int = 0
    numbers: int = 0

    def all(self) -> str:
        """All statements."""
        lines = [*self.rows, *self.keep, *self.near, *self.other, *self.lower, *self.upper, *self.scores, self.result]
        return "\n".join(lines)

    def used(self, pattern: str) -> list[str]:
        """Names of that pattern that the statements have, each once."""
        return sorted(set(re.findall(rf"\b{pattern}\b", self.all())), key=lambda n: [int(d) for d in re.findall(r"\d+", n)])


def register(code: ScoreCode) -> Any:
    """The operator of this code."""
    from kernelllm.compiler.scored_text import module_text

    key = hashlib.sha256(repr(code).encode()).hexdigest()[:8]
    name = f"{PREFIX}{key}"
    if name not in TEXTS:
        TEXTS[name] = module_text(name, code)
        torch.library.define(f"kernelllm::{name}", SCHEMA, tags=(torch.Tag.flexible_layout,))
        torch.library.register_fake(f"kernelllm::{name}", template_ops.attended)
    return getattr(torch.ops.kernelllm, name).default


def renamed(text: str) -> str:
    """A file's text with plain names in the place of keys."""
    for at, name in enumerate(dict.fromkeys(re.findall(rf"\b{PREFIX}[0-9a-f]{{8}}", text))):
        text = text.replace(name, PREFIX.rstrip("_") if at == 0 else f"{PREFIX}{at + 1}")
    return text


__all__ = ["PREFIX", "TEXTS", "ScoreCode", "register", "renamed"]
