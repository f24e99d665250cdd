"""Tracing with ``make_fx`` on fake tensors, symbolic or at the problem's own sizes."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import sympy
import torch
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.generate.compiler import intercept, symbols
from kernelllm.generate.compiler.capture import Captured, Slot, free_symbols
from kernelllm.generate.compiler.functional import functional
from kernelllm.generate.compiler.options import Options
from kernelllm.generate.compiler.places import sizes_of


class Untraceable(Exception):  # noqa: N818 - internal signal between ways of tracing
    """This way of tracing does not fit; says which operator or construct."""


# What user code raises when it meets symbols or fake tensors it cannot handle: any ordinary exception.
_TRACE_FAILURES = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, NotImplementedError,
                   ImportError, sympy.SympifyError)


@dataclass
class Built:
    """The problem's module and inputs on fake tensors, with symbols for the sizes in ``table``."""

    problem: Problem
    env: ShapeEnv
    mode: FakeTensorMode
    namespace: dict[str, Any]
    table: dict[str, torch.SymInt]
    model: torch.nn.Module
    inputs: list[Any]
    values: dict[str, int]
    attributes: dict[str, torch.Tensor] = field(default_factory=dict)


def build(problem: Problem, keys: set[str] | None, hints: Mapping[str, int] | None = None) -> Built:
    """Run the problem on fake tensors with symbols for the constants in ``keys`` (None: for all that set sizes).

    Raises ProblemError for code that does not run at all, Untraceable for code that does not run with symbols.
    """
    code, found = symbols.parse(problem)
    values = {**found, **(hints or {})}
    env = ShapeEnv(assume_static_by_default=False, specialize_zero_one=True, duck_shape=False)
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    chosen = {k: v for k, v in values.items() if keys is None or k in keys}
    table = symbols.new_symbols(env, chosen)
    try:
        with torch.no_grad(), enable_python_dispatcher(), mode, symbols.symbol_aware(), intercept.real_factories():
            namespace = symbols.execute(problem, code, {**values, **table})
            with symbols.symbol_aware(namespace):
                init = namespace["get_init_inputs"]() if "get_init_inputs" in namespace else []
                args, kwargs = split_init(init)
                model = namespace["Model"](*args, **kwargs)
                inputs = list(namespace["get_inputs"]())
    except KeyError as error:
        raise ProblemError(f"The problem defines no {error.args[0]}.", where=problem.path or problem.name) from error
    except _TRACE_FAILURES as error:
        raise Untraceable(f"building the module: {describe(error)}") from error
    built = Built(problem, env, mode, namespace, table, model, inputs, values)
    built.attributes = _loose_tensors(model)
    return built


def split_init(init: Any) -> tuple[list[Any], dict[str, Any]]:
    """KernelBench's ``get_init_inputs`` as (positional, keyword): a list, a dict, or ``[list, dict]``."""
    if isinstance(init, dict):
        return [], dict(init)
    init = list(init)
    if len(init) == 2 and isinstance(init[0], list | tuple) and isinstance(init[1], dict):
        return list(init[0]), dict(init[1])
    return init, {}


def describe(error: BaseException) -> str:
    """One line for an exception: its type and the first line of its message."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__


def _loose_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that modules hold as plain attributes, neither parameter nor buffer, by dotted path."""
    found = {}
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                found[f"{prefix}.{name}" if prefix else name] = value
    return found


@dataclass
class Leaf:
    """One flat argument of the traced function."""

    kind: Literal["input", "parameter", "buffer", "attribute", "size"]
    name: str
    value: Any
    index: int | None = None


def argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Names of the first ``count`` positional arguments of the model's forward."""
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{i}" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names[:count] + [f"input{i}" for i in range(len(names), count)]


def leaves_of(built: Built) -> tuple[list[Leaf], Callable[..., Any]]:
    """The flat arguments of the graph (sizes, state, inputs) and the function of them that is to be traced."""
    model, mode = built.model, built.mode
    leaves = [Leaf("size", key, symbol) for key, symbol in built.table.items()]
    state_leaves = [Leaf("parameter", n, p) for n, p in model.named_parameters()]
    state_leaves += [Leaf("buffer", n, b) for n, b in model.named_buffers()]
    state_leaves += [Leaf("attribute", n, t) for n, t in built.attributes.items()]
    names = argument_names(model, len(built.inputs))
    flat, spec = pytree.tree_flatten_with_path(built.inputs)
    input_leaves = []
    for path, value in flat:
        position = path[0].idx
        input_leaves.append(Leaf("input", names[position] + pytree.keystr(path[1:]), value, position))
    leaves += state_leaves + input_leaves
    dynamic = [i for i, leaf in enumerate(leaves) if isinstance(leaf.value, torch.Tensor) or leaf.kind == "size"]

    def run(*values: Any) -> Any:
        current = [leaf.value for leaf in leaves]
        for i, value in zip(dynamic, values, strict=True):
            current[i] = value
        start = len(built.table)
        named = {leaf.name: v for leaf, v in zip(leaves, current, strict=True) if leaf.kind in ("parameter", "buffer")}
        loose = {leaf.name: v for leaf, v in zip(leaves, current, strict=True) if leaf.kind == "attribute"}
        arguments = pytree.tree_unflatten(current[start + len(state_leaves):], spec)
        with _swapped(model, loose):
            return torch.func.functional_call(model, named, tuple(arguments))

    chosen = [leaves[i] for i in dynamic]
    for leaf in chosen:
        if isinstance(leaf.value, torch.Tensor):
            leaf.value = _fake(leaf.value.detach(), mode)
    return chosen, run


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """The tensor as a fake one of ``mode`` that has no memory and no constant value."""
    with mode, enable_python_dispatcher():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


