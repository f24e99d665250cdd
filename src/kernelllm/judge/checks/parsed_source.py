"""Parses a source and lists its nodes once: walking a tree takes longer than most of what is asked of it."""

from __future__ import annotations

import ast
from functools import lru_cache

from kernelllm.core.text import syntax_tree


class ParsedSource:
    """``nodes``: all of them, in the order of ``ast.walk``; ``functions``: those that are no constructors, each with the nodes in it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree, self.nodes = tree, tuple(ast.walk(tree))
        self.definitions = {node: tuple(ast.walk(node)) for node in self.nodes if isinstance(node, ast.FunctionDef)}
        self.functions = {node: inside for node, inside in self.definitions.items() if node.name != "__init__"}


@lru_cache(maxsize=4)
def parse_source(source: str) -> ParsedSource | None:
    """None for what is no Python."""
    try:
        return ParsedSource(syntax_tree(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
