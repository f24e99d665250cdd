"""Forward and backward graphs: gradients are traced together with the forward, and the joint graph is partitioned in two.

The cut is torch's own (min-cut with recomputation, as AOTAutograd has it): what it keeps between the two is no more than eager keeps.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler import template_ops
from kernelllm.compiler.capture.captured import Backward, Captured
from kernelllm.compiler.capture.fake_module import FakeModule, Leaf
from kernelllm.compiler.capture.finalize import to_captured, variable_names, without_complex
from kernelllm.compiler.capture.results import RETURNED
from kernelllm.compiler.capture.rewrites import score_gradients
from kernelllm.compiler.capture.untraceable import Untraceable
from kernelllm.compiler.options import Options

aten = torch.ops.aten


@dataclass
class GradientTrace:
    """Notes of one trace: what gradients are taken of, and for which results. ``leaves``: the traced function's arguments."""

    leaves: Sequence[Leaf]
    sources: list[Leaf] = field(default_factory=list)
    """Arguments whose gradients follow the forward's results, in order."""
    results: list[int] = field(default_factory=list)
    """Positions of the results that have a gradient."""
    arguments: list[Any] = field(default_factory=list)

    def tracked(self, values: Sequence[Any]) -> list[Any]:
        """The arguments, those that can have a gradient as leaves of an autograd graph."""
        pairs = zip(values, self.leaves, strict=True)
        self.arguments = [v.requires_grad_() if _differentiable(leaf) else v for v, leaf in pairs]
        return self.arguments

    def gradients(self, results: Sequence[Any]) -> list[torch.Tensor]:
        """Gradients of the results with respect to every argument that has one. ``results``: the forward's, as they are."""
        arguments = self.arguments
        self.sources, self.results = [], []
        tangents = []
        for i, value in enumerate(results):
            if isinstance(value, torch.Tensor) and value.requires_grad and not any(value is a for a in arguments):
                self.results.append(i)
                tangents.append(template_ops.register().tangent(value.detach()))
        if not tangents:
            raise Untraceable("no result of the forward depends on a parameter or a floating input, so that there are no gradients")
        wanted = [i for i, leaf in enumerate(self.leaves) if _differentiable(leaf)]
        outputs, inputs = [results[i] for i in self.results], [arguments[i] for i in wanted]
        found = torch.autograd.grad(outputs, inputs, tangents, allow_unused=True)
        self.sources = [self.leaves[i] for i, g in zip(wanted, found, strict=True) if g is not None]
        return [g for g in found if g is not None]


def _differentiable(leaf: Leaf) -> bool:
    trained = leaf.kind == "input" or (leaf.kind == "parameter" and leaf.trained)
    return trained and isinstance(leaf.value, torch.Tensor) and (leaf.value.is_floating_point() or leaf.value.is_complex())


def to_pair(
    built: FakeModule, options: Options, joint: GraphModule, trace: GradientTrace, out_spec: list[Any], way: Any, bound: int
) -> Captured:
    """The forward's Captured, with the backward's beside it, of the graph of both. ``bound``: how many results follow the forward's."""
    from torch._functorch.compile_utils import fx_graph_cse
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    returned = sum(c is RETURNED for c in out_spec[1]) + bound
    joint = without_complex(joint, built, options)  # what the forward keeps is real then
    placeholders = joint.graph.find_nodes(op="placeholder")
    leaf_of = {node.name: leaf for node, leaf in zip(placeholders, trace.leaves, strict=True)}
    _tangents_as_arguments(joint)
    written = _writes_as_results(joint, returned)
    _without_detours(joint)
    joint = GraphModule(joint, fx_graph_cse(joint.graph))
    if options.extern != "allow" and not options.short:
        score_gradients.join_gradients(joint, options)
    _computed_late(joint, returned + len(written))
    kept = [i for i, leaf in enumerate(trace.leaves) if leaf.kind != "size"]  # leaves live on anyway
    with torch._functorch.config.patch(cse=False):  # CSE would join what stands apart for the backward
        forward, backward = min_cut_rematerialization_partition(
            joint, None, num_fwd_outputs=returned + len(written), static_lifetime_input_indices=kept
        )
    saved = _saved(forward, backward, returned + len(written))
    _write_in_place(forward, returned, written, saved)
    captured_backward = _backward(built, options, backward, leaf_of, saved, trace, way)
    leaves = [leaf_of[node.name] for node in forward.graph.find_nodes(op="placeholder")]
    captured = to_captured(built, options, forward, leaves, out_spec, way)
    captured.backward = replace(captured_backward, results=tuple(trace.results))
    return captured


def _tangents_as_arguments(joint: GraphModule) -> None:
    """Gradients of results stand in the trace as calls of ``kernelllm::tangent``; here they become arguments of the graph."""
    last = joint.graph.find_nodes(op="placeholder")[-1]
    made = [n for n in joint.graph.nodes if n.target is template_ops.register().tangent.default]
    for i, node in enumerate(made):
        with joint.graph.inserting_after(last):
            last = joint.graph.placeholder(f"tangents_{i}")
        last.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(last)
        joint.graph.erase_node(node)
    joint.recompile()


