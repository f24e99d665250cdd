"""A traced graph becomes a Captured: arguments are named, unused ones dropped, sizes located, the result described."""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Set
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelllm.compiler.capture import derived_sizes, passes, results, size_conditions
from kernelllm.compiler.capture.captured import Captured, GraphInput, Size, free_symbols
from kernelllm.compiler.capture.data_dependent import branches
from kernelllm.compiler.capture.decompositions import complex_pairs
from kernelllm.compiler.capture.described_arguments import arguments_described, described
from kernelllm.compiler.capture.fake_module import FakeModule, Leaf, argument_names, root_of
from kernelllm.compiler.capture.graph_editor import STATE
from kernelllm.compiler.capture.layer_attributes import settings_of
from kernelllm.compiler.capture.rewrites import constant_folding, grouped_products, merged_slices
from kernelllm.compiler.capture.size_sources import plain_inputs, size_text, sizes_of, sources
from kernelllm.compiler.capture.untraceable import UnknownSize, Untraceable
from kernelllm.compiler.options import Options

_PRODUCTS = re.compile(r"aten\.((add)?m[mv]|(badd)?bmm|convolution|_scaled_dot)|kernelllm\.(\w*(attention|conv)|(torch_)?(rnn|gru|lstm))")


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


_RESERVED = {
    "self", "args", "call", "torch", "aten", "math", "random", "os", "tempfile", "inductor_ops", "async_compile", "runner", "triton",
    "assert_size_stride", "empty_strided_cuda", "extern_kernels", "reinterpret_tensor", "alloc_from_pool", "device", "int", "float", "max",
    "min", "abs",
}  # fmt: skip


def to_captured(
    built: FakeModule, options: Options, graph: torch.fx.GraphModule, leaves: list[Leaf], out_spec: list[Any], way: Any
) -> Captured:
    env = built.env
    _refuse_objects(graph)
    if built.ways > 1:
        branches.shared(graph, built.ways)
    graph = without_complex(graph, built, options)
    given = {s for leaf in leaves for s in free_symbols(leaf.value)}
    if not options.short:
        merged_slices.merge_slices(graph, options)
    grouped_products.join(graph, options)
    unknown = _unknown_sizes(graph, built, options, given)
    leaf_of = _named_arguments(graph, leaves)
    constant_folding.fold(graph)
    autocasts = any(map(_autocast, graph.graph.nodes))
    passes.run(graph, options)
    _restore_hints(built)
    arguments, roots, computed, merged = _size_arguments(built, graph, leaf_of, leaves, unknown)
    symbolic = bool(built.table) or not built.values
    for node in list(graph.graph.find_nodes(op="placeholder")):
        if node in arguments:
            continue
        compared = not symbolic and leaf_of[node].kind == "input"  # an input's sizes may have decided something
        if not node.users and not compared:
            graph.graph.erase_node(node)
    graph.graph.lint()
    graph.recompile()
    replaced = {k: env.replace(s.node._expr) for k, s in built.table.items()}
    output, classes = results.written(*out_spec, plain=options.short)
    decided = [*(env.replace(c) for c in map(size_conditions.needed, env.guards) if c is not None), *merged]
    sizes = sizes_of(built, leaves, _with_compared(built, leaves, roots, decided)) + computed
    known = {s.symbol for s in sizes}
    return Captured(
        problem=built.problem,
        graph=graph,
        env=env,
        graph_inputs=tuple(
            _graph_input(n, arguments[n][0] if n in arguments else leaf_of[n].name, leaf_of.get(n), built)
            for n in graph.graph.find_nodes(op="placeholder")
        ),
        sizes=sizes,
        output=output,
        result_classes=classes,
        way=way,
        training=built.model.training,
        settings=settings_of(built.model),
        symbolic=symbolic,
        counted=bool(unknown or given - derived_sizes.hints(env).keys()),
        specialized={k: int(v) for k, v in replaced.items() if v.is_Integer},
        guards=size_conditions.conditions(env, decided, graph, known),
        forward_arguments=tuple(argument_names(built.model, len(built.inputs))),
        constructor=arguments_described(built, env),
        plain_inputs={name: described(value, env) for name, value in plain_inputs(built)},
        modes=dict(built.modes),
        autocasts=autocasts,
        digits=_named_by_digits(built.model),
    )


