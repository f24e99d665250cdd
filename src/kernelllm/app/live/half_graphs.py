"""Graphs of float32 modules that do something of their own in half precision, such as a norm in float32 that converts back.

In float32 such conversions leave nothing in a graph. In half precision they do, and there the graph says the type that its module has:
with the type of an input in its place, the graph is what the module does in each of them.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Sequence

import torch

from kernelllm.app.live.exported import FlatModule, exported, layer_by_layer, tidied
from kernelllm.app.live.program import reason
from kernelllm.compiler.capture.half_precision import HALF, same_in_types
from kernelllm.compiler.capture.tensor_caches import no_kept_tensors
from kernelllm.core.background import TORCH
from kernelllm.core.quiet import quiet_thread

_MANY = 2000
"""Operators of a graph that is not tried in half precision: one file of it takes long enough."""
_LARGEST = 500_000_000
"""Elements of parameters of a module that is copied for this."""
_CONVERT = (torch.ops.aten._to_copy.default, torch.ops.aten.to.dtype, torch.ops.aten.to.dtype_layout)
log = logging.getLogger(__name__)


def is_float32_alone(program: torch.export.ExportedProgram, flat: FlatModule, tensors: list[torch.Tensor]) -> bool:
    """Whether the graph is not what the module does in half precision."""
    if len(program.graph_module.graph.nodes) > _MANY:
        return True
    graph = tidied(copy.deepcopy(program.graph_module))  # without the assertion that all is float32
    return not _is_same(program, graph, flat, tensors, HALF)


def in_each_type(
    program: torch.export.ExportedProgram, flat: FlatModule, tensors: list[torch.Tensor]
) -> torch.export.ExportedProgram | None:
    """The same capture with a graph for float32 and half precision alike; None where there is none."""
    if len(program.graph_module.graph.nodes) > _MANY or sum(p.numel() for p in flat.parameters()) > _LARGEST:
        return None
    taken = HALF[1]
    try:
        half = flat.of(copy.deepcopy(flat.module).to(taken))
        found = exported(half, [t.to(taken) if t.dtype is torch.float32 else t for t in tensors])
        specs = found.graph_signature.input_specs
        if [s.target for s in specs] != [s.target for s in program.graph_signature.input_specs]:
            return None
        graph = tidied(found.graph_module)
        _follow_inputs(graph, taken)
        if _is_same(program, graph, flat, tensors, (torch.float32, *HALF)):
            return found
    except Exception as error:  # noqa: BLE001 - code of others, which half precision may be nothing for
        log.info("no graph for half precision: %s", reason(error))
    return None


def _is_same(
    program: torch.export.ExportedProgram, graph: torch.fx.GraphModule, flat: FlatModule, tensors: list[torch.Tensor],
    types: Sequence[torch.dtype],
) -> bool:  # fmt: skip
    """Whether a graph, which takes what the program takes, is what the module does in some types."""
    named = {**dict(flat.named_parameters(remove_duplicate=False)), **dict(flat.named_buffers(remove_duplicate=False))}
    own = {f"{path}.{n}": t for path, m in flat.named_modules() for kind in (m._parameters, m._buffers) for n, t in kind.items()
           if t is not None}  # fmt: skip
    # by one path of each module: what is put in twice is not put back, and the module would keep a fake tensor
    own_or_held = {**program.constants, **named}
    given = iter(tensors)
    places = [own_or_held[s.target] if s.target else next(given) for s in program.graph_signature.input_specs]
    with TORCH, warnings.catch_warnings(), quiet_thread(), layer_by_layer(), no_kept_tensors():
        warnings.simplefilter("ignore")
        called = lambda state, inputs: torch.func.functional_call(flat, state, tuple(inputs), tie_weights=False)
        graph.recompile()
        return same_in_types(called, graph, [own, tensors], places, types)


def _follow_inputs(graph: torch.fx.GraphModule, taken: torch.dtype) -> None:
    """Give what the graph converts to a type the type of a tensor that it is given."""
    places = [n for n in graph.graph.find_nodes(op="placeholder") if n.meta["val"].dtype is taken]
    first = places[-1]  # the arguments come after the module's tensors
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or not any(value is taken for value in (*node.args, *node.kwargs.values())):
            continue
        with graph.graph.inserting_after(node):
            like = graph.graph.call_function(torch.ops.aten.type_as.default, (node, first))
        like.meta = dict(node.meta)
        node.replace_all_uses_with(like, delete_user_cb=lambda user, like=like: user is not like)
        if node.target in _CONVERT:
            like.args = (node.args[0], first)
            graph.graph.erase_node(node)
        else:
            node.args = tuple(torch.float32 if value is taken else value for value in node.args)
            node.kwargs = {key: torch.float32 if value is taken else value for key, value in node.kwargs.items()}
