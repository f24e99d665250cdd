"""Which operators of a graph belong together: those of one that the module called, and those that only view."""

from __future__ import annotations

import torch
from torch.fx import Node

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
CONVERT = torch.ops.prims.convert_element_type.default
VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


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