def _refuse_objects(graph: torch.fx.GraphModule) -> None:
    for node in graph.graph.find_nodes(op="get_attr"):
        if not isinstance(held := getattr(graph, node.target, None), torch.Tensor | torch.nn.Module):
            raise Untraceable(f"an object that the forward makes and an operator takes: {type(held).__name__}")


def _named_by_digits(model: torch.nn.Module) -> dict[str, str]:
    """``self.layers[1]`` to how Python gets at it, for members with a number for a name in what takes no number as an index."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList | torch.nn.ParameterList | torch.nn.Sequential):
            continue
        for name in filter(str.isdigit, (*module._modules, *module._parameters, *module._buffers)):
            below = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", f"self.{path}" if path else "self")
            if isinstance(module, torch.nn.ModuleDict | torch.nn.ParameterDict):
                found[f"{below}[{name}]"] = f'{below}["{name}"]'
            else:
                found[f"{below}[{name}]"] = f'getattr({below}, "{name}")'
    return found


def _named_arguments(graph: torch.fx.GraphModule, leaves: list[Leaf]) -> dict[torch.fx.Node, Leaf]:
    """Calls the graph's arguments after what they are; node to leaf."""
    names = variable_names(leaves)
    leaf_of: dict[torch.fx.Node, Leaf] = {}
    for node in graph.graph.nodes:
        if node.op != "placeholder" and node.name in names:  # an argument that is called as an operator's result would be
            node._rename(f"{node.name}_result")
    for node, leaf, name in zip(graph.graph.find_nodes(op="placeholder"), leaves, names, strict=True):
        node.target = node.name = name
        leaf_of[node] = leaf
        node.meta[STATE] = leaf.kind in ("parameter", "buffer")
        node.meta.pop("unbacked_bindings", None)  # what a forward has counted is a size here
    return leaf_of


def without_complex(graph: torch.fx.GraphModule, built: FakeModule, options: Options) -> torch.fx.GraphModule:
    """The graph with pairs in the place of complex numbers."""
    return complex_pairs.rewritten(graph, built.mode, options)


def _with_compared(built: FakeModule, leaves: list[Leaf], roots: dict[str, str], decided: list[Any]) -> dict[str, str]:
    """The symbols that the file reads, with those that only conditions are about."""
    names = _size_names(built)
    readable = {s for _, e in sources(built, leaves) for s in e.free_symbols}
    compared = {s for e in decided for s in e.free_symbols if s in readable and s in names and built.env.replace(s) == s}
    return roots | {str(s): names[s] for s in sorted(compared, key=str) if str(s) not in roots}


def _autocast(node: torch.fx.Node) -> bool:
    """Whether an operator is one that ``torch.autocast`` runs in half precision, and its result is float32."""
    return _PRODUCTS.match(str(node.target)) is not None and _results(node.meta.get("val")) == torch.float32


def _results(value: Any) -> torch.dtype | None:
    first = value[0] if isinstance(value, list | tuple) else value
    return first.dtype if isinstance(first, torch.Tensor) else None


def _unknown_sizes(graph: torch.fx.GraphModule, built: FakeModule, options: Options, given: Set[sympy.Symbol]) -> frozenset[sympy.Symbol]:
    """Sizes that only the values of a tensor tell: torch computes that result, and the forward reads the size off it.

    ``given``: sizes of the graph's arguments, among which are such sizes of the forward where the graph is a backward.

    Raises UnknownSize where nothing may be left to torch, and where no result of torch has the size.
    """
    known = {*derived_sizes.hints(built.env), *given}
    bound: set[sympy.Symbol] = set()
    for node in graph.graph.nodes:
        bound |= set(node.meta.get("unbacked_bindings") or ())
        unknown = {s for s in free_symbols(node.meta.get("val")) if s not in known}
        if node.op == "call_function" and (unknown - bound or (unknown and options.extern == "forbid")):
            reason = "the size of its result depends on the values of a tensor, as with a boolean mask as an index"
            advice = "torch.where or a masked sum keeps sizes fixed"
            raise UnknownSize(f"{str(node.target).removesuffix('.default')}{_line_of(node, built)}: {reason}; {advice}")
    return frozenset(bound)


