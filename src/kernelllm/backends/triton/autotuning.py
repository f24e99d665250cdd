"""Autotuning where there is no GPU to time on: configurations take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from kernelllm.backends.triton.emulator.sampling import Sampling
from kernelllm.backends.triton.kernel_arguments import tuned
from kernelllm.backends.triton.repeated_launches import repeats_matter

SKIPPED = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
"""What a configuration may raise when it does not compile: the next one is tried."""


_SLOW_S = 1.0
"""A configuration whose launch took longer is not run again where there are others."""


@dataclass
class _Calls:
    """What one autotuned kernel has run so far."""

    launches: int = 0
    run: int = 0
    """The model's run in which the latest of them was."""
    before: int = 0
    """Launches before that run."""
    slow: set[int] = field(default_factory=set)
    """Identities of its slow configurations."""
    tuned: set[tuple[Any, ...]] = field(default_factory=set)
    """Keys for which a GPU would have measured the configurations by now."""
    known: set[str] = field(default_factory=set)
    """Configurations that pruning left for any launch that ran whole, and those that a sampled launch had."""


class _Runs:
    number = 0
    again = False
    turn = 0
    """The configuration with which each kernel begins."""


def begin_at(turn: int) -> None:
    _Runs.turn = turn


def begin_run(*, again: bool) -> None:
    """A run of the model begins; ``again``: its launches have the configurations of the run before."""
    _Runs.number += 1
    _Runs.again = again


_calls_of: WeakKeyDictionary[Any, _Calls] = WeakKeyDictionary()


def run_first(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for Autotuner.run: the first configuration, after pruning, that compiles and launches."""
    return _run(self, _configurations(self, args, kwargs), args, kwargs)


def run_next(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for Autotuner.run: each launch has the next configuration, since a GPU may find any of them the fastest."""
    calls = _calls_of.setdefault(self, _Calls(launches=_Runs.turn))
    if calls.run != _Runs.number:
        if _Runs.again:
            calls.launches = calls.before
        calls.run, calls.before = _Runs.number, calls.launches
    configs = _configurations(self, args, kwargs)
    if Sampling.active is not None:
        return _run_sampled(self, Sampling.active, calls, configs, args, kwargs)
    calls.known.update(map(_name, configs))
    quick = [c for c in configs if id(c) not in calls.slow] or configs
    first = calls.launches % len(quick) if quick else 0
    calls.launches += 1
    start = perf_counter()
    _measure(self, calls, quick[first:][:1], args, kwargs)
    result = _run(self, [*quick[first:], *quick[:first]], args, kwargs)
    if perf_counter() - start > _SLOW_S:
        calls.slow.add(id(self.best_config))
    return result


def _measure(self: Any, calls: _Calls, configs: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Leave behind what a GPU's measurement does: there all configurations run many times before one is chosen. What a kernel adds up, or
    changes in place, has changed by then, unless it is named in ``reset_to_zero`` or ``restore_value``."""
    named = {**self.nargs, **kwargs}
    kinds = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    key = (*(named.get(name) for name in self.keys), *kinds)
    if len(self.configs) < 2 or not configs or key in calls.tuned or not repeats_matter(self.base_fn):
        return
    calls.tuned.add(key)
    named |= configs[0].all_kwargs()
    tuned.measuring = True
    try:
        if configs[0].pre_hook is not None:
            configs[0].pre_hook(named)
        self.pre_hook(named)
        self.fn.run(*args, **kwargs, **configs[0].all_kwargs())
        self.post_hook(named, exception=None)
    except SKIPPED:
        return
    finally:
        tuned.measuring = False


def _run_sampled(self: Any, sampling: Sampling, calls: _Calls, configs: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """First what pruning left at no size before: only here it can be seen."""
    sampling.tuned[id(self.base_fn)] = self.base_fn
    new = [c for c in configs if _name(c) not in calls.known]
    begin = _Runs.turn % len(new) if new else 0
    new = [*new[begin:], *new[:begin]]
    result = _run(self, [*new, *(c for c in configs if c not in new)], args, kwargs, offered=())
    chosen = _name(self.best_config)
    tried = [_name(c) for c in new]
    calls.known.update(tried[: tried.index(chosen) + 1] if chosen in tried else tried)
    sampling.configurations_left |= not calls.known.issuperset(tried) and begin + 1 < len(tried)
    return result


def _name(config: Any) -> str:
    hook = getattr(config.pre_hook, "__qualname__", "")
    return f"{config}{f', pre_hook: {hook}' if hook else ''}"[:200]


def _configurations(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    return list(self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs)


def _run(
    self: Any, configs: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any], offered: Sequence[str] | None = None
) -> Any:
    failure: Exception | None = None
    tuned.several = len(self.configs) > 1
    tuned.offered = [_name(c) for c in configs] if offered is None else offered
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
            tuned.running = _name(config)
            with tuned:
                result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        except SKIPPED as error:
            failure = error
            continue
        self.nargs = None
        return result
    assert failure is not None
    raise failure
