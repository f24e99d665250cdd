"""What ``torch.compile(backend="kernelllm")`` may be asked for."""

from __future__ import annotations

from typing import Literal

import msgspec


class CompileOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``torch.compile(model, backend="kernelllm", options={...})``."""

    verify: Literal["first-call", "background", "off"] = "first-call"
    """``first-call``: the first call waits until the judge has spoken. ``background``: eager runs until then. ``off``: not judged."""
    fallback: Literal["inductor", "eager"] = "inductor"
    """What runs a graph that cannot be written, or is found wrong."""
    cache: bool = True
    """Keep written files on disk and take them from there."""
    time_limit_s: float = 300.0
    """For writing and judging one graph; then it is left to the fallback."""
