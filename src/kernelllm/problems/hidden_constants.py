"""Constants of a problem that only its own module can see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.instance import Instance
from kernelllm.problems.seeds import own_generators


@lru_cache(maxsize=256)
def hidden_constants(problem: Problem) -> frozenset[str]:
    """Names of constants that nobody is shown who gets the inputs and the constructor's arguments.

    A global that ``forward`` reads is one, and so is a global by which the constructor makes parameters or buffers: whoever writes for
    the problem has it as a number, and cannot follow another value. Tensors' contents do not count. Where another value cannot be
    looked at, the constant counts as shown.
    """
    known = sizes.constants(problem)
    read = sizes.model_constants(problem.source) & known.keys()
    other = {name: {name: _larger(known[name])} for name in sorted(read)}

    def shown(names: Iterable[str], look: Callable[[Instance], Any]) -> dict[str, bool]:
        own = _seen(problem, {}, look) if names else None
        found = {name: _seen(problem, other[name], look) for name in names} if own is not None else {}
        return {name: seen != own for name, seen in found.items() if seen is not None}

    hidden = [name for name, told in shown(other, _constructor_arguments).items() if not told]
    by_inputs, by_weights = shown(hidden, _inputs), shown(hidden, _weights)
    return frozenset(name for name in hidden if not by_inputs.get(name, True) or by_weights.get(name, False))


def _larger(value: Any) -> Any:
    return type(value)(map(_larger, value)) if isinstance(value, tuple | list) else 2 * value + 1


def _constructor_arguments(instance: Instance) -> Any:
    return instance.init_inputs(0)


def _inputs(instance: Instance) -> Any:
    return instance.inputs(0)


def _weights(instance: Instance) -> Any:
    return dict(instance.model(0, "meta", there=True).state_dict())


def _seen(problem: Problem, constants: dict[str, Any], look: Callable[[Instance], Any]) -> list[Any] | None:
    """Shapes and types of tensors, and other values as they are; None where the problem does not come to them without memory."""
    import torch
    from torch.utils._pytree import tree_leaves

    from kernelllm.problems.meta_tensors import meta_tensors

    try:
        with own_generators(), meta_tensors():
            given = tree_leaves(look(Instance(problem, constants)))
    except ProblemError:
        return None
    return [(tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else repr(v) for v in given]
