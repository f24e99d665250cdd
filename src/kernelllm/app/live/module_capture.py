"""A live module becomes an ATen graph by ``torch.export``, with dynamic sizes where the module allows."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from kernelllm.app.live.call_arguments import BoundCalls, Call, Flattened, flatten, names_of, one_device
from kernelllm.app.live.exported import FlatModule, exported, layer_by_layer, tidied
from kernelllm.app.live.filled_arguments import Filled
from kernelllm.app.live.half_graphs import in_each_type, is_float32_alone
from kernelllm.app.live.kept_tensors import KeptTensors, kept_state, no_other_dice
from kernelllm.app.live.program import Signature
from kernelllm.compiler.capture import modes
from kernelllm.core.background import TORCH
from kernelllm.core.errors import CaptureError, ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems.graphs.graph_problem import graph_problem
from kernelllm.problems.graphs.graph_text import LISTED, plain_text


@dataclass
class LiveGraph:
    """One forward of a live module for one set of example inputs."""

    graph: torch.fx.GraphModule
    state: dict[str, str]
    """Placeholder to the dotted name of a parameter, buffer or tensor attribute of the module."""
    constants: dict[str, torch.Tensor]
    """Tensors of the module that no state dict holds, by name."""
    inputs: list[torch.Tensor]
    signature: Signature
    output: Flattened
    """How the graph's outputs make the module's result; with further ones for ``fills``, a pair of it and these."""
    plain: dict[str, Any]
    """Arguments that are numbers, strings or None, by name: the graph holds for these values."""
    float32_alone: bool = False
    """Whether the module does something else in half precision, such as a conversion back to the type of its input."""
    fills: Filled | None = None
    left: tuple[str, ...] = ()
    """Tensors that the module's calls leave in it, and that the graph does not make."""


@contextmanager
def in_mode(module: torch.nn.Module, train: bool) -> Iterator[None]:
    """The module in a mode, which is put back; one that trains already keeps what it has frozen."""
    before = [(m, m.training) for m in module.modules()]
    if not (train and module.training):
        module.train(train)
    try:
        yield
    finally:
        for one, training in before:
            one.training = training


def captured(module: torch.nn.Module, call: Call) -> LiveGraph:
    """The graph of the module in its present mode. Raises UsageError for inputs or a module that cannot be taken, CaptureError."""
    names = BoundCalls(module.forward)
    named = names.named(*call)
    tensors: list[torch.Tensor] = []
    nest = flatten(named, tensors, "An argument of the module")
    found = names_of(named)
    one_device(module, dict(zip(found, tensors, strict=True)))
    depends: dict[str, bool] = {}
    kept = KeptTensors(module, lambda: depends.update(_first_run(module, names, nest, tensors)))
    outputs: list[tuple[Flattened, Filled | None]] = []
    flat = FlatModule(module, names, nest, outputs.append)
    program = exported(flat, tensors)
    structure, fills = outputs[-1]
    alone = is_float32_alone(program, flat, tensors)
    typed = in_each_type(program, flat, tensors) if alone else None
    alone = alone and typed is None
    graph = (typed or program).graph_module
    state, constants = _state(typed or program, program.constants)
    left = kept.refuse(program.constants.values(), state.values())
    places = [n for n in graph.graph.find_nodes(op="placeholder") if n.name not in state]
    for node, name in zip(places, found, strict=True):
        node.meta["argument"] = name
    plain = {n: v for n, v in named.items() if n.isidentifier() and (v is None or type(v) in (bool, int, float, str))}
    signature = Signature(
        names=tuple(found), nest=nest, dtypes=tuple(t.dtype for t in tensors), modes=tuple(depends.items()),
        written=frozenset(i for i, n in enumerate(places) if _is_written(n)),
        writes_state=any(_is_written(n) for n in graph.graph.find_nodes(op="placeholder") if n.name in state),
        halves=not alone, **_sizes(places),
    )  # fmt: skip
    return LiveGraph(graph, state, constants, tensors, signature, structure, plain, alone, fills, left)


