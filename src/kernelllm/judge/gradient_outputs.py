"""Makes gradients outputs: a model's call gives its output, and the gradients of its inputs and parameters beside it.

Reference, candidate and baselines are all called this way where a backward is asked for, so that everything that looks at outputs looks
at gradients as well. The gradients that come in are random, the same on both sides, and not always contiguous.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm.core.types import GRADIENTS, Problem
from kernelllm.judge.judge_settings import JudgeSettings
from kernelllm.judge.transport import trusted_torch, values
from kernelllm.judge.transport.protocol import Gradients
from kernelllm.problems.nested import mapped

OUTPUT, GRADIENT = "output", "grad of "
"""Keys of what a call gives: the output, and the gradient of each tensor."""
IN_TURN, TWICE = "in turn", "twice"
"""Other orders: the inputs are those of two calls, whose forwards both come before their backwards, and two results are given; or the
backward runs twice, and the second one counts."""
INPUTS_CHANGE, PARAMETERS_CHANGE, OUTPUTS_CHANGE = "inputs change", "parameters change", "outputs change"
"""Or these change in place between forward and backward."""
ALONE = "alone "
"""With a number behind it: a gradient comes in for that output alone, as where a loss is made of one of several."""
EXPANDED = "expanded"
"""The gradients that come in are one number for all elements, and one in memory, as those of a sum or a mean."""
ADDED = "added"
"""``backward()`` adds gradients to those that are there (each is 1), as where a step is made of several batches."""
SCALES = {"large loss": 2.0**16, "small loss": 2.0**-16}
"""Or the loss is so many times as large, and gradients are divided by that afterwards, as a scaler of losses in half precision does."""
SECOND = "second"
"""Gradients of gradients, as a penalty on gradients needs them; zeros where there are none."""
NOT_FINITE = "not finite"
"""NaN and infinities are among the gradients that come in, as where a loss overflows: a scaler of losses looks for them afterwards."""
_LAYOUTS = 3
"""Incoming gradients are contiguous, parts of longer rows as behind ``torch.cat``, and transposed in turn."""
_SEED = 20_011


def wanted(settings: JudgeSettings, problem: Problem) -> bool:
    """Whether gradients are judged: the settings or the problem's tags ask for it."""
    return settings.backward or GRADIENTS in problem.tags


def of_reference(model: torch.nn.Module) -> Gradients:
    arguments = tuple(n for n, p in inspect.signature(model.forward).parameters.items() if p.kind is not p.VAR_KEYWORD)
    return Gradients(arguments, tuple(n for n, p in model.named_parameters() if p.requires_grad))


def named(value: Any) -> bool:
    """Whether this is what :class:`Differentiated` gives."""
    return isinstance(value, dict) and OUTPUT in value and all(k == OUTPUT or str(k).startswith(GRADIENT) for k in value)


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class _Graph:
    """A forward's output as a tree and its tensors, and what gradients are asked of: inputs and parameters by name."""

    tree: Any
    tensors: list[torch.Tensor]
    sources: Mapping[str, torch.Tensor]
    known: Mapping[str, torch.Tensor]


