"""Tracing with ``torch.export``: the fallback for modules that ``make_fx`` cannot trace with symbols everywhere.

Parameters keep the problem's own sizes; the inputs' dimensions become symbols where export finds that they may.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensor

from kernelllm.compiler.capture import intercept, least_sizes, modes
from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.fake_module import FakeModule, Leaf, argument_names, build, describe
from kernelllm.compiler.capture.finalize import to_captured
from kernelllm.compiler.capture.results import RETURNED
from kernelllm.compiler.capture.tensor_caches import no_kept_tensors
from kernelllm.compiler.capture.untraceable import Untraceable
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem


def exported(problem: Problem, options: Options) -> Captured:
    """Trace with ``torch.export``. Raises Untraceable naming the operator or construct that it rejects."""
    built = build(problem, set())
    names = argument_names(built.model, len(built.inputs))
    shapes = {n: pytree.tree_map(_automatic, value) for n, value in zip(names, built.inputs, strict=True)}
    try:
        in_time = intercept.InTime()
        noted = least_sizes.noted(), modes.noted(built.model, built.modes)
        with torch.no_grad(), in_time, noted[0], no_kept_tensors(), intercept.whole_layers(options), _without_partial_graphs(), noted[1]:
            program = torch.export.export(built.model, tuple(built.inputs), dynamic_shapes=shapes, strict=False)
            _refuse_saved(program, built)
            program = program.run_decompositions(intercept.decompositions())
    except Exception as error:  # code of others, and torch's compiler
        cause = error.cause if isinstance(error, Untraceable) else describe(error, problem)
        raise Untraceable(cause, way="torch.export") from error
    graph = program.graph_module
    _held_constants(graph, program, built)
    leaves = _leaves(program, built, names)
    _writes_in_place(graph, program)
    placeholders = graph.graph.find_nodes(op="placeholder")
    built.env = next((d.node.shape_env for n in placeholders for d in _symints(n.meta.get("val"))), built.env)
    _adopt_sizes(built, placeholders, leaves)
    graph.graph.set_codegen(torch.fx.graph.CodeGen())
    results = program.graph_signature.output_specs
    constants = [s.arg.value if isinstance(s.arg, torch.export.graph_signature.ConstantArgument) else RETURNED
                 for s in results if s.kind is torch.export.graph_signature.OutputKind.USER_OUTPUT]
    output = graph.graph.output_node()
    output.args = (tuple(a for a in output.args[0] if isinstance(a, torch.fx.Node)),)
    captured = to_captured(built, options, graph, leaves, [program.call_spec.out_spec, constants], "export")
    captured.notes = ("captured by torch.export: sizes of parameters are the problem's own",)
    return captured


@contextlib.contextmanager
def _without_partial_graphs() -> Iterator[None]:
    """``torch.export`` prints the graph so far when it gives up; its module gets a ``print`` of its own. Callers hold the TORCH lock."""
    module: Any = import_module("torch.export._trace")
    module.print = lambda *values, **options: None
    try:
        yield
    finally:
        del module.print


def _automatic(value: Any) -> Any:
    return dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO) if isinstance(value, torch.Tensor) else None


def _symints(value: Any) -> list[torch.SymInt]:
    sizes = list(value.shape) if isinstance(value, torch.Tensor) else [value]
    return [s for s in sizes if isinstance(s, torch.SymInt)]


def _leaves(program: torch.export.ExportedProgram, built: FakeModule, names: list[str]) -> list[Leaf]:
    """What each argument of the exported graph is."""
    from torch.export.graph_signature import InputKind

    flat, _ = pytree.tree_flatten_with_path(built.inputs)
    inputs = iter([(names[path[0].idx] + pytree.keystr(path[1:]), path[0].idx) for path, _ in flat])  # type: ignore[attr-defined]
    kinds = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer"}
    leaves = []
    for spec, node in zip(program.graph_signature.input_specs, program.graph.find_nodes(op="placeholder"), strict=True):
        value = node.meta.get("val")
        if spec.kind is InputKind.USER_INPUT:
            name, index = next(inputs)
            leaves.append(Leaf("input", name, value, index))
        elif spec.kind in kinds and spec.target is not None:
            leaves.append(Leaf(kinds[spec.kind], spec.target, value))  # type: ignore[arg-type]
        elif spec.kind is InputKind.CONSTANT_TENSOR and spec.target in built.attributes:
            leaves.append(Leaf("attribute", str(spec.target), value))
        else:
            raise Untraceable(f"torch.export: the graph needs the constant {spec.target}, which is no attribute of the module")
    return leaves


def _refuse_saved(program: torch.export.ExportedProgram, built: FakeModule) -> None:
    """Raises where the graph reads what autograd saved inside of the forward: for torch.export such tensors are constants without a
    value, and decomposing the graph can crash."""
    targets = [spec.target for spec in program.graph_signature.input_specs]
    for target in targets:
        if isinstance(program.constants.get(str(target)), FakeTensor) and target not in built.attributes:
            raise Untraceable(f"the graph needs the constant {target}, which is no attribute of the module")


def _held_constants(graph: torch.fx.GraphModule, program: torch.export.ExportedProgram, built: FakeModule) -> None:
    """Tensors that the forward makes of numbers are arguments of an exported graph; here the graph holds them, as one of make_fx does."""
    specs = program.graph_signature.input_specs
    for spec, node in zip(list(specs), graph.graph.find_nodes(op="placeholder"), strict=True):
        value = program.constants.get(str(spec.target))
        fake = isinstance(value, FakeTensor) or not isinstance(value, torch.Tensor)
        if spec.kind is not torch.export.graph_signature.InputKind.CONSTANT_TENSOR or spec.target in built.attributes or fake:
            continue
        name = "_held_" + str(spec.target).replace(".", "_")
        graph.register_buffer(name, value)
        with graph.graph.inserting_before(node):
            held = graph.graph.get_attr(name)
        held.meta.update(node.meta)
        node.replace_all_uses_with(held)
        graph.graph.erase_node(node)
        specs.remove(spec)
    first = next((n for n in graph.graph.nodes if n.op not in ("placeholder", "get_attr")), None)
    for node in graph.graph.find_nodes(op="get_attr"):  # behind the arguments
        if first is not None:
            first.prepend(node)


def _writes_in_place(graph: torch.fx.GraphModule, program: torch.export.ExportedProgram) -> None:
    """Exported graphs return new values of buffers and written inputs first; here they are copied into the arguments."""
    from torch.export.graph_signature import OutputKind

    output = graph.graph.output_node()
    results: list[Any] = list(output.args[0])
    by_target = {s.target: s.arg.name for s in program.graph_signature.input_specs if hasattr(s.arg, "name")}
    kept = []
    for spec, value in zip(program.graph_signature.output_specs, results, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            kept.append(value)
            continue
        name = by_target.get(spec.target, spec.target)
        target = next(n for n in graph.graph.find_nodes(op="placeholder") if n.name == name)
        with graph.graph.inserting_before(output):
            written = graph.graph.call_function(torch.ops.aten.copy_.default, (target, value))
        written.meta["val"] = target.meta["val"]
    output.args = (tuple(kept),)


def _adopt_sizes(built: FakeModule, placeholders: list[torch.fx.Node], leaves: list[Leaf]) -> None:
    """Make a size argument of every symbol that export gave an input's dimension."""
    known: set[Any] = set()
    made: list[Leaf] = []
    for node, leaf in zip(placeholders, list(leaves), strict=True):
        value = node.meta.get("val")
        for dim, size in enumerate(value.shape) if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and size.node._expr.is_Symbol and size.node._expr not in known:
                known.add(size.node._expr)
                key = f"{leaf.name}_dim{dim}"
                built.table[key] = size
                built.values[key] = size.node.hint
                made.append(Leaf("size", key, size))
    graph = placeholders[0].graph if placeholders else None
    for leaf in reversed(made):
        assert graph is not None
        with graph.inserting_before(next(iter(graph.nodes))):
            node = graph.placeholder("size_argument")
        node.meta["val"] = leaf.value
    leaves[:0] = made
