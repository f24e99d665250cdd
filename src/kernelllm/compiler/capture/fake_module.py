"""The problem's module and its inputs on fake tensors: the start of every way of tracing."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from kernelllm.compiler.capture import free_dimensions, intercept, results, symbols
from kernelllm.compiler.capture.data_dependent import constructor_numbers
from kernelllm.compiler.capture.decompositions import constant_vectors
from kernelllm.compiler.capture.derived_sizes import views_as_asked
from kernelllm.compiler.capture.untraceable import Untraceable
from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems.fake_mode import fake_mode
from kernelllm.problems.instance import Instance, init_arguments, input_list


@dataclass
class FakeModule:
    """The problem's module and inputs on fake tensors, with symbols for the sizes in ``table``."""

    problem: Problem
    env: ShapeEnv
    mode: FakeTensorMode
    namespace: dict[str, Any]
    table: dict[str, torch.SymInt]
    model: torch.nn.Module
    inputs: list[Any]
    values: dict[str, int]
    factors: Mapping[str, symbols.Factor] = field(default_factory=dict)
    """What the sizes of the table were made multiples of."""
    attributes: dict[str, torch.Tensor] = field(default_factory=dict)
    constructor: dict[str, Any] = field(default_factory=dict)
    """The constructor's arguments by name, defaults included."""
    numbers: set[str] = field(default_factory=set)
    """Arguments of forward that are Python floats and inputs of the graph."""
    modes: dict[str, bool] = field(default_factory=dict)
    """Filled while the forward is traced: see :mod:`kernelllm.compiler.capture.modes`."""
    ways: int = 1
    """How many ways the forward may go by the values of tensors: see :mod:`kernelllm.compiler.capture.data_dependent.branches`."""
    asked: set[str] = field(default_factory=set)
    """What the forward asks for and is taken to find: see :mod:`kernelllm.compiler.capture.data_dependent.membership_tests`."""


def build(problem: Problem, keys: set[str] | None = None, factors: Mapping[str, symbols.Factor] | None = None,
          hints: Mapping[str, int] | None = None, *, counted: bool = False) -> FakeModule:
    """Run the problem on fake tensors with symbols for the constants in ``keys`` (None: for all that set sizes). ``counted``: a
    constructor that counts elements (``grid[mask]``, ``unique``) runs for real, so that the sizes of what it keeps are numbers.

    Raises ProblemError for code that does not run at all, Untraceable for code that does not run with symbols.
    """
    code, found = symbols.parse(problem)
    env = ShapeEnv(assume_static_by_default=False, specialize_zero_one=True, duck_shape=False)
    mode = fake_mode(shape_env=env)
    chosen = {k: (hints or {}).get(k, v) for k, v in found.items() if keys is None or k in keys}
    table = symbols.new_symbols(env, chosen, factors or {})
    try:
        known = intercept.real_factories(building=True)
        with torch.no_grad(), enable_python_dispatcher(), mode, symbols.symbol_aware(), known, views_as_asked():
            namespace = symbols.execute(problem, code, {**found, **table})
            with symbols.symbol_aware(namespace) if table else nullcontext():  # without symbols, ``type(n) is int`` should hold
                init = namespace["get_init_inputs"]() if "get_init_inputs" in namespace else []
                args, kwargs = init_arguments(init, namespace["Model"])
                model = namespace["Model"](*args, **kwargs)
                with _without_bounds(env):
                    inputs = input_list(namespace["get_inputs"](), problem)
                inputs, own = free_dimensions.with_own(env, model, inputs, argument_names(model, len(inputs)), keys)
    except KeyError as error:
        raise ProblemError(f"The problem defines no {error.args[0]}.", where=problem.path or problem.name) from error
    except Exception as error:  # code of others, which meets symbols that it does not expect, or reads values of fake tensors
        if keys is None or keys:
            raise Untraceable(f"building the module: {describe(error, problem)}") from error
        namespace, model, args, kwargs, inputs = _built_for_real(problem, mode)
        own = {}
    else:
        state = (*model.parameters(), *model.buffers(), *loose_tensors(model).values()) if counted else ()
        if any(isinstance(n, torch.SymInt) for t in state for n in t.shape):
            namespace, model, args, kwargs, inputs = _built_for_real(problem, mode)
    table, found = {**table, **own}, {**found, **{key: size.node.hint for key, size in own.items()}}
    constructor_numbers.make_known(problem, model, (args, kwargs), table)
    env.pending_fresh_unbacked_symbols.clear()  # of values that the constructor read, of masks that made the inputs
    built = FakeModule(problem, env, mode, namespace, table, model, inputs, found, factors or {})
    results.note_names(model)
    built.attributes = loose_tensors(model)
    built.constructor = _by_name(type(model), args, kwargs)
    return built


