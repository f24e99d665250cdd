"""What the judge checks of every reply before anybody reads it."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec

from kernelllm.core.text import printable
from kernelllm.judge.transport.protocol import ProtocolError

_LARGEST = 2**62
_OUTPUTS = ("tree", "trees", "tensors")
"""Fields that hold outputs: the judge compares them, and checks where they lie when it takes them."""
R = TypeVar("R", bound=msgspec.Struct)


def checked(reply: R) -> R:
    """The reply with printable text. Raises ProtocolError for a number that is negative, not finite or beyond any use."""
    changed = {name: _checked(getattr(reply, name)) for name in reply.__struct_fields__ if name not in _OUTPUTS}
    return msgspec.structs.replace(reply, **changed)


def _checked(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int | float):
        if not 0 <= value <= _LARGEST or not math.isfinite(value):
            raise ProtocolError("The worker sent a number that cannot be.")
        return value
    if isinstance(value, tuple):
        return tuple(_checked(item) for item in value)
    if isinstance(value, dict):
        return {_checked(key): _checked(item) for key, item in value.items()}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: _checked(getattr(value, name)) for name in value.__struct_fields__})
    return value
