"""Attention operators with a score function of their own, made while a graph is rewritten: ``kernelllm::scored_attention_<key>``.

The key tells the code, so that equal ones are one operator, in all paths of a file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import torch

from kernelllm.compiler import template_ops
from kernelllm.compiler.recurrences.time_loop_text import TimeLoop
from kernelllm.compiler.scored_gradients_text import ScoreGradients, gradients_text
from kernelllm.compiler.scored_text import ScoreCode, module_text

PREFIX, GRADIENTS, LOOP = "scored_attention_", "scored_gradients_", "time_loop_"
_SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, Tensor[] tensors, SymInt[] numbers, float? scale=None, bool allow_tf32=False, bool nan_rows=False) "
    "-> Tensor"
)
_GRADIENTS_SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, Tensor out, Tensor grad, Tensor[] tensors, SymInt[] numbers, float? scale=None, bool allow_tf32=False) "
    "-> (Tensor, Tensor, Tensor)"
)
TEXTS: dict[str, str] = {}
"""The host function and kernels of each operator of this process, by its name."""
SCHEMAS: dict[str, str] = {}


def register(code: ScoreCode) -> Any:
    """The operator of this code."""
    return _operator(PREFIX, code, module_text, _SCHEMA, template_ops.attended)


def register_gradients(code: ScoreGradients) -> Any:
    """The operator of these gradients."""
    return _operator(GRADIENTS, code, gradients_text, _GRADIENTS_SCHEMA, _gradients)


def register_loop(loop: TimeLoop, fake: Callable[..., Any]) -> Any:
    """The operator of this loop."""
    return _operator(LOOP, loop, lambda name, made: made.text(name), loop.schema(), fake)


def _gradients(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    return tuple(t.new_empty(t.shape) for t in (q, k, v))


def _operator(prefix: str, code: Any, text: Callable[[str, Any], str], schema: str, fake: Callable[..., Any]) -> Any:
    name = f"{prefix}{hashlib.sha256(repr(code).encode()).hexdigest()[:8]}"
    if name not in TEXTS:
        TEXTS[name], SCHEMAS[name] = text(name, code), schema
        torch.library.define(f"kernelllm::{name}", schema, tags=(torch.Tag.flexible_layout,))
        torch.library.register_fake(f"kernelllm::{name}", fake)
    return getattr(torch.ops.kernelllm, name).default


def renamed(text: str) -> str:
    """A file's text with plain names in the place of keys."""
    for prefix in (PREFIX, GRADIENTS, LOOP):
        for at, name in enumerate(dict.fromkeys(re.findall(rf"\b{prefix}[0-9a-f]{{8}}", text))):
            text = text.replace(name, prefix.rstrip("_") if at == 0 else f"{prefix}{at + 1}")
    return text


__all__ = ["PREFIX", "SCHEMAS", "TEXTS", "register", "register_gradients", "register_loop", "renamed"]
