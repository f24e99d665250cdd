"""Functionalisation: in-place operators become pure ones, writes into arguments become ``copy_`` at the end."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, cast

import torch
import torch.utils._pytree as pytree
from torch._functorch._aot_autograd.functional_utils import from_fun, has_data_mutation, to_fun
from torch._subclasses.functional_tensor import FunctionalTensorMode


def functional(function: Callable[..., tuple[Any, ...]], replaced: Set[int] = frozenset()) -> Callable[..., tuple[Any, ...]]:
    """``function`` of flat arguments without mutations inside; an argument it wrote into gets one ``copy_`` of the result.

    ``replaced`` holds, once the function has run, the positions of arguments that nobody sees afterwards: writes into those are dropped.
    """

    def run(*args: Any) -> tuple[Any, ...]:
        off = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
        with off, FunctionalTensorMode():
            wrapped = pytree.tree_map_only(torch.Tensor, to_fun, args)
            outputs = pytree.tree_map(from_fun, function(*wrapped))
            written = [
                (argument, cast(torch.Tensor, from_fun(wrapper)))
                for i, (argument, wrapper) in enumerate(zip(args, wrapped, strict=True))
                if isinstance(argument, torch.Tensor) and has_data_mutation(wrapper) and i not in replaced
            ]
        for argument, value in written:
            argument.copy_(value)
            outputs = tuple(argument if o is value else o for o in outputs)
        return tuple(outputs)

    return run
