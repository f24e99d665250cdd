"""A graph run by Inductor: while its kernels are being written, and where there will be none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


class ByInductor:
    """Called with a list of inputs. Inductor compiles at the first call; what it fails on is run by eager from then on."""

    def __init__(self, graph: fx.GraphModule, failed: Callable[[str], None] = lambda error: None) -> None:
        """``failed`` is told why Inductor does not run it."""
        self._failed = failed
        self._eager: Callable[..., Sequence[Any]] = graph.forward
        random = any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in graph.graph.nodes)
        options: Any = {"fallback_random": True} if random else None
        self._run: Callable[..., Sequence[Any]] = torch.compile(graph.forward, backend="inductor", options=options)

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        try:
            return self._run(*inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error: 
            if self._run is self._eager:
                raise
            self._run = self._eager
            self._failed(f"Inductor: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            return self._run(*inputs)
