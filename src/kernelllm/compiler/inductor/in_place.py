"""In-place kernels: a kernel writes into memory that nothing reads any more, which is still in the L2 cache.

``torch.compile`` does so too. Into new memory of 4 to 8 MB, an elementwise kernel takes a fifth to a half longer.
"""

from __future__ import annotations

import operator
from contextlib import ExitStack
from typing import Any

import torch
from torch.fx.passes.reinplace import _is_view_op

from kernelllm.compiler.capture.patching import patch
from kernelllm.compiler.inductor import in_place_slices

_HANDS_ON = "kernelllm.torch_contiguous"
"""This operator's result may be its argument, which others read."""


def allowed(stack: ExitStack) -> None:
    """Until ``stack`` closes, Inductor's kernels write in place wherever the memory is the graph's own."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.fx_passes import post_grad

    updated = post_grad.reinplace_inplaceable_ops

    def of_shared_storages(updater: Any, graph: torch.fx.Graph) -> None:
        share_storages(graph)
        in_place_slices.write_in_place(graph)
        updated(updater, graph)

    patch(stack, post_grad, "reinplace_inplaceable_ops", of_shared_storages)
    can_reuse = PythonWrapperCodegen.can_reuse

    def own(wrapper: Any, buffer: Any, by: Any = None) -> bool:
        operator = str(getattr(getattr(buffer, "node", buffer), "op_overload", ""))
        return not operator.startswith(_HANDS_ON) and can_reuse(wrapper, buffer, by)

    patch(stack, PythonWrapperCodegen, "can_reuse", own)
    _each_version(stack)


def _each_version(stack: ExitStack) -> None:
    """A kernel that writes into a buffer reads it where it writes alone, also what an earlier write has left there, which has another name:
    ``state.copy_(state[..., 1:])`` after another part of the same tensor was written."""
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.scheduler import ForeachKernelSchedulerNode, Scheduler

    plain = Scheduler.fusable_weak_dep

    def fusable(scheduler: Any, weak_dep: Any, node1: Any, node2: Any) -> bool:
        if not plain(scheduler, weak_dep, node1, node2):
            return False
        names = scheduler.mutation_real_name
        written = names.get(weak_dep.mutating_buf)
        writes = [w for w in node2.read_writes.writes if w.name == weak_dep.mutating_buf]
        readers = node1.snodes if isinstance(node1, ForeachKernelSchedulerNode) else [node1]
        reads = [r for node in readers for r in node.read_writes.reads if names.get(r.name, r.name) == written]
        return all(isinstance(r, MemoryDep) and (r.index, r.size) == (w.index, w.size) for r in reads for w in writes)

    patch(stack, Scheduler, "fusable_weak_dep", fusable)


def share_storages(graph: torch.fx.Graph) -> None:
    """Give the values of views the storages of what they are views of, by which torch decides whether a write in place is seen elsewhere.

    A view of a copy keeps the copy's storage where a pass has taken the copy out: torch 2.11 then wrote into the forward's input.
    """
    for node in graph.nodes:
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], torch.fx.Node):
            continue
        base = node.args[0].meta.get("val")
        if node.target is operator.getitem:
            node.meta["val"] = base[node.args[1]] if isinstance(base, list | tuple) else node.meta.get("val")
        elif isinstance(base, torch.Tensor) and (_is_view_op(node.target) or _are_views(node.target)):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.dtype != base.dtype:  # view_as_real and the like
                with torch.no_grad():
                    node.meta["val"] = node.target(base, *node.args[1:])
            elif isinstance(value, torch.Tensor):
                node.meta["val"] = _seen(value, base)
            elif isinstance(value, list | tuple):  # results of unbind and split, for example
                node.meta["val"] = [_seen(part, base) for part in value]


def _are_views(operator_: Any) -> bool:
    """Whether all results of an operator are views of its first argument, and none is written to."""
    schema = getattr(operator_, "_schema", None)
    if schema is None or not schema.arguments:
        return False
    alias = schema.arguments[0].alias_info
    return alias is not None and not alias.is_write and all(str(r.type).startswith("List[Tensor") for r in schema.returns)


def _seen(value: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    if value.untyped_storage()._cdata == base.untyped_storage()._cdata:
        return value
    with torch.no_grad():
        return base.as_strided(value.shape, value.stride(), value.storage_offset())