class _swapped:  # noqa: N801 - used as a function
    """Puts tensors in place of modules' tensor attributes while open."""

    def __init__(self, model: torch.nn.Module, tensors: Mapping[str, Any]) -> None:
        self.model = model
        self.tensors = tensors
        self.before: dict[str, Any] = {}

    def _set(self, path: str, value: Any) -> Any:
        owner, _, name = path.rpartition(".")
        module = self.model.get_submodule(owner)
        before = vars(module)[name]
        vars(module)[name] = value
        return before

    def __enter__(self) -> None:
        self.before = {path: self._set(path, value) for path, value in self.tensors.items()}

    def __exit__(self, *_: Any) -> None:
        for path, value in self.before.items():
            self._set(path, value)


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


def trace(built: Built, options: Options, way: Literal["make_fx", "static"]) -> Captured:
    """Trace the built problem. Raises Untraceable."""
    from torch._inductor import lowering  # noqa: F401 - the decomposition table needs it
    from torch._inductor.decomposition import select_decomp_table

    leaves, run = leaves_of(built)
    out_spec: list[Any] = []

    def flat(*values: Any) -> tuple[Any, ...]:
        result = run(*values)
        out, spec = pytree.tree_flatten(result)
        out_spec[:] = [spec, [None if isinstance(o, torch.Tensor | torch.SymInt | torch.SymFloat) else o for o in out]]
        return tuple(o for o in out if isinstance(o, torch.Tensor | torch.SymInt | torch.SymFloat))

    try:
        with torch.no_grad(), enable_python_dispatcher(), built.mode, symbols.symbol_aware(built.namespace), \
                intercept.whole_layers(options), torch.fx.traceback.preserve_node_meta():
            graph = make_fx(functional(flat), decomposition_table=select_decomp_table(), record_module_stack=True)(*[leaf.value for leaf in leaves])
    except _TRACE_FAILURES as error:
        raise Untraceable(f"tracing the forward ({way}): {describe(error)}") from error
    return assemble(built, options, graph, leaves, out_spec, way)


def assemble(built: Built, options: Options, graph: torch.fx.GraphModule, leaves: list[Leaf], out_spec: list[Any], way: Any) -> Captured:
    """The Captured of a traced graph: arguments named, unused ones dropped, sizes located."""
    from kernelllm.generate.compiler import passes

    names = variable_names(leaves)
    for node, leaf, name in zip(graph.graph.find_nodes(op="placeholder"), leaves, names, strict=True):
        _rename(node, name)
        node.meta["leaf"] = leaf
    passes.run(graph, options)
    original = {str(s.node.expr): built.values[k] for k, s in built.table.items()}
    _restore_hints(built.env, original)
    used: set[sympy.Symbol] = set()
    for node in graph.graph.nodes:
        if node.op != "placeholder" or node.users:
            used |= {s for e in free_symbols(node.meta.get("val")) for s in built.env.replace(e).free_symbols}
    slots = []
    for node in list(graph.graph.find_nodes(op="placeholder")):
        leaf = node.meta.pop("leaf")
        if leaf.kind == "size" and not node.users and built.table[leaf.name].node.expr not in used:
            graph.graph.erase_node(node)
            continue
        if leaf.kind != "size" and not node.users:
            graph.graph.erase_node(node)
            continue
        slots.append(_slot(node, leaf, built.env))
    graph.recompile()
    replaced = {k: built.env.replace(s.node.expr) for k, s in built.table.items()}
    return Captured(
        problem=built.problem,
        graph=graph,
        env=built.env,
        slots=tuple(slots),
        sizes=sizes_of(built, leaves, [s.name for s in slots if s.kind == "size"]),
        output=template(*out_spec),
        output_count=len(graph.graph.output_node().args[0]),
        way=way,
        symbolic=bool(built.table) or not built.values,
        specialized={k: int(v) for k, v in replaced.items() if isinstance(v, sympy.Integer)},
        guards=tuple(str(g.expr) for g in built.env.guards),
        arguments=tuple(argument_names(built.model, len(built.inputs))),
    )


def _rename(node: torch.fx.Node, name: str) -> None:
    node.target = name
    node.name = name


def _restore_hints(env: ShapeEnv, original: Mapping[str, int]) -> None:
    """Hint every symbol with the problem's own size (tracing may have used others)."""
    hints = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
    for symbol in list(hints):
        if str(symbol) in original:
            hints[symbol] = sympy.Integer(original[str(symbol)])


def _slot(node: torch.fx.Node, leaf: Leaf, env: ShapeEnv) -> Slot:
    value = node.meta["val"]
    tensor = isinstance(value, torch.Tensor)
    mutated = any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users)
    return Slot(
        variable=node.name,
        kind=leaf.kind,
        name=leaf.name,
        index=leaf.index,
        dtype=str(value.dtype).removeprefix("torch.") if tensor else "int",
        shape=tuple(str(env.replace(sympy.sympify(getattr(getattr(d, "node", None), "expr", d)))) for d in value.shape) if tensor else (),
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


def symbolic(problem: Problem, options: Options) -> Captured:
    """Trace with symbols for all sizes; constants that break the module's construction are dropped one by one."""
    return trace(build(problem, None), options, "make_fx")


def static(problem: Problem, options: Options, notes: tuple[str, ...] = ()) -> Captured:
    """Trace at the problem's own sizes."""
    captured = trace(build(problem, set()), options, "static")
    captured.notes = notes
    return captured
