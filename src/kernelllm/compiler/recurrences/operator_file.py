"""The file of a problem whose loops are operators: those with gradients, and those that would stay launches or be unrolled."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import msgspec

from kernelllm.compiler import write_time
from kernelllm.compiler.options import Options
from kernelllm.compiler.recurrences.loop_calls import with_loop_operators
from kernelllm.core.types import Problem

log = logging.getLogger(__name__)


_FEWEST = 8
"""Steps of a loop without gradients from which on it is an operator; fewer are written out."""


def with_gradients(problem: Problem, options: Options, whole: Callable[[Problem, Options], str]) -> str:
    """The file, by ``whole``; empty where the problem has no gradients, or no such loop, or that does not work."""
    wanted = options.backward or "autograd.grad(" in problem.source
    return _written(problem, options, whole, 0) if wanted else ""


def without_gradients(problem: Problem, options: Options, whole: Callable[[Problem, Options], str]) -> str:
    """The same for a problem whose loops stay launches, or would be unrolled."""
    text = _written(problem, options, whole, _FEWEST)
    return text if "def time_loop" in text else ""


def multiplies(source: str) -> bool:
    """Whether a file has a loop in whose kernel products are sums: for many rows a library's may be faster, launches and all."""
    return any("tl.sum(" in kernel.partition("\n\n\n")[0] for kernel in re.split(r"\ndef time_loop\w*_kernel", source)[1:])


def _written(problem: Problem, options: Options, whole: Callable[[Problem, Options], str], fewest: int) -> str:
    wanted = not options.unroll and not options.short and options.trace != "export"
    changed = with_loop_operators(problem, fewest) if wanted else None
    if changed is None:
        return ""
    try:
        with write_time.limited(write_time.left() / 2):
            return whole(changed, msgspec.structs.replace(options, unroll=True))
    except Exception as error:  # noqa: BLE001 - the loop may still be unrolled
        log.info("%s: its loops are no operators: %s", problem.name, error)
        return ""
