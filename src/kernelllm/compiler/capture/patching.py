"""The one way in which the compiler replaces names of torch and Triton; tests/patches.py lists them all."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any


def patch(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until ``stack`` closes."""
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    if before is missing:
        stack.callback(delattr, owner, name)
    else:
        stack.callback(setattr, owner, name, before)