def _first_run(module: torch.nn.Module, names: BoundCalls, nest: Flattened, tensors: list[torch.Tensor]) -> dict[str, bool]:
    """Run the module as it is, with its buffers and inputs put back; the modules whose mode it asks for. Raises ProblemError."""
    args, kwargs = names.call(nest.build([t.clone() for t in tensors]))
    found: dict[str, bool] = {}
    with TORCH, kept_state(module), layer_by_layer(), modes.noted(module, found), torch.no_grad():
        try:
            with no_other_dice(type(module).__name__):
                module.forward(*args, **kwargs)
        except CaptureError:
            raise
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0][:300]
            what = f"The module fails on the example inputs ({type(error).__name__}: {text})."
            raise ProblemError(what, fix="Call it once yourself to see the whole traceback.") from error
    return found


def _state(program: torch.export.ExportedProgram, values: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Placeholders that are the module's own tensors, and the values of those that no state dict holds."""
    from torch.export.graph_signature import InputKind

    state: dict[str, str] = {}
    constants: dict[str, torch.Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            continue
        if spec.target is None or not isinstance(spec.arg, torch.export.graph_signature.TensorArgument):
            raise CaptureError(f"The module holds {spec.target or spec.arg}, which is no tensor.", where="capture")
        name = spec.target.removeprefix("module.")
        state[spec.arg.name] = name
        if spec.kind is InputKind.CONSTANT_TENSOR or (spec.kind is InputKind.BUFFER and not spec.persistent):
            value = values.get(spec.target)
            assert isinstance(value, torch.Tensor)
            constants[name] = value
    return state, constants


def _is_written(node: torch.fx.Node) -> bool:
    """Whether the graph writes into this input, or into a view of it."""
    for user in node.users:
        if user.target is operator.getitem and _is_written(user):  # a view among several
            return True
        schema = getattr(user.target, "_schema", None)
        if schema is None:
            continue
        for argument, value in zip(schema.arguments, user.args, strict=False):
            alias = argument.alias_info
            if value is node and alias is not None and (alias.is_write or _is_written(user)):
                return True
    return False


def _sizes(places: list[torch.fx.Node]) -> dict[str, Any]:
    """Shapes, guards and lower bounds of a Signature."""
    from torch.utils._sympy.printers import PythonPrinter

    printer = PythonPrinter()
    shapes: list[tuple[int | str, ...]] = []
    env = None
    symbols: dict[str, Any] = {}
    for node in places:
        shape: list[int | str] = []
        for size in node.meta["val"].shape:
            if isinstance(size, torch.SymInt):
                env = size.node.shape_env
                symbols |= {str(s): s for s in size.node.expr.free_symbols}
            symbolic = isinstance(size, torch.SymInt) and not size.node.expr.is_number
            shape.append(printer.doprint(size.node.expr) if symbolic else int(size))
        shapes.append(tuple(shape))
    if env is None:
        return {"shapes": tuple(shapes)}
    guards = [printer.doprint(g.expr.xreplace(env.replacements)) for g in env.guards]
    lowest = [(text, int(env.var_to_range[s].lower)) for text, s in symbols.items() if s in env.var_to_range]
    return {"shapes": tuple(shapes), "guards": tuple(g for g in dict.fromkeys(guards) if g != "True"), "lowest": tuple(lowest)}


def problem_of(module: torch.nn.Module, live: LiveGraph, name: str) -> Problem:
    """The graph as a problem: parameters and buffers under their names in the module, small tensors of no state dict by their values.

    A graph of one mode alone says so, so that the written file refuses the other. Raises CaptureError for a graph that has no text.
    """
    graph = tidied(live.graph)
    persistent = set(module.state_dict(keep_vars=True))
    state = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    state = {n: t for n, t in state.items() if n in persistent}
    inputs: list[torch.Tensor] = []
    floats: list[str] = []
    given = iter(zip(live.signature.names, live.inputs, strict=True))
    for node in graph.graph.find_nodes(op="placeholder"):
        if node.name not in live.state:
            argument, tensor = next(given)
            node._rename(argument)  # which the graph may have made another, as for a builtin's name
            inputs.append(tensor)
            floats += [node.name] if tensor.dtype == torch.float32 else []
        elif (held := live.state[node.name]) in live.constants and _has_text(live.constants[held]):
            _hold(graph, node, held, live.constants[held])
        else:
            tensor = live.constants[held] if held in live.constants else _member(module, held)
            state.setdefault(held, tensor)
            inputs.append(tensor)
    output = graph.graph.output_node()
    output.args = (_plain_result(live.output, list(output.args[0])),)
    problem = graph_problem(graph, inputs, name=name, state=state)
    mode = live.signature.modes[0][1] if live.signature.modes else None
    typed = (floats[0] if floats else "next(self.parameters())") if live.float32_alone else ""
    return msgspec.structs.replace(problem, source=_restricted(problem.source, mode, live.plain, typed))


def _member(module: torch.nn.Module, name: str) -> torch.Tensor:
    owner, _, last = name.rpartition(".")
    found: torch.Tensor = getattr(module.get_submodule(owner), last)
    return found


def _has_text(value: torch.Tensor) -> bool:
    return value.numel() <= LISTED or bool(plain_text(value.detach().cpu()))


def _hold(graph: torch.fx.GraphModule, node: torch.fx.Node, name: str, value: torch.Tensor) -> None:
    """Make an input of the graph a tensor that it holds."""
    owner: torch.nn.Module = graph
    *path, last = name.split(".")
    for part in path:
        if not hasattr(owner, part):
            owner.add_module(part, torch.nn.Module())
        owner = getattr(owner, part)
    owner.register_buffer(last, value)
    with graph.graph.inserting_before(node):
        held = graph.graph.create_node("get_attr", name)
    held.meta = dict(node.meta)
    node.replace_all_uses_with(held)
    graph.graph.erase_node(node)


def _plain_result(nest: Flattened, nodes: list[Any]) -> Any:
    """The module's own structure where it is made of tuples, lists and dictionaries; else a tuple of all tensors."""
    value = nest.build(nodes)
    kinds = {type(part) for part in _parts(value)}
    return value if kinds <= {torch.fx.Node, tuple, list, dict} and nodes else tuple(nodes)


def _parts(value: Any) -> Iterator[Any]:
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ():
        yield from _parts(part)


def _restricted(source: str, training: bool | None, plain: Mapping[str, Any], float32: str) -> str:
    """The source with a Model that is made in the mode, where that matters, and refuses the other and other plain arguments.

    ``float32``: a tensor of which the Model refuses other types.
    """
    head, constructor, body = source.rpartition("        super().__init__()\n")
    made, signature, forward = body.rpartition("    def forward(")
    arguments, _, forward = forward.partition("\n")
    taken = {word.strip() for word in arguments.removesuffix("):").split(",")}
    lines = []
    if training is not None:
        call = "train()" if training else "eval()"
        lines = [f"if {'not ' if training else ''}self.training:", f'    raise RuntimeError("This is what the module does after {call}")']
    if float32:
        lines += [f"if {float32}.dtype != torch.float32:", '    raise ValueError("This is what the module does in float32")']
    kept = {n: v for n, v in plain.items() if n not in taken}
    for name, value in kept.items():
        text = f"{name}={value!r}"
        lines += [f"if {name} {'is not' if value is None else '!='} {value!r}:", f"    raise ValueError({f'The graph is for {text}'!r})"]
    if kept:
        arguments = f"{arguments.removesuffix('):')}, *, {', '.join(f'{n}={v!r}' for n, v in kept.items())}):"
    mode = "        self.eval()\n" if training is False else ""
    return "".join([head, constructor, mode, made, signature, arguments, "\n", *(f"        {line}\n" for line in lines), forward])