@contextmanager
def _without_bounds(env: ShapeEnv) -> Iterator[None]:
    """What the code inside finds sizes to be more or less than is forgotten: inputs may be made otherwise (``mask[:, -20:] = 0``)."""
    ranges, before = dict(env.var_to_range), len(env.guards)
    yield
    found = env.guards[before:]
    env.guards[before:] = [g for g in found if isinstance(g.expr, sympy.Eq)]
    if len(env.guards) < before + len(found):
        env.var_to_range.update({s: r for s, r in ranges.items() if s in env.var_to_range and s not in env.replacements})
        env._update_version_counter()


def _built_for_real(problem: Problem, mode: FakeTensorMode) -> tuple[dict[str, Any], torch.nn.Module, list[Any], dict[str, Any], list[Any]]:
    """The namespace, the module, its arguments and its inputs, made with real tensors and then fake at the problem's own sizes."""
    instance = Instance(problem)
    args, kwargs = instance.init_inputs(0)
    model, inputs = instance.model(0), instance.inputs(0)

    def fake(value: Any) -> Any:
        made = mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
        return constant_vectors.known(made, value.clone) if isinstance(value, torch.Tensor) and value.numel() == 1 else made

    for module in model.modules():
        for members in (module._parameters, module._buffers, vars(module)):
            members.update({name: fake(value) for name, value in members.items() if isinstance(value, torch.Tensor)})
    return instance.namespace, model, args, kwargs, pytree.tree_map(fake, inputs)


def _by_name(model: type, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a class by the names of its constructor; those gathered by ``*`` and ``**`` are a tuple and a dictionary."""
    try:
        signature = inspect.signature(model)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


@dataclass
class Leaf:
    """One flat argument of the traced function."""

    kind: Literal["input", "parameter", "buffer", "attribute", "size"]
    name: str
    value: Any
    index: int | None = None
    trained: bool = False
    """Whether it is a parameter that takes part in training."""


def describe(error: BaseException, problem: Problem | None = None) -> str:
    """One line for an exception: its type, the first line of its message, and the line of the problem it came from."""
    text = str(error).strip().splitlines()
    line = f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
    if "data-dependent" in line:  # torch tells of symbols that no reader knows; the line of the module says it all
        line = "the values of tensors decide what it does"
    if problem is not None:
        name = problem.path or f"<{problem.name}>"
        at = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name and frame.lineno]
        rows = problem.source.splitlines()
        if at and at[-1] <= len(rows):
            line += f" (line {at[-1]}: {rows[at[-1] - 1].strip()})"
    return line


def loose_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that modules hold as plain attributes, neither parameter nor buffer, by dotted path."""
    found = {}
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                found[f"{prefix}.{name}" if prefix else name] = value
    return found


def argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Names of the first ``count`` positional arguments of the model's forward."""
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{i}" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names[:count] + [f"input{i}" for i in range(len(names), count)]


def root_of(built: FakeModule, key: str) -> tuple[sympy.Symbol, symbols.Factor]:
    """The symbol made for a constant and the number or other constant that it is multiplied with, whatever was found since."""
    expression = built.table[key].node._expr
    factor = built.factors.get(key, 1)
    if isinstance(factor, str):
        (symbol,) = expression.free_symbols - built.table[factor].node._expr.free_symbols
        return symbol, factor
    (symbol,) = expression.free_symbols
    return symbol, int(expression.subs(symbol, 1))