def _line_of(node: torch.fx.Node, built: FakeModule) -> str:
    """`` (line 9: return y[mask])`` for a node that a line of the problem made."""
    name = built.problem.path or f"<{built.problem.name}>"
    found = re.findall(rf'File "{re.escape(name)}", line (\d+)', node.meta.get("stack_trace") or "")
    rows = built.problem.source.splitlines()
    return f" (line {found[-1]}: {rows[int(found[-1]) - 1].strip()})" if found and int(found[-1]) <= len(rows) else ""


def _restore_hints(built: FakeModule) -> None:
    """Hint every symbol with the problem's own size (tracing may have used others)."""
    hints = derived_sizes.hints(built.env)
    for key in built.table:
        symbol, factor = root_of(built, key)
        hints[symbol] = sympy.Integer(built.values[key] // (built.values[factor] if isinstance(factor, str) else factor))
    for expression, symbol in derived_sizes.table(built.env).items():
        hints[symbol] = expression.xreplace(hints)


def _size_arguments(
    built: FakeModule, graph: torch.fx.GraphModule, leaf_of: dict[torch.fx.Node, Leaf], leaves: list[Leaf],
    unknown: frozenset[sympy.Symbol],
) -> tuple[dict[torch.fx.Node, tuple[str, sympy.Symbol]], dict[str, str], tuple[Size, ...], list[sympy.Basic]]:
    """Give every symbol in use an argument of the graph, ahead of all others.

    Returns the arguments' nodes with their name and symbol, the symbols that are read off tensors or attributes (to their
    names), the sizes that are computed from others, each after those it needs, and what those must be equal to besides.
    """
    env = built.env
    traced = {node: env.replace(leaf.value.node._expr) for node, leaf in leaf_of.items() if leaf.kind == "size"}
    used = _used_symbols(graph, env) - unknown
    for node, expression in traced.items():
        used |= expression.free_symbols if node.users else set()
    definitions: dict[sympy.Expr, sympy.Expr] = {}
    for expression, symbol in derived_sizes.table(env).items():
        definitions.setdefault(env.replace(symbol), env.replace(expression))  # the first: later ones may lead back to it
    readable = {env.replace(e) for _, e in sources(built, leaves)}
    definitions = {s: e for s, e in definitions.items() if s.is_Symbol and s not in e.free_symbols and s not in readable}
    definitions |= size_conditions.solved(env, definitions.keys() | {s for e in readable for s in e.free_symbols})
    order: list[sympy.Symbol] = []
    open_: set[sympy.Symbol] = set()

    def visit(symbol: sympy.Symbol) -> None:
        if symbol in open_:
            raise Untraceable(f"sizes that are defined by each other ({names[symbol]})")
        if symbol not in order:
            open_.add(symbol)
            for needed in sorted(definitions[symbol].free_symbols, key=str) if symbol in definitions else ():
                visit(needed)
            open_.discard(symbol)
            order.append(symbol)

    names = _size_names(built)
    for symbol in sorted(used - names.keys() - derived_sizes.hints(env).keys(), key=str):  # the forward's, which only values tell
        names[symbol] = _fresh("count", set(names.values())) if "count" in names.values() else "count"
    for symbol in [*(s for s in names if s in used), *sorted(used - set(names), key=str)]:
        visit(symbol)
    order = [s for s in order if s not in definitions] + [s for s in order if s in definitions]
    first = next(iter(graph.graph.nodes))
    nodes = {symbol: _argument(graph, env, first, symbol, names[symbol]) for symbol in order}
    for old, expression in traced.items():
        _redirect(graph, old, expression, nodes)
    hints = derived_sizes.hints(env)
    computed = [Size(str(s), names[s], int(hints[s]), (), size_text(definitions[s])) for s in order if s in definitions]
    merged = list(size_conditions.merged(env, definitions))
    return {n: (names[s], s) for s, n in nodes.items()}, {str(s): names[s] for s in order if s not in definitions}, tuple(computed), merged


def _size_names(built: FakeModule) -> dict[sympy.Symbol, str]:
    """A name for every symbol: its constant's, with the divisor, or for a computed size a numbered one."""
    names: dict[sympy.Symbol, str] = {}
    bases: dict[sympy.Symbol, str] = {}
    for key in built.table:
        symbol, factor = root_of(built, key)
        names[symbol] = key if factor == 1 else f"{key}_over_{factor}"
        bases[symbol] = key
    for expression, symbol in derived_sizes.table(built.env).items():
        bases[symbol] = "_".join(sorted({bases[s] for s in expression.free_symbols if s in bases})) or "size"
        names[symbol] = _fresh(bases[symbol], set(names.values()))
    for key, value in built.table.items():
        found = built.env.replace(value.node._expr)
        if found.is_Symbol and found != root_of(built, key)[0]:
            names[found] = key  # the constant and a computed size proved equal
    return names


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
    hint = derived_sizes.hints(env).get(symbol)
    node.meta["val"] = env.create_symintnode(symbol, hint=None if hint is None else int(hint))
    return node


def _redirect(graph: torch.fx.GraphModule, old: torch.fx.Node, expression: sympy.Expr, nodes: dict[sympy.Symbol, torch.fx.Node]) -> None:
    """Let users of a traced size argument read the new ones instead, through the arithmetic of ``expression``."""
    if not old.users:
        return
    last = [n for n in graph.graph.nodes if n.op == "placeholder"][-1]
    with graph.graph.inserting_after(last):
        value = _computed(graph, expression, nodes)
    for user in list(old.users):
        user.args = torch.fx.node.map_arg(user.args, lambda n: value if n is old else n)
        user.kwargs = torch.fx.node.map_arg(user.kwargs, lambda n: value if n is old else n)


def _computed(graph: torch.fx.GraphModule, expression: sympy.Expr, nodes: dict[sympy.Symbol, torch.fx.Node]) -> Any:
    """A size expression as graph nodes (or a number)."""
    if expression.is_Symbol:
        return nodes[expression]
    if expression.is_Integer:
        return int(expression)
    function = {"Add": operator.add, "Mul": operator.mul, "FloorDiv": operator.floordiv}.get(type(expression).__name__)
    if function is None:
        raise Untraceable(f"the size {expression} was found for an argument, which cannot be computed in the graph")
    parts = [_computed(graph, a, nodes) for a in expression.args]
    node = parts[0]
    for part in parts[1:]:
        values = [p.meta["val"] if isinstance(p, torch.fx.Node) else p for p in (node, part)]
        anchors = [p for p in (node, part) if isinstance(p, torch.fx.Node) and p.op != "placeholder"]  # nodes are ordered as in the graph
        anchor = max(anchors) if anchors else [n for n in graph.graph.nodes if n.op == "placeholder"][-1]
        with graph.graph.inserting_after(anchor):
            made = graph.graph.call_function(function, (node, part))
        made.meta["val"] = function(*values)
        node = made
    return node


def _graph_input(node: torch.fx.Node, name: str, leaf: Leaf | None, built: FakeModule) -> GraphInput:
    env = built.env
    value = node.meta["val"]
    tensor = isinstance(value, torch.Tensor)
    mutated = any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users)
    return GraphInput(
        variable=node.name,
        kind=leaf.kind if leaf else "size",
        name=name,
        index=leaf.index if leaf else None,
        dtype=str(value.dtype).removeprefix("torch.") if tensor else "int",
        shape=tuple(size_text(env.replace(d.node.expr)) if isinstance(d, torch.SymInt) else str(d) for d in value.shape) if tensor else (),
        mutated=mutated,
        number=leaf is not None and leaf.kind == "input" and name in built.numbers,
    )
