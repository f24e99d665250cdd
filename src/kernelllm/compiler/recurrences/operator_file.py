"""The file of a problem whose loops are operators: one with gradients, or with loops that would be long when unrolled."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from kernelllm.compiler import write_time
from kernelllm.compiler.options import Options
from kernelllm.compiler.recurrences.loop_calls import with_loop_operators
from kernelllm.core.types import Problem

log = logging.getLogger(__name__)


def written(problem: Problem, options: Options, whole: Callable[[Problem, Options], str]) -> str:
    """The file of a problem with gradients, by ``whole``; empty where the problem has no such loop, or that does not work."""
    wanted = options.backward or "autograd.grad(" in problem.source
    return _written(problem, options, whole, long=False) if wanted else ""


def written_long(problem: Problem, options: Options, whole: Callable[[Problem, Options], str]) -> str:
    """The same for a problem without gradients, whose loop would be unrolled: of loops over a tensor's dimension, with many steps."""
    return _written(problem, options, whole, long=True)


def _written(problem: Problem, options: Options, whole: Callable[[Problem, Options], str], *, long: bool) -> str:
    wanted = not options.unroll and not options.short and options.trace != "export"
    changed = with_loop_operators(problem, long=long) if wanted else None
    if changed is None:
        return ""
    try:
        with write_time.limited(write_time.left() / 2):
            return whole(changed, msgspec.structs.replace(options, unroll=True))
    except Exception as error:  # noqa: BLE001 - the loop may still be unrolled
        log.info("%s: its loops are no operators: %s", problem.name, error)
        return ""
