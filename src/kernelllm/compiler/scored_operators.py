"""Attention operators with a score function of their own, made while a graph is rewritten: ``kernelllm::scored_attention_<key>``.

The key tells the code, so that equal ones are one operator, in all paths of a file.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import torch

from kernelllm.compiler import template_ops
from kernelllm.compiler.scored_text import ScoreCode, module_text

PREFIX = "scored_attention_"
SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, Tensor[] tensors, SymInt[] numbers, float? scale=None, bool allow_tf32=False, bool nan_rows=False) "
    "-> Tensor"
)
TEXTS: dict[str, str] = {}
"""The host function and kernels of each operator of this process, by its name."""


def register(code: ScoreCode) -> Any:
    """The operator of this code."""
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


__all__ = ["PREFIX", "TEXTS", "register", "renamed"]
