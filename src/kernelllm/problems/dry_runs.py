"""Dry runs of one problem at any sizes, for those who look for other sizes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.first_run import first_run
from kernelllm.problems.instance import Instance
from kernelllm.problems.seeds import own_generators
from kernelllm.problems.trace import BUILD, WAYS, Trace


class DryRuns:
    """Dry runs of one problem, all in the way that worked at its own sizes. Raises ProblemError where none does."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.count = 0
        self.way, first = first_run(problem)
        self._seen: dict[str, Trace | ProblemError] = {_key({}): first}
        self._models: dict[str, torch.nn.Module] = {}
        self._of_model = sizes.model_constants(problem.source)

    def trace(self, constants: Mapping[str, Any]) -> Trace:
        """The run at these constants. Raises ProblemError where the problem does not work at them."""
        key = _key(constants)
        if key not in self._seen:
            self.count += 1
            try:
                self._seen[key] = self._run(constants)
            except ProblemError as error:
                self._seen[key] = error
        known = self._seen[key]
        if isinstance(known, ProblemError):
            raise known
        return known

    def works(self, constants: Mapping[str, Any]) -> Trace | None:
        """The run at these constants, None where the problem does not work at them."""
        try:
            return self.trace(constants)
        except ProblemError:
            return None

    def _run(self, constants: Mapping[str, Any]) -> Trace:
        with own_generators(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return WAYS[self.way](Instance(self.problem, constants), self._model(constants))

    def _model(self, constants: Mapping[str, Any]) -> torch.nn.Module | None:
        """The model of an earlier run, where only the inputs' sizes have changed since; building is most of a run's time."""
        if self.way not in BUILD:
            return None
        key = _key({k: v for k, v in constants.items() if k in self._of_model})
        if key not in self._models:
            self._models.clear()
            self._models[key] = BUILD[self.way](Instance(self.problem, constants))
        return self._models[key]


def _key(constants: Mapping[str, Any]) -> str:
    return repr(sorted(constants.items()))
