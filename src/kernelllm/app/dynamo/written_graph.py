"""A written file in the place of a graph of AOTAutograd's: its arguments, the layouts of its results, and the inputs that it changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from types import ModuleType
from typing import Any

import torch
from torch import fx

from kernelllm.app import in_process
from kernelllm.app.dynamo import host_code, replayed_host
from kernelllm.app.dynamo.graph_parts import GraphParts, views_of_written
from kernelllm.problems.graphs.graph_problem import sizes_from_shapes
from kernelllm.problems.graphs.graph_text import traced_value
from kernelllm.problems.observed import hint

Run = Callable[[list[Any]], Sequence[Any]]
_MOST_RECORDS = 3
"""How often host code is recorded where weights change."""
_FURTHER = 4.0
"""How many times as far off a run may be as another run of the file was."""
_address, _version = torch.Tensor.data_ptr, attrgetter("_version")


def written_run(module: ModuleType, parts: GraphParts, device: torch.device) -> Run:
    """What runs the graph by its file. It raises what the file raises; a first call that does so has changed no input."""
    vars(module)["check"] = _checked_by_dynamo
    with torch.random.fork_rng(devices=[]):
        model: torch.nn.Module = module.ModelNew().to(device)
    results = _results(parts.computed)
    results = results[: len(results) - len(parts.written)]
    layouts = [(i, order) for i, order in enumerate(map(_layout, results)) if order is not None]
    told = sizes_from_shapes(parts.computed)
    names = [n.name for n in placeholders(parts.computed)]
    taken = [i for i, name in enumerate(names) if name not in told and i not in parts.weights]
    weights = _Weights(model, parts.weights) if parts.weights else None
    takes_all = len(taken) == len(names)
    changed = [taken.index(i) for i in parts.written if i in taken]
    forward: Callable[..., Sequence[Any]] = _at_fixed_sizes(module, model, parts, device, changed, weights) or model.forward
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
        self.tensors: list[Any] = [None] * len(names)
        """Those of the last call."""
        self.changes = 0
        """How often one of them was another one."""

    def set(self, inputs: Sequence[Any]) -> None:
        """Put these inputs into the module that the file defines; at most calls they are the same tensors as before."""
        for at, (place, held, name) in enumerate(self._places):
            if inputs[place] is not self.tensors[at]:
                held[name] = self.tensors[at] = inputs[place]
                self.changes += 1


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


def _at_fixed_sizes(
    module: ModuleType, model: torch.nn.Module, parts: GraphParts, device: torch.device, written: list[int], weights: _Weights | None
) -> host_code.Run | None:
    """The file's forward, and from its second call on what was prepared for sizes that never change, if that gives the same.

    None where sizes change. Where weights change that the file keeps, its host code is recorded again, a few times. Random numbers of
    the comparison are drawn again, and arguments that the graph writes into, at the places ``written``, are as they were before.
    """
    values = [traced_value(n) for n in placeholders(parts.computed)]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    if len(tensors) < len(values):
        return None
    if any(not isinstance(s, int) for t in tensors for s in (*t.shape, *t.stride())):
        return None
    name = host_code.METHOD if hasattr(model, host_code.METHOD) else "forward"  # a file for one set of sizes has no other method
    plain = getattr(model, name)
    calls: list[tuple[Any, ...]] = []

    def noting(*inputs: Any) -> Any:
        calls.append(inputs)
        return plain(*inputs)

    chosen: host_code.Run | None = None
    recorded: _State | None = None
    records = _MOST_RECORDS if weights else 1

    def forward(*inputs: Any) -> Sequence[Any]:
        nonlocal chosen, recorded, records
        if chosen is not None:
            if recorded is None or recorded.is_now():
                return chosen(*inputs)
            chosen = recorded = None
        drawn = _generator(device).get_state()
        before = [(inputs[i], inputs[i].clone()) for i in written]
        with _replaced(model, name, noting):
            results: Sequence[Any] = model.forward(*inputs)
        called = len(calls) == 1 and len(calls[0]) == len(inputs) and all(a is b for a, b in zip(calls[0], inputs, strict=True))
        calls.clear()
        if device.type == "cuda" and device.index not in (None, torch.cuda.current_device()):
            return results
        chosen = model.forward
        if called:
            replay = None

            def record() -> host_code.Run | None:
                nonlocal replay
                replay = replayed_host.replayed(module, model, plain, inputs)
                return replay

            ways: list[Callable[[], host_code.Run | None]] = [lambda: host_code.prepared(module, model, device)]
            if records:
                records -= 1
                ways.insert(0, record)
            with suppress(torch.OutOfMemoryError):  # results are there twice for a moment
                chosen = _first_equal(ways, model.forward, inputs, results, before, _generator(device), drawn) or chosen
            recorded = _State(weights) if weights and chosen is replay else None
        return results

    return forward


@contextmanager
def _replaced(model: torch.nn.Module, name: str, method: Callable[..., Any]) -> Iterator[None]:
    setattr(model, name, method)
    try:
        yield
    finally:
        delattr(model, name)


class _State:
    """Which weights a graph has, and what they hold."""

    def __init__(self, weights: _Weights) -> None:
        self._weights, self._found = weights, self._now(weights)

    def is_now(self) -> bool:
        """Whether they are as they were."""
        return self._now(self._weights) == self._found

    @staticmethod
    def _now(weights: _Weights) -> tuple[int, list[int], list[int]]:
        return weights.changes, [*map(_address, weights.tensors)], [*map(_version, weights.tensors)]


def _first_equal(
    ways: list[Callable[[], host_code.Run | None]], plain: host_code.Run, inputs: Sequence[Any], results: Sequence[Any],
    before: list[tuple[torch.Tensor, torch.Tensor]], generator: torch.Generator, drawn: torch.Tensor,
) -> host_code.Run | None:  # fmt: skip
    """The first way that computes these results of these inputs, twice: the second time launches go straight to the driver.

    Where ``plain``, which computed them, gives others at another run (atomic sums, cuDNN's gradients of attention), a way may be a few
    times as far off as these are. Random numbers are those of the first run, whose generator had the state ``drawn``; what is drawn next
    does not change. ``before``: inputs that are written, and what they held.
    """
    after, written = generator.get_state(), [tensor for tensor, _ in before]
    changed = [tensor.clone() for tensor in written]
    results = [_apart_from(result, written) for result in results] if written else results
    spread: list[float] = []

    def again(run: Callable[..., Any], *given: Any) -> Any:
        generator.set_state(drawn)
        for tensor, held in before:
            tensor.copy_(held)
        return run(*given)

    def distances(run: host_code.Run) -> list[float]:
        found = again(run, *inputs)
        if len(found) != len(results):
            return [math.inf]
        return [_distance(a, b) for a, b in [*zip(results, found, strict=True), *zip(changed, written, strict=True)]]

    def is_equal(run: host_code.Run) -> bool:
        nonlocal spread
        off = distances(run)
        if any(off):
            spread = spread or distances(plain)
        return not any(off) or (len(off) == len(spread) and all(d <= _FURTHER * s < math.inf for d, s in zip(off, spread, strict=True)))

    try:
        for way in ways:
            run: host_code.Run | None = again(way)
            if run is not None and is_equal(run) and is_equal(run):
                return run
    finally:
        generator.set_state(after)
        for tensor, held in zip(written, changed, strict=True):
            tensor.copy_(held)
    return None


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, 0.0 for the same bytes; infinite where one is not a number, or for whole numbers that differ."""
    if torch.equal(a, b):
        return 0.0
    if a.shape != b.shape or a.dtype != b.dtype or not a.is_floating_point():
        return math.inf
    off = float((a.float() - b.float()).abs().max())
    return off if math.isfinite(off) else math.inf


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
