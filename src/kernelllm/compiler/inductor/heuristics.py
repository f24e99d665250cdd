"""The block sizes that Inductor would try for a kernel, read from the decorator above it."""

from __future__ import annotations

import ast
import logging
from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.inductor.kernel_source import Kernel

log = logging.getLogger(__name__)

Blocks = tuple[dict[str, int], int]
"""Block sizes by Inductor's name, and warps."""


def candidate_blocks(kernel: Kernel) -> list[Blocks]:
    """What Inductor would choose from by measurement, its own order; empty where the decorator cannot be asked."""
    from torch._inductor.runtime import hints, triton_heuristics

    found: list[Blocks] = []

    def note(_: Any, configs: list[Any], **__: Any) -> None:
        found.extend((dict(c.kwargs), c.num_warps) for c in configs)

    code = compile(ast.Expression(ast.fix_missing_locations(kernel.heuristic)), kernel.name, "eval")
    with ExitStack() as stack:
        patch(stack, triton_heuristics, "cached_autotune", note)
        patch(stack, torch.cuda, "is_available", lambda: True)  # it knows two sets of warps: one for GPUs of CUDA
        try:
            eval(code, {**vars(hints), "triton_heuristics": triton_heuristics, "__file__": kernel.name})
        except (NameError, KeyError, TypeError, AttributeError, AssertionError, ValueError) as error:
            log.info("%s: Inductor's heuristic gives no block sizes: %s", kernel.name, error)
            return []
    return [pair for i, pair in enumerate(found) if pair not in found[:i]]
