"""What ``torch.compile(backend="kernelllm")`` may be asked for."""

from __future__ import annotations

from typing import Literal

import msgspec


class CompileOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``torch.compile(model, backend="kernelllm", options={...})``."""

    verify: Literal["first-call", "background", "off"] = "first-call"
    """``first-call``: the first call waits until the judge has spoken. ``background``: no call waits. ``off``: not judged."""
    wait_s: float = 20.0
    """For all first calls of a process together, Inductor's compiling included, unless ``verify`` is ``background``. Then the fallback runs
    what is not written yet."""
    fallback: Literal["inductor", "eager"] = "inductor"
    """What runs a graph that cannot be written, or is found wrong."""
    mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    """How Inductor compiles; ``torch.compile(..., mode=...)`` sets it too."""
    cache: bool = True
    """Keep written files on disk and take them from there."""
    time_limit_s: float = 300.0
    """For writing and judging one graph, waited for or not; then it is left to the fallback."""

    @property
    def cuda_graphs(self) -> bool:
        """Whether Inductor records CUDA graphs."""
        return self.mode in ("reduce-overhead", "max-autotune")