class Differentiated:
    """A model whose call runs its backward as well. ``owner``: the module with the parameters, where that is not the model itself."""

    def __init__(self, model: Any, of: Gradients, owner: Any = None) -> None:
        self._model, self._of, self._owner = model, of, model if owner is None else owner
        self._incoming: dict[Any, torch.Tensor] = {}
        self.between: Callable[[], None] = _nothing
        """Called after the forward and before the backward."""
        self.layouts = False
        """Whether two of three calls get incoming gradients that are not contiguous."""
        self.frozen: tuple[str, ...] = ()
        """Inputs and parameters that need no gradients."""
        self.order = ""
        """Of forwards and backwards: :data:`IN_TURN`, :data:`TWICE`, or one after the other, where something may change in between."""
        self.repeats = False
        """Whether a call is the one before once more: incoming gradients lie in memory as they did."""
        self._calls = 0

    def asked(self, frozen: tuple[str, ...], order: str, *, repeats: bool) -> None:
        """How the next call is made, with incoming gradients in several layouts."""
        self.layouts, self.frozen, self.order, self.repeats = True, frozen, order, repeats

    def __call__(self, *inputs: Any) -> Any:
        """The output under :data:`OUTPUT`, and each gradient under its name; None for one that autograd does not know."""
        if self.order != IN_TURN:
            with self._graph(*inputs) as graph:
                self.between()
                return self._result(graph)
        half = len(inputs) // 2
        with self._graph(*inputs[:half]) as first, self._graph(*inputs[half:]) as second:
            self.between()
            return [self._result(first), self._result(second)]

    @contextlib.contextmanager
    def _graph(self, *inputs: Any) -> Iterator[_Graph]:
        """After a forward, and before its backward."""
        leaves: dict[int, torch.Tensor] = {}

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in leaves:
                leaves[id(tensor)] = tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor
            return leaves[id(tensor)]

        given = mapped(list(inputs), leaf)
        sources = {name: t for i, value in enumerate(given) for name, t in _tensors(self._argument(i), value) if t.requires_grad}
        parameters = dict(self._owner.named_parameters(remove_duplicate=False)) if isinstance(self._owner, torch.nn.Module) else {}
        known = {n: parameters[n] for n in self._of.parameters if n in parameters and parameters[n].requires_grad}
        with torch.enable_grad(), _frozen({**sources, **known}, self.frozen):
            for name in self.frozen:
                sources.pop(name, None), known.pop(name, None)
            output = self._model(*given)
            tensors: list[torch.Tensor] = []
            tree = values.encode(output, tensors, strict=not _fake(given))
            yield _Graph(tree, tensors, sources, known)

    def _result(self, graph: _Graph) -> dict[str, Any]:
        """What a call gives, by its backward."""
        sources, known = graph.sources, graph.known
        made = {str(number): t for number, t in enumerate(graph.tensors) if t.is_floating_point()}
        changing = {INPUTS_CHANGE: sources, PARAMETERS_CHANGE: known, OUTPUTS_CHANGE: made}.get(self.order, {})
        with torch.no_grad():
            for tensor in {id(t): t for t in changing.values()}.values():
                tensor.add_(1.0)
        asked = [*sources.values(), *known.values()]
        if self.order == TWICE:
            self._gradients(graph.tensors, asked, retain=True)
        ways = {SECOND: self._second, ADDED: self._added}
        found = ways.get(self.order, self._gradients)(graph.tensors, asked)
        gradients = dict(zip([*sources, *known], found, strict=True))
        detached = [trusted_torch.detach(t) for t in graph.tensors]
        names = [*sources, *self._of.parameters]
        return {OUTPUT: values.decode(graph.tree, detached.__getitem__), **{GRADIENT + name: gradients.get(name) for name in names}}

    def _argument(self, position: int) -> str:
        names = self._of.arguments
        return names[position] if position < len(names) else f"input {position}"

    def _gradients(self, outputs: list[torch.Tensor], sources: list[torch.Tensor], retain: bool = False) -> list[torch.Tensor | None]:
        self._calls += not self.repeats
        alone = int(self.order.removeprefix(ALONE)) if self.order.startswith(ALONE) else None
        pairs = [(t, self._incoming_gradient(i, t)) for i, t in enumerate(outputs) if t.requires_grad and alone in (None, i)]
        if not pairs or not sources:
            return [None] * len(sources)
        scale = SCALES.get(self.order, 1.0)
        incoming = [g if scale == 1 else g * scale for _, g in pairs]
        found = torch.autograd.grad([t for t, _ in pairs], sources, incoming, retain_graph=retain, allow_unused=True)
        return [g if g is None or scale == 1 else g / scale for g in found]

    def _added(self, outputs: list[torch.Tensor], sources: list[torch.Tensor]) -> list[torch.Tensor | None]:
        pairs = [(t, self._incoming_gradient(i, t)) for i, t in enumerate(outputs) if t.requires_grad]
        for tensor in sources:
            tensor.grad = torch.ones_like(tensor)
        torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        found = [None if t.grad is None else t.grad.detach() for t in sources]
        for tensor in sources:
            tensor.grad = None
        return found

    def _second(self, outputs: list[torch.Tensor], sources: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """Of a loss that is no linear function of the outputs, so that their gradients have gradients."""
        with torch.enable_grad():
            losses = [(self._incoming_gradient(i, t) * t.square()).sum() for i, t in enumerate(outputs) if t.requires_grad]
            first = torch.autograd.grad(sum(losses), sources, create_graph=True, allow_unused=True)  # type: ignore[arg-type]
            of = [(self._incoming_gradient(len(outputs) + i, g) * g).sum() for i, g in enumerate(first) if g is not None]
            for tensor in sources:
                tensor.grad = None
            torch.autograd.backward(sum(of))  # type: ignore[arg-type]  # raises where a gradient is said to have none; ``grad`` does not
        found = [torch.zeros_like(t) if t.grad is None else t.grad.detach() for t in sources]
        for tensor in sources:
            tensor.grad = None
        return [*found]

    def _incoming_gradient(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """Random numbers of which every type of at least eight significant bits holds the same ones."""
        if _fake(output):
            return torch.ones_like(output, memory_format=torch.contiguous_format)
        if self.order == EXPANDED:
            return torch.ones((), dtype=output.dtype, device=output.device).expand(output.shape)
        layout = self._calls % _LAYOUTS if self.layouts and output.dim() > 1 else 1
        key = (number, output.shape, output.dtype, output.device, layout)
        if key not in self._incoming:
            with trusted_torch.no_hooks(), torch.no_grad():
                generator = torch.Generator(output.device).manual_seed(_SEED + number)
                kind = torch.complex64 if output.is_complex() else torch.float32
                drawn = torch.randn(output.shape, dtype=kind, device=output.device, generator=generator)
                drawn = drawn if output.is_complex() else drawn.to(torch.bfloat16)
                drawn = drawn.to(output.dtype)
                wider = torch.cat([drawn, drawn], -1)[..., : drawn.shape[-1]] if layout > 1 else drawn
                self._incoming[key] = wider if layout else drawn.mT.contiguous().mT
        return self._incoming[key] if self.order != NOT_FINITE else _with_ends(self._incoming[key])


def _with_ends(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with NaN first and in the middle, and infinity last."""
    changed = tensor.detach().clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    flat[: flat.numel() : max(flat.numel() // 2, 1)], flat[-1:] = torch.nan, torch.inf
    return changed


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(f"{name}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _tensors(f"{name}[{i}]", item)


@contextlib.contextmanager
def _frozen(tensors: dict[str, torch.Tensor], names: Sequence[str]) -> Iterator[None]:
    frozen = [tensor for name, tensor in tensors.items() if name in names]
    for tensor in frozen:
        tensor.requires_grad_(False)
    try:
        yield
    finally:
        for tensor in frozen:
            tensor.requires_grad_(True)


def _fake(value: Any) -> bool:
    """Whether there are tensors without memory among these."""
    kinds = {type(t).__name__ for t in torch.utils._pytree.tree_leaves(value)}
    return "FakeTensor" in kinds
