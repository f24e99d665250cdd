"""The judge decides whether a candidate is right, honest and how fast. It never shares a process with one.

``Judge`` keeps warm worker servers and judges many candidates; ``judge`` judges one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelllm.judge.judging import Judge, JudgeSettings, judge

__all__ = ["Judge", "JudgeSettings", "judge"]


def __getattr__(name: str) -> Any:
    """Import on first use: workers and ``--help`` must not load the trusted side."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("kernelllm.judge.judging"), name)
