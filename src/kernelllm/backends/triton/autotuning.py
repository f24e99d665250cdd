"""Autotuning without a clock, where there is no GPU."""

from __future__ import annotations

from typing import Any

from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

SKIPPED = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
"""What a configuration may raise when it does not compile: the next one is tried."""


def run(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for Autotuner.run: the first configuration, after pruning, that compiles and launches."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
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
            result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        except SKIPPED as error:
            failure = error
            continue
        self.nargs = None
        return result
    assert failure is not None
    raise failure
