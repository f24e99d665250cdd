"""Whether a float32 module does the same computation in half precision, so that one file may serve both dtypes.

The forward runs on fake tensors in each type: the operators must be the same, conversions aside, and so must all their numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernelllm.compiler import write_time
from kernelllm.compiler.capture import intercept
from kernelllm.compiler.capture.fake_module import build, describe
from kernelllm.compiler.options import Options
from kernelllm.core.background import TORCH
from kernelllm.core.types import Problem
from kernelllm.problems.fake_mode import fake_mode

log = logging.getLogger(__name__)

_WIDE: tuple[str, list[Any]] = ("float32", [])
_SECONDS = 5.0
HALF = (torch.float16, torch.bfloat16)
_UNSEEN = ("prim.", "aten._to_copy", "aten.detach", "aten.alias", "aten.lift_fresh", "prims.convert_element_type",
           "aten._assert_tensor_metadata")  # fmt: skip
_EXACT = ("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten.mv", "aten.dot", "aten.convolution", "aten.cumsum", "aten.cumprod",
          "aten.logcumsumexp", "aten._fft", "kernelllm.")  # fmt: skip
"""Operators with a template, whose results have the type of their operands: not those that the forward does in float32."""
_STEPS = ("aten.floor", "aten.ceil", "aten.round", "aten.trunc", "aten.fmod", "aten.remainder", "aten.bucketize", "aten.searchsorted")
"""Operators whose results jump where a number is rounded in between."""
_CHOICES = ("aten.argmax", "aten.argmin", "aten.max.dim", "aten.min.dim", "aten.topk", "aten.sort", "aten.kthvalue", "aten.median.dim",
            "aten.cummax", "aten.cummin")  # fmt: skip
"""Operators that choose positions: among values that eager rounds, and a kernel does not, they choose others."""
_TYPES = (torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator)


@dataclass(frozen=True)
class AnyDtype:
    """What a float32 module does where its parameters and inputs have another type."""

    dtypes: tuple[str, ...]
    """The types, float32 first."""
    follows: tuple[bool, ...]
    """For each tensor that the forward returns: whether it has the type of the inputs."""
    upcasts: bool
    """Whether the forward computes some of it in float32."""


class _Run(TorchDispatchMode):
    """Notes the operators, and whether rounding has them do something else."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[tuple[str, list[Any]]] = []
        self.results: list[torch.dtype] = []
        self.upcasts = False
        self.jumps = False
        self._kept: list[Any] = []
        self._computed: set[int] = set()
        """Memory of half-precision results that a kernel may keep in float32."""
        self._chosen: set[int] = set()
        """Memory of positions chosen among such."""
        self._counted: set[int] = set()
        """Memory of whole numbers that follow from ``arange``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func)
        jumps = name.startswith(_STEPS) or (name.startswith("aten._to_copy") and not result.dtype.is_floating_point)
        jumps |= name.startswith("aten.grid_sampler") and args[2] == 1  # the nearest place
        self.jumps |= jumps and isinstance(args[0], torch.Tensor) and args[0].dtype in HALF
        self._follow(name, pytree.tree_leaves((args, kwargs or {})), pytree.tree_leaves(result))
        whole = name == "aten.slice.Tensor" and result.shape == args[0].shape
        if not name.startswith(_UNSEEN) and not whole:
            leaves = pytree.tree_leaves((args, kwargs or {}))
            if name == "aten.slice.Tensor":  # a graph has no start where it is the first
                leaves = [0 if v is None else v for v in leaves]
            self.steps.append((name.replace("half_", ""), [v for v in leaves if not isinstance(v, _TYPES)]))
            made = [v for v in pytree.tree_leaves(result) if isinstance(v, torch.Tensor) and v.dim()]
            wide = any(v.dtype in (torch.float32, torch.complex64) for v in made)
            self.upcasts |= wide
            if wide and name.startswith(_EXACT):
                self.steps.append(_WIDE)
        return result

    def _follow(self, name: str, given: list[Any], results: list[Any]) -> None:
        """Whether positions that were chosen among rounded values are used."""
        self._kept.append(results)  # so that no memory is given out twice
        taken = {_memory(v) for v in given if isinstance(v, torch.Tensor)}
        self.jumps |= not taken.isdisjoint(self._chosen)
        made = [v for v in results if isinstance(v, torch.Tensor)]
        if name.startswith("aten.arange") or not taken.isdisjoint(self._counted):  # half precision has few of them
            self.jumps |= any(v.dtype in HALF for v in made)
            self._counted |= {_memory(v) for v in made if _whole(v.dtype) and v.dtype != torch.bool}
        if not name.startswith(_EXACT):
            self._computed |= {_memory(v) for v in made if v.dtype in HALF and _memory(v) not in taken}
        if name.startswith(_CHOICES) and _memory(given[0]) in self._computed:
            self._chosen |= {_memory(v) for v in made if not v.dtype.is_floating_point}

    def returned(self, results: list[torch.Tensor]) -> None:
        self.results = [r.dtype for r in results]
        self.jumps |= not self._chosen.isdisjoint(_memory(r) for r in results)


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _run(problem: Problem, options: Options, dtype: torch.dtype) -> _Run | None:
    """The forward with floating inputs, parameters and buffers of a type; None where those are not all float32 in the problem."""
    built = build(problem, set())
    state = {**dict(built.model.named_parameters()), **dict(built.model.named_buffers())}
    if not _all_float32([state, built.inputs]):
        return None
    with intercept.real_factories(), intercept.whole_layers(options), built.mode:
        return _noted(lambda s, i: torch.func.functional_call(built.model, s, tuple(i)), [state, built.inputs], dtype)


def _all_float32(tensors: Any) -> bool:
    floats = [t for t in pytree.tree_leaves(tensors) if isinstance(t, torch.Tensor) and not _whole(t.dtype)]
    return bool(floats) and all(t.dtype == torch.float32 for t in floats)


def _noted(forward: Callable[..., Any], arguments: list[Any], dtype: torch.dtype) -> _Run:
    """The operators of a function whose float32 arguments, fake tensors, have a type."""

    def converted(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        return value.detach().to(dtype).requires_grad_(value.requires_grad)  # a forward may ask for gradients itself

    run = _Run()
    with torch.no_grad():
        given = pytree.tree_map(converted, arguments)
        with run:
            result = forward(*given)
    run.returned([r for r in pytree.tree_leaves(result) if isinstance(r, torch.Tensor)])
    return run


def same_in_types(
    forward: Callable[..., Any], graph: Callable[..., Any], arguments: list[Any], others: list[Any], types: Sequence[torch.dtype]
) -> bool:
    """Whether a graph that was captured from a forward is what the forward does in some types too.

    A graph holds the types, and the numbers that follow from types, of the tensors that it was captured with. ``arguments`` are those of
    the forward, ``others`` the graph's. True where not all of them are float32: no file serves other types then.
    """
    if not _all_float32([arguments, others]):
        return True
    mode = fake_mode()
    with mode:
        made = pytree.tree_map(lambda v: mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v, (arguments, others))
        try:
            runs = [(_noted(forward, made[0], dtype), _noted(graph, made[1], dtype)) for dtype in types]
        except Exception as error:  # noqa: BLE001 - code of others, which half precision may be nothing for
            log.info("half precision: %s", describe(error))
            return False
    return all(one.steps == other.steps and one.results == other.results for one, other in runs)


def _whole(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex


@lru_cache(maxsize=8)
def any_dtype(problem: Problem, options: Options) -> AnyDtype | None:
    """None where the module computes in float32 alone, or otherwise in half precision."""
    try:
        with write_time.limited(min(_SECONDS, write_time.left() / 4)), TORCH:
            return _compared(problem, options)
    except Exception as error:  # noqa: BLE001 - code of others on fake tensors, as when it is captured
        log.info("%s: no half precision: %s", problem.name, describe(error, problem))
        return None


def _compared(problem: Problem, options: Options) -> AnyDtype | None:
    usual = _run(problem, options, torch.float32)
    if usual is None:
        return None
    steps = [step for step in usual.steps if step != _WIDE]
    found: list[AnyDtype] = []
    for dtype in HALF:
        run = _run(problem, options, dtype)
        if run is None or run.jumps or run.steps != steps:
            continue
        if any(now not in (dtype, before) for now, before in zip(run.results, usual.results, strict=True)):
            continue
        name = str(dtype).removeprefix("torch.")
        found.append(AnyDtype(("float32", name), tuple(r == dtype for r in run.results), run.upcasts))
    if len({one.follows for one in found}) == 1:
        return AnyDtype(("float32", *(one.dtypes[1] for one in found)), found[0].follows, any(one.upcasts for one in found))
    return None
