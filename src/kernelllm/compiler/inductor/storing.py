"""What is stored in memory, and how: decided in the graph ahead of lowering, and done as each node becomes Inductor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Graph, Node

from kernelllm.compiler.capture.graph_editor import STORED
from kernelllm.compiler.inductor import read_by_products, slow_functions, turned_scans, updated_parts
from kernelllm.compiler.options import Options


def mark(graph: Graph, options: Options) -> None:
    """Mark what is stored, though a kernel that reads it could compute it."""
    read_by_products.mark(graph)
    if options.mixed:
        slow_functions.mark(graph)
        updated_parts.mark(graph)


def lowered(node: Node, env: dict[Node, Any], run: Callable[[Node], Any]) -> Any:
    """What a node becomes. ``env``: what those before have become; ``run``: Inductor's way."""
    result = turned_scans.stored(node, env) or updated_parts.together(node, run)
    if STORED in node.meta:
        result.realize()
    return result


__all__ = ["lowered", "mark"]
