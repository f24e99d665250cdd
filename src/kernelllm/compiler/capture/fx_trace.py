"""Tracing with ``make_fx`` on fake tensors, symbolic or at the problem's own sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Literal, cast

import sympy
import torch
import torch.utils._pytree as pytree
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch._aot_autograd.functional_utils import from_fun, has_data_mutation, to_fun
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._sympy.functions import FloorDiv, Mod
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from kernelllm.compiler.capture import derived_sizes, divisible_sizes, intercept, modes, symbols
from kernelllm.compiler.capture.backward import GradientTrace, to_pair
from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.data_dependent import branches, membership_tests
from kernelllm.compiler.capture.decompositions import constant_vectors
from kernelllm.compiler.capture.fake_module import FakeModule, Leaf, argument_names, build, describe, loose_tensors, root_of
from kernelllm.compiler.capture.finalize import to_captured
from kernelllm.compiler.capture.results import RETURNED
from kernelllm.compiler.capture.tensor_lengths import symbolic_lengths
from kernelllm.compiler.capture.untraceable import Untraceable
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem
from kernelllm.problems.sizes import model_constants


def leaves_of(
    built: FakeModule, *, fixed_numbers: bool = False
) -> tuple[list[Leaf], Callable[..., tuple[Any, dict[int, torch.Tensor], Callable[[], AbstractContextManager[Any]]]]]:
    """The flat arguments of the graph (sizes, state, inputs) and the function of them that is to be traced.

    The function returns the forward's result, what it bound to tensor attributes by the position of their argument, and a
    context in which the module has that state again: a backward runs parts of the forward once more (``torch.utils.checkpoint``).
    ``fixed_numbers``: floats that the forward is given are no arguments of the graph.
    """
    model, mode = built.model, built.mode
    leaves = [Leaf("size", key, symbol) for key, symbol in built.table.items()]
    state_leaves = [Leaf("parameter", n, p, trained=p.requires_grad) for n, p in model.named_parameters()]
    state_leaves += [Leaf("buffer", n, b) for n, b in model.named_buffers()]
    state_leaves += [Leaf("attribute", n, t) for n, t in built.attributes.items()]
    names = argument_names(model, len(built.inputs))
    flat, spec = pytree.tree_flatten_with_path(built.inputs)
    input_leaves = []
    for path, value in flat:
        position = path[0].idx  # type: ignore[attr-defined]
        if type(value) is float and len(path) == 1 and not fixed_numbers:
            built.numbers.add(names[position])
            value = torch.empty((), dtype=_number_type(flat))
        input_leaves.append(Leaf("input", names[position] + pytree.keystr(path[1:]), value, position))
    leaves += state_leaves + input_leaves
    dynamic = [i for i, leaf in enumerate(leaves) if isinstance(leaf.value, torch.Tensor) or leaf.kind == "size"]

    def run(*values: Any) -> tuple[Any, dict[int, torch.Tensor], Callable[[], AbstractContextManager[Any]]]:
        current = [leaf.value for leaf in leaves]
        for i, value in zip(dynamic, values, strict=True):
            current[i] = _as_given(value, leaves[i])
        start = len(built.table)
        named = {leaf.name: v for leaf, v in zip(leaves, current, strict=True) if leaf.kind in ("parameter", "buffer")}
        loose = {leaf.name: v for leaf, v in zip(leaves, current, strict=True) if leaf.kind == "attribute"}
        arguments = pytree.tree_unflatten(current[start + len(state_leaves):], spec)
        symbols_now = dict(zip([leaf.name for leaf in leaves[:start]], current[:start], strict=True))
        attributes = {**loose, **_recomputed(built, symbols_now)}
        with _SwappedAttributes(model, attributes), symbolic_lengths(model):
            result, built.ways, built.asked = branches.joined(lambda: torch.func.functional_call(model, named, tuple(arguments)), values)
            after = loose_tensors(model)
        positions = {leaves[i].name: position for position, i in enumerate(dynamic) if leaves[i].kind == "attribute"}
        bound = {positions[n]: after[n] for n, before in loose.items() if n in after and after[n] is not before}
        if built.ways > 1 and (bound or torch.is_grad_enabled()):
            raise Untraceable("the values of tensors decide what it does, and it sets attributes or has gradients")

        @contextmanager
        def again() -> Iterator[None]:
            with _SwappedAttributes(model, attributes), symbolic_lengths(model), _reparametrize_module(model, named):
                yield

        return result, bound, again

    chosen = [leaves[i] for i in dynamic]
    for leaf in chosen:
        if isinstance(leaf.value, torch.Tensor):
            fixed = _fixed_number(model, leaf)
            leaf.value = _fake(leaf.value.detach(), mode)
            if fixed is not None:
                constant_vectors.known(leaf.value, lambda fixed=fixed: fixed)  # type: ignore[misc]
    return chosen, run


def _as_given(value: Any, leaf: Leaf) -> Any:
    """A traced value as the forward takes it to be: a trained one has gradients, and a parameter is one (``get_parameter`` asks)."""
    if leaf.kind == "parameter":
        value._is_param = True
    return value.requires_grad_() if leaf.trained else value  # a forward may ask for gradients itself


def _fixed_number(model: torch.nn.Module, leaf: Leaf) -> torch.Tensor | None:
    """The value of a whole number that the constructor made and no ``state_dict`` holds: modules keep kernel sizes so."""
    value = leaf.value
    if leaf.kind != "buffer" or not isinstance(value, FakeTensor) or value.constant is None or value.dtype.is_floating_point:
        return None
    owner, _, name = leaf.name.rpartition(".")
    return value.constant if name in model.get_submodule(owner)._non_persistent_buffers_set else None


def _number_type(inputs: list[tuple[Any, Any]]) -> torch.dtype:
    """The type in which a Python float meets these inputs: float32, as in torch's own kernels, unless one of them is wider."""
    wide = any(isinstance(v, torch.Tensor) and v.dtype in (torch.float64, torch.complex128) for _, v in inputs)
    return torch.float64 if wide else torch.float32


