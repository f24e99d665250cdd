"""Finds parameters on which the reference's output hardly depends, and values of them so large that it does.

Of ``x + 1e-6 * layer(x)``, the layer may be left out where its parameters have their usual size.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.judge.trials.state.alternate_states import State, alternate_state
from kernelllm.problems import nested

_FACTORS = (1e3, 1e6)
_MOST = 16
"""Parameters that are looked at: each takes a run of the reference."""
_ROUNDINGS = 6
"""Runs under other roundings, for outputs that hold whole numbers."""
_UNSEEN, _SEEN = Rules(tolerance=1e-3, scaled=True, precise=False), Rules(tolerance=1e-2, scaled=True, precise=False)
"""What hardly changes an output, and what does."""


def amplified_parameters(reference: Reference) -> State:
    """Values for some of the reference's parameters; empty where its output depends on all of them as they are."""
    if reference.amplified is None:
        saved = {name: tensor.clone() for name, tensor in reference.state().items()}
        try:
            reference.amplified = {} if reference.gradients else _found(reference, saved)
        finally:
            reference.load(saved)
    return reference.amplified


def _found(reference: Reference, saved: State) -> State:
    groups: dict[int, list[str]] = {}
    for name, parameter in reference.model.named_parameters(remove_duplicate=False):
        if parameter.is_floating_point() and parameter.itemsize > 1 and parameter.numel():
            groups.setdefault(id(parameter), []).append(name)  # names that share a tensor stay together
    made: State = {}
    usual = _run(reference, saved)
    if not groups or not _well_known(usual):
        return made
    others = alternate_state(reference, reference.seed + 1)
    for names in [*groups.values()][:_MOST]:
        other = others[names[0]]
        turned = _run(reference, saved | made | dict.fromkeys(names, -other))
        if turned.error or not compare(turned.expected.value, Expected(usual.expected.value), _UNSEEN).ok:
            continue  # the parameter's effect shows as it is
        for factor in _FACTORS:
            tried = made | dict.fromkeys(names, other * factor)
            run = _run(reference, saved | tried)
            if _well_known(run) and not compare(run.expected.value, Expected(usual.expected.value), _SEEN).ok:
                made, usual = tried, run
                break
    return made


def _run(reference: Reference, state: State) -> ReferenceRun:
    reference.load(state)
    return reference.run(reference.inputs(reference.seed), reference.seed)


def _well_known(run: ReferenceRun) -> bool:
    """Whether eager gives the numbers of float64, and positions and codes that another rounding leaves as they are."""
    if run.error or not run.finite or not run.refine(rounding=False) or not run.expected.has_exact:
        return False
    if not compare(run.expected.value, run.by_float64(), _UNSEEN).ok:
        return False
    kept = _whole_numbers(run.expected.value)
    others = islice(run.all_roundings(), _ROUNDINGS) if kept else ()
    return all(torch.equal(mine, its) for one in others for mine, its in zip(kept, _whole_numbers(one), strict=True))


def _whole_numbers(value: Any) -> list[torch.Tensor]:
    return [t for t in nested.tensors(value) if not t.is_floating_point() and not t.is_complex()]
