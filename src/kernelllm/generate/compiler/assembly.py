"""From a traced graph to a Captured: arguments named, unused ones dropped, sizes located, result described."""

from __future__ import annotations

import keyword
import operator
import re
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelllm.generate.compiler import derived, passes
from kernelllm.generate.compiler.capture import Captured, Size, Slot, free_symbols
from kernelllm.generate.compiler.options import Options
from kernelllm.generate.compiler.places import sizes_of, text
from kernelllm.generate.compiler.tracing import Built, Leaf, argument_names


def variable_names(leaves: list[Leaf]) -> list[str]:
    """A distinct identifier for each leaf, close to its own name, that collides with nothing in Inductor's text."""
    taken: set[str] = set()
    names = []
    for leaf in leaves:
        base = re.sub(r"\W+", "_", leaf.name).strip("_") or "value"
        if leaf.kind == "size":
            base = "size_" + base
        if keyword.iskeyword(base) or base in _RESERVED or re.fullmatch(r"(buf|s|u|ks|ps|tmp|arg|stream|raw_stream)\d+|\d.*", base):
            base = f"{base}_" if not base[0].isdigit() else f"p_{base}"
        name, i = base, 1
        while name in taken:
            i += 1
            name = f"{base}_{i}"
        taken.add(name)
        names.append(name)
    return names


_RESERVED = {"self", "args", "call", "torch", "aten", "math", "random", "os", "tempfile", "inductor_ops", "async_compile", "runner", "assert_size_stride",
             "empty_strided_cuda", "extern_kernels", "reinterpret_tensor", "alloc_from_pool", "device", "int", "float", "max", "min", "abs", "triton"}


def assemble(built: Built, options: Options, graph: torch.fx.GraphModule, leaves: list[Leaf], out_spec: list[Any], way: Any) -> Captured:
    """The Captured of a traced graph."""
    env = built.env
    names = variable_names(leaves)
    slots: dict[torch.fx.Node, Leaf] = {}
    for node, leaf, name in zip(graph.graph.find_nodes(op="placeholder"), leaves, names, strict=True):
        node.target = node.name = name
        slots[node] = leaf
    passes.run(graph, options)
    _restore_hints(built)
    roots, computed = _size_arguments(built, graph, slots)
    for node in list(graph.graph.find_nodes(op="placeholder")):
        if not node.users and node not in roots:
            graph.graph.erase_node(node)
    graph.graph.lint()
    graph.recompile()
    replaced = {k: env.replace(s.node.expr) for k, s in built.table.items()}
    root_sizes = sizes_of(built, leaves, {str(s): leaf for leaf, s in roots.values()})
    return Captured(
        problem=built.problem,
        graph=graph,
        env=env,
        slots=tuple(_slot(n, roots[n][0] if n in roots else slots[n].name, slots.get(n), env)
                    for n in graph.graph.find_nodes(op="placeholder")),
        sizes=root_sizes + computed,
        output=template(*out_spec),
        output_count=len(graph.graph.output_node().args[0]),  # type: ignore[arg-type]
        way=way,
        symbolic=bool(built.table) or not built.values,
        specialized={k: int(v) for k, v in replaced.items() if isinstance(v, sympy.Integer)},
        guards=tuple(str(g.expr) for g in env.guards),
        arguments=tuple(argument_names(built.model, len(built.inputs))),
    )


