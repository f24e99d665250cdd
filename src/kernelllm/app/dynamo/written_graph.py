"""A written file in the place of a graph of AOTAutograd's: its arguments, the layouts of its results, and the inputs that it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch
from torch import fx

from kernelllm.app import in_process
from kernelllm.app.dynamo import host_code
from kernelllm.app.dynamo.graph_parts import GraphParts, views_of_written
from kernelllm.problems.graphs.graph_problem import sizes_from_shapes
from kernelllm.problems.graphs.graph_text import traced_value
from kernelllm.problems.observed import hint

Run = Callable[[list[Any]], Sequence[Any]]


def written_run(module: ModuleType, parts: GraphParts, device: torch.device) -> Run:
    """What runs the graph by its file. It raises what the file raises; a first call that does so has changed no input."""
    vars(module)["check"] = _checked_by_dynamo
    with torch.random.fork_rng(devices=[]):
        model: torch.nn.Module = module.ModelNew().to(device)
    forward: Callable[..., Sequence[Any]] = _at_fixed_sizes(module, model, parts, device) or model.forward
    results = _results(parts.computed)
    results = results[: len(results) - len(parts.written)]
    layouts = [(i, order) for i, order in enumerate(map(_layout, results)) if order is not None]
    told = sizes_from_shapes(parts.computed)
    names = [n.name for n in placeholders(parts.computed)]
    taken = [i for i, name in enumerate(names) if name not in told and i not in parts.weights]
    weights = _Weights(model, parts.weights) if parts.weights else None
    takes_all = len(taken) == len(names)
    views = parts.views.forward if _results(parts.views) else None
    ready = not views and not parts.copied and all(there for there, _ in parts.places)
    ready = ready and [index for _, index in parts.places] == list(range(len(results)))
    constants, written, own = parts.constants, parts.written, views_of_written(parts) if parts.written else []
    tried = False

    def run(inputs: list[Any]) -> Sequence[Any]:
        nonlocal tried
        given = [*inputs, *constants] if constants else inputs
        if weights is not None:
            weights.set(given)
        arguments = given if takes_all else [given[i] for i in taken]
        if not tried or (device.type == "cuda" and device.index not in (None, torch.cuda.current_device())):
            with in_process.device_context(device):
                computed = list(forward(*arguments) if tried else _unchanged_by_a_failure(forward, arguments, [given[i] for i in written]))
            tried = True
        else:
            computed = list(forward(*arguments))
        for i, order in layouts:
            computed[i] = _laid_out(computed[i], order)
        for i in own:
            computed[i] = _apart_from(computed[i], [given[place] for place in written])
        if ready:
            return computed[: len(results)] if written else computed
        return parts.joined(given, computed, views(*given) if views else ())

    return run


class _Weights:
    """The tensors of a call in the place of a model's own parameters and buffers."""

    def __init__(self, model: torch.nn.Module, names: dict[int, str]) -> None:
        self._places = [(i, model._parameters if n in model._parameters else model._buffers, n) for i, n in names.items()]
        self._last: list[Any] = [None] * len(names)

    def set(self, inputs: Sequence[Any]) -> None:
        """They are the same ones at most calls."""
        for at, (place, held, name) in enumerate(self._places):
            if inputs[place] is not self._last[at]:
                held[name] = self._last[at] = inputs[place]


def _unchanged_by_a_failure(forward: Callable[..., Sequence[Any]], arguments: list[Any], written: list[torch.Tensor]) -> Sequence[Any]:
    before = [t.clone() for t in written]
    try:
        return forward(*arguments)
    except Exception:
        for tensor, kept in zip(written, before, strict=True):
            tensor.copy_(kept)
        raise


def _apart_from(result: torch.Tensor, written: list[torch.Tensor]) -> torch.Tensor:
    """The result in memory of its own: by the graph, an input has a copy of it."""
    if result.untyped_storage().data_ptr() in [t.untyped_storage().data_ptr() for t in written]:
        return result.clone()
    return result