class _Arithmetic(PythonReferenceAnalysis):
    """Size formulas in Python numbers; torch leaves the quotient of two sizes out."""

    @staticmethod
    def int_truediv(a: Any, b: Any) -> Any:
        return a / b


def _recomputed(built: FakeModule, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Fractions that modules computed from sizes (``width ** -0.5``), computed again from the graph's size inputs."""
    values = {}
    for key, value in sizes.items():
        symbol, factor = root_of(built, key)
        values[symbol] = value // (sizes[factor] if isinstance(factor, str) else factor)
    found = {}
    for prefix, module in built.model.named_modules():
        for name, number in vars(module).items():
            if isinstance(number, torch.SymFloat) and number.node.expr.free_symbols <= set(values):
                path = f"{prefix}.{name}" if prefix else name
                found[path] = sympy_interp(_Arithmetic, values, number.node.expr)
    return found


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """The tensor as a fake one of ``mode`` that has no memory and no constant value."""
    with mode, enable_python_dispatcher():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


class _SwappedAttributes:
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


def _widens(graph: torch.fx.GraphModule, leaves: list[Leaf], numbers: Set[str]) -> bool:
    """Whether a Python number, which is a tensor in the graph, meets a tensor without dimensions of another floating type.

    Beside a number that tensor keeps its type, beside a tensor it takes the wider one.
    """
    placeholders = graph.graph.find_nodes(op="placeholder")
    known = {node for node, leaf in zip(placeholders, leaves, strict=True) if leaf.name in numbers}
    for node in graph.graph.nodes:
        read = {n: n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)}
        met = {v.dtype for n, v in read.items() if n in known}
        if met and node.op == "call_function":
            if read.keys() <= known:
                known.add(node)
            elif any(v.dim() == 0 and v.is_floating_point() and v.dtype not in met for n, v in read.items() if n not in known):
                return True
    return False