def _writes_as_results(joint: GraphModule, returned: int) -> list[str]:
    """Writes into arguments become further results of the forward; returns the arguments' names."""
    output = joint.graph.output_node()
    results = list(output.args[0])
    names, values = [], []
    for node in list(joint.graph.nodes):
        if node.target is aten.copy_.default and isinstance(node.args[0], Node) and node.args[0].op == "placeholder":
            names.append(node.args[0].name)
            values.append(node.args[1])
            results = [node.args[0] if r is node else r for r in results]
            node.replace_all_uses_with(node.args[0])
            joint.graph.erase_node(node)
    output.args = ((*results[:returned], *values, *results[returned:]),)
    return names


def _without_detours(joint: GraphModule) -> None:
    """Aliases go, and so does a permutation that undoes another: what is kept then is the tensor itself."""
    for node in list(joint.graph.nodes):
        source = node.args[0] if node.target in (aten.alias.default, aten.permute.default) else None
        if node.target is aten.permute.default and isinstance(source, Node):
            undone = source.target is aten.permute.default and [source.args[1][i] for i in node.args[1]] == list(range(len(node.args[1])))
            source = source.args[0] if undone else None
        if isinstance(source, Node):
            node.replace_all_uses_with(source)
            joint.graph.erase_node(node)
    joint.graph.eliminate_dead_code()
    joint.recompile()


def _computed_late(joint: GraphModule, returned: int) -> None:
    """What the forward's results do not need is computed in the backward, as eager does, and not kept from the forward.

    So is a fill that both read.
    """
    needed: set[Node] = set()
    waiting = [r for r in joint.graph.output_node().args[0][:returned] if isinstance(r, Node)]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    for node in joint.graph.find_nodes(op="call_function", target=aten.full.default):
        late = [user for user in node.users if user not in needed and user.op != "output"]
        if node in needed and late:
            with joint.graph.inserting_before(late[0]):
                again = joint.graph.node_copy(node)
            for user in late:
                user.replace_input_with(node, again)
    for node in joint.graph.nodes:
        made_already = node.target is operator.getitem and node.args[0] in needed  # one of several results
        if node.op == "call_function" and node not in needed and isinstance(node.meta.get("val"), torch.Tensor) and not made_already:
            node.meta["partitioner_tag"] = "must_be_in_backward"


def _saved(forward: GraphModule, backward: GraphModule, returned: int) -> list[Node]:
    """The tensors of the forward that the backward reads. Sizes among what is kept are read off those, so they are no results."""
    output = forward.graph.output_node()
    results = list(output.args[0])
    saved = [r for r in results[returned:] if isinstance(r.meta["val"], torch.Tensor)]
    output.args = ((*results[:returned], *saved),)
    return saved


def _write_in_place(forward: GraphModule, returned: int, written: list[str], saved: list[Node]) -> None:
    """The new values of arguments are copied into them at the end; what the backward reads of them is kept as it was."""
    output = forward.graph.output_node()
    results = list(output.args[0])
    by_name = {n.name: n for n in forward.graph.find_nodes(op="placeholder")}
    with forward.graph.inserting_before(output):
        for name, value in zip(written, results[returned : returned + len(written)], strict=True):
            if value is not by_name[name] and by_name[name] in saved:
                raise Untraceable(f"the backward needs {name} as it was before the forward wrote into it")
            copied = forward.graph.call_function(aten.copy_.default, (by_name[name], value))
            copied.meta["val"] = by_name[name].meta["val"]
    output.args = ((*results[:returned], *saved),)


def _backward(
    built: FakeModule, options: Options, graph: GraphModule, leaf_of: dict[str, Leaf], saved: list[Node], trace: GradientTrace, way: Any
) -> Backward:
    leaves = []
    tangents = 0
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        known = leaf_of.get(node.name)
        if isinstance(value, torch.SymInt):
            leaves.append(Leaf("size", known.name if known else node.name, value))
        elif node.name.startswith("tangents_"):
            leaves.append(Leaf("input", node.name, value))
            tangents += 1
        elif known is not None and known.kind in ("parameter", "buffer"):
            leaves.append(Leaf(known.kind, known.name, value))
        else:
            leaves.append(Leaf("input", known.name if known else f"saved_{node.name}", value))
    order = [n.name for n in graph.graph.find_nodes(op="placeholder") if isinstance(n.meta["val"], torch.Tensor)]
    assert order[: len(saved)] == [n.name for n in saved], (order, saved)
    spec = torch.utils._pytree.tree_structure(tuple(trace.sources))
    captured = to_captured(built, options, graph, leaves, [spec, [RETURNED] * len(trace.sources)], way)
    given = {(g.kind, g.name) for g in captured.graph_inputs}
    captured.sizes = tuple(replace(s, sources=tuple(p for p in s.sources if (p.kind, p.name) in given)) for s in captured.sizes)
    names = [name for name, leaf in zip(variable_names(leaves), leaves, strict=True) if isinstance(leaf.value, torch.Tensor)]
    return Backward(
        captured, tuple(names[: len(saved)]), tuple(names[len(saved) :]), tuple((s.kind, s.name) for s in trace.sources)
    )


__all__ = ["GradientTrace", "to_pair"]
