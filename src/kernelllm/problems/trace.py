"""Shapes, elements and operations of a problem at given sizes, from meta or fake tensors, without computing it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.quiet import quiet_thread
from kernelllm.problems.fake_mode import fake_mode
from kernelllm.problems.instance import Instance
from kernelllm.problems.meta_tensors import meta_tensors
from kernelllm.problems.nested import tensors

MAX_OPS = 3_000
"""Where a run stops being followed: a recurrent network over a long sequence says nothing new after so many operators."""
REAL_ELEMENTS = 4_000_000
"""Where neither meta nor fake tensors can follow a problem, it really runs, but only below so many elements of inputs and parameters."""


@dataclass(frozen=True)
class Trace:
    """One dry run. Shapes are tuples of ints; counts are elements and floating-point operations (a multiply-add is two)."""

    inputs: tuple[tuple[int, ...], ...]
    parameters: tuple[tuple[int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    """Every operator's output tensors, in the order of the run."""
    flops: int
    input_bytes: int = 0
    parameter_bytes: int = 0
    """Bytes of parameters and buffers."""
    ran: bool = True
    """False where the run was not followed to its end (too many operators, or too large to run for real): counts are then too low."""
    on_cuda: bool = True
    """False where an operator takes such sizes on a CPU alone."""

    @property
    def largest(self) -> int:
        """Elements of the largest tensor that comes in or is computed."""
        return max((math.prod(s) for s in (*self.inputs, *self.shapes)), default=0)

    @property
    def input_elements(self) -> int:
        return sum(math.prod(s) for s in self.inputs)

    @property
    def work(self) -> int:
        """Elements computed, over all operators."""
        return sum(math.prod(s) for s in self.shapes)


class _TooMany(BaseException):
    """Ends a run that was followed for long enough; not an Exception, so that no problem's own ``except`` swallows it."""


def _run(instance: Instance, model: torch.nn.Module | None, *, limit: bool = False) -> Trace:
    import torch

    model = model or instance.model(0)
    inputs = instance.inputs(0)
    kept, given = [*_with_sizes(model.named_parameters()), *_with_sizes(model.named_buffers())], list(tensors(inputs))
    found = _sizes(given, kept)
    if limit and _elements(found) > REAL_ELEMENTS:
        return replace(found, ran=False)
    counter = _counter()
    ran = True
    try:
        with instance.running("forward()"), torch.no_grad(), counter:
            model(*inputs)
    except _TooMany:
        ran = False
    return replace(found, shapes=tuple(counter.shapes), flops=counter.flops, ran=ran, on_cuda=counter.on_cuda)


def _with_sizes(named: Iterable[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
    """The tensors. Raises ProblemError where one gets its size in the first call, as those of ``nn.LazyLinear`` do."""
    found = dict(named)
    lazy = [name for name, tensor in found.items() if torch.nn.parameter.is_lazy(tensor)]
    if lazy:
        few = ", ".join(lazy[:3])
        raise ProblemError(
            f"The model's first call decides the size of {few}.", where="Model",
            fix="Give the layers the sizes that they have: nn.Linear(64, 32) for nn.LazyLinear(32).",
        )  # fmt: skip
    return list(found.values())


def _sizes(given: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]) -> Trace:
    """The sizes of what is given, before anything has run."""
    return Trace(
        inputs=_shapes(given), parameters=_shapes(kept), shapes=(), flops=0, input_bytes=_bytes(given), parameter_bytes=_bytes(kept)
    )


def _shapes(values: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(t.shape) for t in values)


def _bytes(values: Sequence[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in values)


def _elements(found: Trace) -> int:
    return sum(math.prod(s) for s in (*found.inputs, *found.parameters))


def _on_meta(instance: Instance) -> torch.nn.Module:
    with meta_tensors():
        return instance.model(0)


def _built_first(instance: Instance) -> torch.nn.Module:
    return instance.model(0).to("meta")


BUILD = {"meta": _on_meta, "built": _built_first}
"""How a model that later runs can share is built, where a way has one."""


def _meta(instance: Instance, model: torch.nn.Module | None) -> Trace:
    with meta_tensors():
        return _run(instance, model)


def _built(instance: Instance, model: torch.nn.Module | None) -> Trace:
    """Inputs on meta, but the model built for real first: for constructors that read numbers out of tensors."""
    model = model or _built_first(instance)
    with meta_tensors():
        return _run(instance, model)


def _fake(instance: Instance, model: torch.nn.Module | None) -> Trace:
    with fake_mode(), quiet_thread():
        return _run(instance, model)


def _real(instance: Instance, model: torch.nn.Module | None) -> Trace:
    with meta_tensors():
        outline = _outline(instance)
    if outline is not None and not outline.ran:
        return outline
    return _run(instance, model, limit=True)


def _outline(instance: Instance) -> Trace | None:
    """Sizes of inputs and parameters alone, on meta tensors; None where even that is impossible."""
    try:
        kept, given = _with_sizes(instance.model(0).named_parameters()), list(tensors(instance.inputs(0)))
    except ProblemError:
        return None
    found = _sizes(given, kept)
    return replace(found, ran=_elements(found) <= REAL_ELEMENTS)


WAYS = {"meta": _meta, "built": _built, "fake": _fake, "real": _real}
"""The ways of a dry run, the cheapest first."""


def _batch_norm(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What the operator returns on meta tensors; PyTorch's own way there is a decomposition that takes milliseconds each time."""
    import torch

    return torch.empty_like(x), torch.empty(x.shape[1], device="meta"), torch.empty(x.shape[1], device="meta")


def _counter() -> Any:
    """A dispatch mode that records output shapes and counts FLOPs."""
    import torch

    from kernelllm.problems.flops import heavy_flops
    from kernelllm.problems.without_dynamo import OperatorMode

    quick = torch.ops.aten.native_batch_norm.default

    class Counter(OperatorMode):
        def __init__(self) -> None:
            super().__init__()
            self.shapes: list[tuple[int, ...]] = []
            self.flops = 0
            self.on_cuda = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            out = _batch_norm(args[0]) if func is quick and args[0].is_meta else func(*args, **kwargs)
            self.flops += heavy_flops(func, args, kwargs, out)
            if func is torch.ops.aten._int_mm.default:
                self.on_cuda &= args[0].shape[0] > 16 and args[0].shape[1] % 8 == 0 and args[1].shape[1] % 8 == 0
            self.shapes += [tuple(t.shape) for t in tensors(out) if not t.is_nested]  # those of a nested tensor are no numbers
            if len(self.shapes) > MAX_OPS:
                raise _TooMany
            return out

    return Counter()
