"""Kernels of several reductions over the same rows take few loops, and results that only they read are not stored.

Inductor goes through the parts of a fused kernel in the order of the graph. Two softmaxes of two tensors then take a loop more than
one of them, and what the first one writes in a loop is read from memory in the next. It also leaves a cast out of such a kernel, as if
the cast could take its memory from another tensor that the kernel itself makes and reads.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

from kernelllm.compiler.capture.patching import patch


def few(stack: ExitStack) -> None:
    """Until ``stack`` closes, the parts of a kernel are ordered by how many reductions are before them where that saves a loop."""
    from torch._inductor.codegen.simd import EnableReduction, SIMDScheduling

    plain = SIMDScheduling.generate_node_schedule

    def ordered(scheduling: Any, nodes: Any, numel: Any, rnumel: Any) -> Any:
        made = plain(scheduling, nodes, numel, rnumel)
        if sum(node is EnableReduction for node in made) < 2:
            return made
        other = plain(scheduling, _by_reductions_before(list(nodes), numel), numel, rnumel)
        return min(made, other, key=lambda parts: sum(part is EnableReduction for part in parts))

    patch(stack, SIMDScheduling, "generate_node_schedule", ordered)


def _by_reductions_before(nodes: list[Any], numel: Any) -> list[Any]:
    """In a stable order: what belongs into the first loop, what is between it and the second one, and so on."""
    places: dict[str, float] = {}
    reduces: dict[str, bool] = {}
    for node in nodes:
        before = [name for name in places if name in node.ancestors]
        _, (node_numel, node_rnumel) = node.group
        if node_rnumel == 1 and node_numel == numel:  # behind a loop: one value a row
            place = max((places[n] + 0.5 if reduces[n] else places[n] for n in before), default=-0.5)
        else:
            place = max((places[n] + 1 if reduces[n] else math.ceil(places[n]) for n in before), default=0.0)
        places[node.get_name()] = place
        reduces[node.get_name()] = node.is_reduction()
    return sorted(nodes, key=lambda node: places[node.get_name()])


def joined_by_results(stack: ExitStack) -> None:
    """Until ``stack`` closes, memory is no reason against joining a kernel to the one that writes what it reads."""
    from torch._inductor.scheduler import Scheduler

    plain = Scheduler.can_fusion_increase_peak_memory

    def more_memory(scheduler: Any, first: Any, second: Any) -> bool:
        written = {dependency.name for dependency in first.read_writes.writes}
        if any(dependency.name in written for dependency in second.read_writes.reads):
            return False
        return bool(plain(scheduler, first, second))

    patch(stack, Scheduler, "can_fusion_increase_peak_memory", more_memory)


__all__ = ["few", "joined_by_results"]
