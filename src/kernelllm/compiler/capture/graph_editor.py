"""Tools to edit a captured graph: insert operators, and find groups of nodes that together compute one result."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernelllm.compiler.options import Options

aten = torch.ops.aten
STORED = "stored_by_kernelllm"
"""The key in a node's ``meta`` that says that its result is stored, though a kernel that reads it could compute it."""
HALF = (torch.float16, torch.bfloat16)
CONVERT = torch.ops.prims.convert_element_type.default
VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
STATE = "kernelllm_state"
"""In the notes of an argument's node: whether it is a parameter or a buffer, of which what follows is made once."""
HEAVY = ("kernelllm.", "aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.", "aten.convolution.")
"""Operators that read and write memory: no kernel is fused with them."""


class Editor:
    """Inserts template calls with their example values."""

    def __init__(self, graph: GraphModule, node: Node, namespace: Any, options: Options) -> None:
        self.graph = graph
        self.node = node
        self.namespace = namespace
        self.options = options
        self._called: dict[str, Any] = {}

    def called(self, operator: Any) -> None:
        """Operators from now on are told as part of ``operator``, not of the node's own: kernels are named after it."""
        self._called = {"original_aten": operator}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """A call node of ``target``; its example value is computed on the arguments' own."""
        made = self.graph.graph.call_function(target, args, kwargs)
        made.meta = {k: v for k, v in self.node.meta.items() if k != "val"} | self._called
        made.meta["val"] = self.value(target, *args, **kwargs)
        return made

    def value(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """The example value of a call, computed on the arguments' own."""
        values = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
        from torch._dispatch.python import enable_python_dispatcher

        others = (n.meta.get("val") for n in self.graph.graph.nodes)  # of a size alone, as for a tensor of ones
        leaves = itertools.chain(torch.utils._pytree.tree_leaves(values), [self.node.meta["val"]], others)
        mode = next(v.fake_mode for v in leaves if isinstance(v, torch._subclasses.FakeTensor))
        with mode, enable_python_dispatcher(), torch.no_grad():
            return target(*values[0], **values[1])

    def size(self, tensor: Node, dim: int) -> Any:
        """A size of a tensor: a number, or a node that gives it."""
        size = tensor.meta["val"].shape[dim]
        return size if isinstance(size, int) else self.integer(torch.ops.aten.sym_size.int, tensor, dim)

    def integer(self, target: Any, *args: Any) -> Any:
        """What ``target`` makes of sizes: a number, or a node that gives it."""
        values = [a.meta["val"] if isinstance(a, Node) else a for a in args]
        value = values[0].shape[values[1]] if target is torch.ops.aten.sym_size.int else target(*values)
        if isinstance(value, int):
            return value
        made = self.graph.graph.call_function(target, args)
        made.meta["val"] = value
        return made

    def template(self, name: str, *args: Any, **kwargs: Any) -> Node:
        return self.call(getattr(self.namespace, name).default, *args, **kwargs)


def called(node: Node) -> str:
    """The operator that the module called, of which ``node`` is a part."""
    return str(node.meta.get("original_aten"))


def group_of(node: Node) -> tuple[set[Node], set[Node]]:
    """The operators of the decomposition that ``node`` is the end of, and what they read."""
    group, outside, todo = {node}, set(), [node]
    while todo:
        for source in todo.pop().all_input_nodes:
            if source.op != "call_function" or called(source) != called(node):
                outside.add(source)
            elif source not in group:
                group.add(source)
                todo.append(source)
    return group, outside


def closed(node: Node, group: set[Node]) -> bool:
    """Whether nothing outside reads an operator of the group but its end."""
    return all(u in group for n in group - {node} for u in n.users)


def of_halves(*operands: Node) -> bool:
    """Whether they are in half precision but for a conversion: TF32 holds such numbers as they are, so that their product is exact."""
    return all(_converted(n) for n in operands)


def _converted(node: Any) -> bool:
    while node.target in (*VIEWS, aten.expand.default, aten.permute.default, aten.clone.default):
        node = node.args[0]
    return node.target is CONVERT and node.meta["val"].dtype == torch.float32 and node.args[0].meta["val"].dtype in HALF


def drop_copies(graph: GraphModule) -> None:
    """Copies of what the graph computes, such as dropout's in evaluation mode, which would keep products from what follows them."""

    def leaves(node: Node) -> bool:
        return any(u.op == "output" or (u.target in VIEWS and leaves(u)) for u in node.users)

    for node in [n for n in graph.graph.nodes if n.target is aten.clone.default and not leaves(n)]:
        source = base = node.args[0]
        while base.target in VIEWS:
            base = base.args[0]
        computed = base.op == "call_function" and base.target is not operator.getitem and not base.target.is_view
        strides = [[str(d) for d in n.meta["val"].stride()] for n in (node, source)]
        if computed and strides[0] == strides[1]:
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)


def reads_memory(user: Node) -> bool:
    """Whether a heavy operator or the caller reads it, through views alone."""
    if user.target in VIEWS:
        return all(reads_memory(u) for u in user.users)
    return user.op == "output" or str(user.target).startswith(HEAVY)