def _at_fixed_sizes(module: ModuleType, model: torch.nn.Module, parts: GraphParts, device: torch.device) -> host_code.Run | None:
    """The file's forward, and from its third call on what was prepared for sizes that never change, if that gives the same bytes.

    None where sizes change, where the file is not for this graph's sizes, or where the graph writes into its inputs. Random numbers of
    the comparison are drawn again.
    """
    values = [traced_value(n) for n in placeholders(parts.computed)]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    if parts.written or len(tensors) < len(values):
        return None
    if any(not isinstance(s, int) for t in tensors for s in (*t.shape, *t.stride())):
        return None
    plain = getattr(model, host_code.METHOD, None)
    if plain is None:
        return None
    calls: list[tuple[Any, ...]] = []

    def noting(*inputs: Any) -> Any:
        calls.append(inputs)
        return plain(*inputs)

    setattr(model, host_code.METHOD, noting)
    chosen: host_code.Run | None = None

    def forward(*inputs: Any) -> Sequence[Any]:
        nonlocal chosen
        if chosen is not None:
            return chosen(*inputs)
        calls.clear()
        drawn = _generator(device).get_state()
        results: Sequence[Any] = model.forward(*inputs)
        if device.type == "cuda" and device.index not in (None, torch.cuda.current_device()):
            return results
        chosen = model.forward
        if len(calls) == 1 and len(calls[0]) == len(inputs) and all(a is b for a, b in zip(calls[0], inputs, strict=True)):
            with suppress(torch.OutOfMemoryError):  # results are there twice for a moment
                chosen = _if_equal(host_code.prepared(module, model, device), inputs, results, _generator(device), drawn) or chosen
        calls.clear()
        return results

    return forward


def _if_equal(
    prepared: host_code.Run | None, inputs: Sequence[Any], results: Sequence[Any], generator: torch.Generator, drawn: torch.Tensor
) -> host_code.Run | None:
    """``prepared`` where it computes these results of these inputs, twice: the second time launches go straight to the driver. Random
    numbers are those of the first run, whose generator had the state ``drawn``; what is drawn next does not change.
    """
    if prepared is None:
        return None
    after = generator.get_state()
    try:
        for _ in range(2):
            generator.set_state(drawn)
            again = prepared(*inputs)
            if len(again) != len(results) or not all(torch.equal(a, b) for a, b in zip(again, results, strict=True)):
                return None
    finally:
        generator.set_state(after)
    return prepared


def _generator(device: torch.device) -> torch.Generator:
    if device.type != "cuda":
        return torch.default_generator
    torch.cuda.init()
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


def _checked_by_dynamo(*_: Any) -> None:
    """Stands for the guards of a file: Dynamo guards dtypes, devices and sizes, and has done so when a graph is called."""


def placeholders(graph: fx.GraphModule) -> list[fx.Node]:
    """The inputs of a graph."""
    return list(graph.graph.find_nodes(op="placeholder"))


def _results(graph: fx.GraphModule) -> list[fx.Node]:
    results: Any = graph.graph.output_node().args[0]
    return list(results)


def _layout(node: fx.Node) -> tuple[int, ...] | None:
    """The order of a result's dimensions in memory, from the outermost to the innermost, that those who come after expect; empty for
    the usual one."""
    value = traced_value(node)
    if not isinstance(value, torch.Tensor) or any(s == 0 for s in map(hint, value.stride())):
        return None  # a repeated dimension is written out in the usual order
    order = sorted(range(value.dim()), key=lambda d: hint(value.stride()[d]), reverse=True)
    return tuple(order) if order != list(range(value.dim())) else ()


def _laid_out(tensor: Any, order: tuple[int, ...]) -> Any:
    """The tensor, dense in that order: itself, or a copy. What can be viewed in eager's layout, holes or not, can be viewed in this."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if not order:
        return tensor.contiguous()  # itself, mostly
    ordered = tensor.permute(order)
    if ordered.is_contiguous():
        return tensor
    return ordered.contiguous().permute(sorted(range(len(order)), key=order.__getitem__))