def trace(built: FakeModule, options: Options, way: Literal["make_fx", "static"], *, fixed_numbers: bool = False) -> Captured:
    """Trace the built problem. Raises Untraceable."""
    leaves, run = leaves_of(built, fixed_numbers=fixed_numbers)
    out_spec: list[Any] = []
    replaced: dict[int, str] = {}
    gradients = GradientTrace(leaves) if options.backward else None

    def flat(*values: Any) -> tuple[Any, ...]:
        result, bound, again = run(*(gradients.tracked(values) if gradients else values))
        out, spec = pytree.tree_flatten(result)
        out_spec[:] = [spec, [RETURNED if isinstance(o, torch.Tensor | torch.SymInt | torch.SymFloat) else o for o in out]]
        replaced.clear()
        replaced.update({i: leaves[i].name for i in bound})
        results = [o for o in out if isinstance(o, torch.Tensor | torch.SymInt | torch.SymFloat)]
        with again():
            found = gradients.gradients(results) if gradients else ()
        return (*results, *bound.values(), *found)

    try:
        with ExitStack() as stack:
            for context in (
                torch.set_grad_enabled(options.backward), enable_python_dispatcher(), built.mode,
                symbols.symbol_aware(built.namespace, building=False), intercept.real_factories(raises=not options.library),
                intercept.whole_layers(options), derived_sizes.naming(), divisible_sizes.looked_up(),
                torch.fx.traceback.preserve_node_meta(),
            ):  # fmt: skip
                stack.enter_context(context)
            stack.enter_context(modes.noted(built.model, built.modes))
            rules = intercept.decompositions(options)
            tracer = make_fx(functional(flat, replaced.keys()), decomposition_table=rules, record_module_stack=True)
            graph = tracer(*[leaf.value for leaf in leaves])
    except Exception as error:  # code of others, which meets symbols and fake tensors that it does not expect
        cause = error.cause if isinstance(error, Untraceable) else describe(error, built.problem)
        raise Untraceable(cause, way=f"tracing the forward ({way})") from error
    if built.asked and not membership_tests.positions_are_used(graph.graph, built.asked):
        raise Untraceable("the values of tensors decide what it does")
    if built.numbers and _widens(graph, leaves, built.numbers):
        built.numbers.clear()
        return trace(built, options, way, fixed_numbers=True)
    if gradients:
        captured = to_pair(built, options, graph, gradients, out_spec, way, len(replaced))
    else:
        captured = to_captured(built, options, graph, leaves, out_spec, way)
    captured.bound = tuple(replaced.values())
    return captured


def symbolic(problem: Problem, options: Options) -> Captured:
    """Trace with symbols for all sizes.

    A size that the code divides by a number (heads, groups) is traced again as a multiple of its symbol, which keeps
    every quotient exact. Sizes that were only found equal because their values coincide are told apart where the same
    graph comes out at other values.
    """
    built = build(problem)
    factors = _divisors(built)
    if factors:
        built = build(problem, factors=factors)
    captured = trace(built, options, "make_fx")
    more = _divisors(built)
    if more:
        factors = {k: _combined(factors.get(k, 1), more.get(k, 1)) for k in {*factors, *more}}
        built = build(problem, factors=factors)
        captured = trace(built, options, "make_fx")
    read = {size.symbol for size in captured.sizes}
    kept = {k: f for k, f in factors.items() if {str(s) for s in built.env.replace(built.table[k].node._expr).free_symbols} <= read}
    if kept != factors:  # the code only decides by them: as plain sizes, what it decided is a condition that the file checks
        built, factors = build(problem, factors=kept), kept
        captured = trace(built, options, "make_fx")
    return _separated(problem, options, built, captured, factors)


def of_inputs(problem: Problem, options: Options) -> Captured:
    """Trace with symbols for the sizes that the inputs alone have, such as the batch: the model is built at the problem's own sizes."""
    held = {key: n for key, n in symbols.parse(problem)[1].items() if key.partition("[")[0] in model_constants(problem.source)}
    keys = set(symbols.parse(problem)[1]) - held.keys()
    if not held or not keys:
        raise Untraceable("inputs have no sizes of their own", way="tracing the forward (sizes of inputs)")
    built = build(problem, keys=keys)
    if factors := _divisors(built):
        built = build(problem, keys=keys, factors=factors)
    captured = trace(built, options, "make_fx")
    captured.specialized |= held
    return captured


def _combined(known: symbols.Factor, more: symbols.Factor) -> symbols.Factor:
    """The product of two numbers; of a number and a size, the one that was found first."""
    if isinstance(known, int) and isinstance(more, int):
        return known * more
    return more if known == 1 else known


def _divisors(built: FakeModule) -> dict[str, symbols.Factor]:
    """Key to the number, or the other key, that its symbol was found divisible by, from the guards."""
    found: dict[str, symbols.Factor] = {}
    of_symbol = {s: k for k, v in built.table.items() if not isinstance(built.factors.get(k), str) for s in v.node._expr.free_symbols}
    for guard in built.env.guards:
        symbol, divisor = _divided(guard.expr, built)
        if symbol not in of_symbol or built.env.replace(symbol) != symbol:
            continue
        key = of_symbol[symbol]
        known = found.get(key, 1)
        if divisor.is_Integer and isinstance(known, int):
            merged = math.lcm(known, int(divisor))
            if built.values[key] // merged >= 2 and built.values[key] % merged == 0:
                found[key] = merged
        elif divisor in of_symbol and _plain(built, key, of_symbol[divisor], found):
            found[key] = of_symbol[divisor]
    return found


