"""Constants of a problem that only its own forward knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.instance import Instance
from kernelllm.problems.seeds import own_generators


@lru_cache(maxsize=256)
def unseen_constants(problem: Problem) -> frozenset[str]:
    """Names of constants that nobody is shown who gets the inputs, the constructor's arguments and the weights.

    A global that ``forward`` reads is one: whoever writes for the problem has it as a number, and cannot follow another value.
    Tensors' contents do not count. Where another value cannot be looked at, the constant counts as shown.
    """
    known = sizes.constants(problem)
    read = sizes.model_constants(problem.source) & known.keys()
    left = [{name: _larger(known[name])} for name in sorted(read)]
    for look in (_arguments, _weights):  # the second builds models
        own = _seen(problem, {}, look) if left else None
        left = [changed for changed in left if own is not None and _seen(problem, changed, look) == own]
    return frozenset(name for changed in left for name in changed)


def _larger(value: Any) -> Any:
    return type(value)(map(_larger, value)) if isinstance(value, tuple | list) else 2 * value + 1


def _arguments(instance: Instance) -> Any:
    return [instance.inputs(0), instance.init_inputs(0)]


def _weights(instance: Instance) -> Any:
    return dict(instance.model(0, "meta", there=True).state_dict())


def _seen(problem: Problem, constants: dict[str, Any], look: Callable[[Instance], Any]) -> list[Any] | None:
    """Shapes and types of tensors, and other values as they are; None where the problem does not come to them without memory."""
    import torch
    from torch.utils._pytree import tree_leaves

    from kernelllm.problems.without_dynamo import without_dynamo

    try:
        with own_generators(), torch.device("meta"), without_dynamo():
            given = tree_leaves(look(Instance(problem, constants)))
    except ProblemError:
        return None
    return [(tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else repr(v) for v in given]
