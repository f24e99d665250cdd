"""Autotuning without a clock, where there is no GPU."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from kernelllm.backends.triton.kernel_arguments import tuned

SKIPPED = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
"""What a configuration may raise when it does not compile: the next one is tried."""


_SLOW_S = 1.0
"""A configuration whose launch took longer is not run again where there are others."""


@dataclass
class _Turns:
    """What one autotuned kernel has run so far."""

    launches: int = 0
    slow: set[int] = field(default_factory=set)
    """Identities of its slow configurations."""


_turns: WeakKeyDictionary[Any, _Turns] = WeakKeyDictionary()


def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for Autotuner.run: the first configuration, after pruning, that compiles and launches."""
    return _run(self, _configurations(self, args, kwargs), args, kwargs)


def run_in_turn(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for Autotuner.run: each launch has the next configuration, since a GPU may find any of them the fastest."""
    turns = _turns.setdefault(self, _Turns())
    configs = _configurations(self, args, kwargs)
    quick = [c for c in configs if id(c) not in turns.slow] or configs
    first = turns.launches % len(quick) if quick else 0
    turns.launches += 1
    start = time.perf_counter()
    result = _run(self, [*quick[first:], *quick[:first]], args, kwargs)
    if time.perf_counter() - start > _SLOW_S:
        turns.slow.add(id(self.best_config))
    return result


def _configurations(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    return list(self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs)


def _run(self: Any, configs: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    failure: Exception | None = None
    for config in configs:
        named = {**self.nargs, **kwargs, **config.all_kwargs()}
        conflicts = kwargs.keys() & config.kwargs.keys()
        if conflicts:
            raise ValueError(f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define auto-tuned symbols.")
        self.best_config = config
        try:
            if config.pre_hook is not None:
                config.pre_hook(named)
            # what tuning leaves behind: arguments named in reset_to_zero are zero when the chosen configuration runs
            self.pre_hook(named, reset_only=True) if not self.user_defined_pre_hook else self.pre_hook(named)
            with tuned:
                result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        except SKIPPED as error:
            failure = error
            continue
        self.nargs = None
        return result
    assert failure is not None
    raise failure