def _restore_hints(built: Built) -> None:
    """Hint every symbol with the problem's own size (tracing may have used others)."""
    hints = derived.hints(built.env)
    for key, value in built.table.items():
        expression = value.node.expr
        for symbol in expression.free_symbols:
            hints[symbol] = sympy.Integer(built.values[key] // int(expression.subs(symbol, 1)))
    for expression, symbol in derived.table(built.env).items():
        hints[symbol] = expression.xreplace(hints)


def _size_arguments(
    built: Built, graph: torch.fx.GraphModule, slots: dict[torch.fx.Node, Leaf]
) -> tuple[dict[torch.fx.Node, tuple[str, sympy.Symbol]], tuple[Size, ...]]:
    """Give every symbol in use an argument of the graph, ahead of all others.

    Returns the arguments' nodes with their name and symbol, and the sizes that are computed from others.
    """
    env, table = built.env, derived.table(built.env)
    used = _used_symbols(graph, env)
    for expression, symbol in reversed(table.items()):
        if symbol in used:
            used |= env.replace(expression).free_symbols
    first = next(iter(graph.graph.nodes))
    nodes: dict[torch.fx.Node, tuple[str, sympy.Symbol]] = {}
    names: dict[sympy.Symbol, str] = {}
    traced = {leaf.name: node for node, leaf in slots.items() if leaf.kind == "size"}
    for key, value in built.table.items():
        expression = value.node.expr
        (symbol,) = expression.free_symbols
        names[symbol] = key if expression == symbol else f"{key}_over_{int(expression.subs(symbol, 1))}"
        if symbol in used or traced[key].users:
            node = _argument(graph, env, first, symbol, names[symbol])
            nodes[node] = (names[symbol], symbol)
            _redirect(graph, traced[key], node, expression, symbol)
    computed = []
    for expression, symbol in table.items():
        replaced = env.replace(expression)
        base = "_".join(sorted(re.sub(r"_\d+$", "", names[s]) for s in replaced.free_symbols if s in names)) or "size"
        names[symbol] = _fresh(base, set(names.values()))
        if symbol in used and env.replace(symbol) == symbol:
            node = _argument(graph, env, first, symbol, names[symbol])
            nodes[node] = (names[symbol], symbol)
            computed.append(Size(str(symbol), names[symbol], int(derived.hints(env)[symbol]), (), text(replaced)))
    return nodes, tuple(computed)


def _used_symbols(graph: torch.fx.GraphModule, env: ShapeEnv) -> set[sympy.Symbol]:
    used: set[sympy.Symbol] = set()
    for node in graph.graph.nodes:
        if node.op != "placeholder" or node.users:
            used |= {s for e in free_symbols(node.meta.get("val")) for s in env.replace(e).free_symbols}
    return used


def _fresh(base: str, taken: set[str]) -> str:
    count = 2
    while f"{base}_{count}" in taken:
        count += 1
    return f"{base}_{count}"


def _argument(graph: torch.fx.GraphModule, env: ShapeEnv, before: torch.fx.Node, symbol: sympy.Symbol, name: str) -> torch.fx.Node:
    """A new placeholder for a symbol."""
    with graph.graph.inserting_before(before):
        node = graph.graph.placeholder(variable_names([Leaf("size", name, None)])[0])
    node.meta["val"] = env.create_symintnode(symbol, hint=int(derived.hints(env)[symbol]))
    return node


def _redirect(graph: torch.fx.GraphModule, old: torch.fx.Node, new: torch.fx.Node, expression: sympy.Expr, symbol: sympy.Symbol) -> None:
    """Let users of the traced size argument read the new one, times a factor where the size is a multiple of its symbol."""
    if old.users and expression != symbol:
        last = [n for n in graph.graph.nodes if n.op == "placeholder"][-1]
        with graph.graph.inserting_after(last):
            product = graph.graph.call_function(operator.mul, (new, int(expression.subs(symbol, 1))))
        product.meta["val"] = old.meta["val"]
        new = product
    old.replace_all_uses_with(new)


def _slot(node: torch.fx.Node, name: str, leaf: Leaf | None, env: ShapeEnv) -> Slot:
    value = node.meta["val"]
    tensor = isinstance(value, torch.Tensor)
    mutated = any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users)
    return Slot(
        variable=node.name,
        kind=leaf.kind if leaf else "size",
        name=name,
        index=leaf.index if leaf else None,
        dtype=str(value.dtype).removeprefix("torch.") if tensor else "int",
        shape=tuple(text(env.replace(d.node.expr)) if isinstance(d, torch.SymInt) else str(d) for d in value.shape) if tensor else (),
        mutated=mutated,
    )


def template(spec: Any, constants: list[Any]) -> str:
    """A Python expression with ``{i}`` for the i-th graph output that rebuilds the forward's result."""
    counter = iter(range(len(constants)))
    items = [f"{{{next(counter)}}}" if c is None else repr(c) for c in constants]
    return _render(pytree.tree_unflatten([_Text(i) for i in items], spec))


class _Text(str):
    """A piece of code inside a nest of containers."""


def _render(value: Any) -> str:
    if isinstance(value, _Text):
        return str(value)
    if isinstance(value, tuple):
        inner = ", ".join(_render(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return "[" + ", ".join(_render(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{{" + ", ".join(f"{k!r}: {_render(v)}" for k, v in value.items()) + "}}"
    return repr(value).replace("{", "{{").replace("}", "}}")