def _divided(guard: Any, built: FakeModule) -> tuple[Any, Any]:
    """The symbol and what it is a multiple of, where a guard says that: ``Mod(n, 2) == 0``, or another that holds for multiples alone,
    such as ``(n + 1) // 2 == n // 2`` of the halves that ``chunk`` makes, if the file sees n itself, as the side of a tensor."""
    if not isinstance(guard, sympy.Eq):
        return None, None
    if isinstance(guard.lhs, Mod) and guard.rhs == 0:
        return guard.lhs.args[0], guard.lhs.args[1]
    named, hints = guard.free_symbols, derived_sizes.hints(built.env)
    if len(named) == 1 and named <= hints.keys() and named <= _sides(built):
        (symbol,) = named
        first = int(hints[symbol])
        for divisor in {q.args[1] for q in guard.atoms(FloorDiv) if q.args[1].is_Integer and 1 < q.args[1] <= _MOST_TRIED}:
            if all((guard.xreplace({symbol: sympy.Integer(n)}) == True) == (n % divisor == 0) for n in range(first, first + 2 * divisor)):  # noqa: E712
                return symbol, divisor
    return None, None


def _sides(built: FakeModule) -> set[Any]:
    """The symbols that are a side of a parameter, a buffer or an input as they are."""
    given = (*built.model.parameters(), *built.model.buffers(), *pytree.tree_leaves(built.inputs))
    sides: list[Any] = [n for t in given if isinstance(t, torch.Tensor) for n in t.shape]
    return {n.node._expr for n in sides if isinstance(n, torch.SymInt)}


_MOST_TRIED = 64


def _plain(built: FakeModule, key: str, divisor: str, found: Mapping[str, symbols.Factor]) -> bool:
    """Whether the size ``key`` may become a multiple of the size ``divisor``: both plain symbols so far, no chain of multiples."""
    whole = built.values[key] % built.values[divisor] == 0 and built.values[key] // built.values[divisor] >= 2
    free = key not in {*built.factors, *found, *built.factors.values(), *found.values()} and divisor not in {*built.factors, *found}
    return whole and free and built.env.replace(built.table[divisor].node._expr).is_Symbol


def _separated(problem: Problem, options: Options, built: FakeModule, captured: Captured, factors: dict[str, symbols.Factor]) -> Captured:
    """Trace once more with other values for sizes that were found equal; the result is kept if the graph is the same."""
    exact = {k: (v.node._expr, built.env.replace(v.node._expr)) for k, v in built.table.items()}
    merged = [k for k, (was, now) in exact.items() if was != now and not now.is_number]
    if not merged:
        return captured
    fixed = {f for f in factors.values() if isinstance(f, str)}
    steps = {k: built.values[f] if isinstance(f := factors.get(k, 1), str) else f for k in merged}
    hints = {k: built.values[k] + (7 + 2 * i) * step for i, (k, step) in enumerate(steps.items()) if k not in fixed}
    try:
        other = trace(build(problem, factors=factors, hints=hints), options, "make_fx")
    except Untraceable:
        return captured
    same = [str(n.target) for n in other.graph.graph.nodes if n.op == "call_function"] == [
        str(n.target) for n in captured.graph.graph.nodes if n.op == "call_function"
    ]
    return other if same else captured


def static(problem: Problem, options: Options, notes: tuple[str, ...] = ()) -> Captured:
    """Trace at the problem's own sizes."""
    counted = options.library and not options.unroll  # a path of a file, which looks at them
    captured = trace(build(problem, set(), counted=counted), options, "static")
    captured.notes = notes
    return captured


def functional(function: Callable[..., tuple[Any, ...]], replaced: Set[int] = frozenset()) -> Callable[..., tuple[Any, ...]]:
    """``function`` of flat arguments without mutations inside; an argument it wrote into gets one ``copy_`` of the result.

    ``replaced`` holds, once the function has run, the positions of arguments that nobody sees afterwards: writes into those are dropped.
    """

    def run(*args: Any) -> tuple[Any, ...]:
        off = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
        with off, FunctionalTensorMode():
            wrapped = pytree.tree_map_only(torch.Tensor, to_fun, args)
            outputs = pytree.tree_map(from_fun, function(*wrapped))
            written = [
                (argument, cast(torch.Tensor, from_fun(wrapper)))
                for i, (argument, wrapper) in enumerate(zip(args, wrapped, strict=True))
                if isinstance(argument, torch.Tensor) and has_data_mutation(wrapper) and i not in replaced
            ]
        for argument, value in written:
            argument.copy_(value)
            outputs = tuple(argument if o is value else o for o in outputs)
        return tuple(outputs)

    return run
