"""Which parameters and buffers both models have in a trial. A new state is one entry of :data:`STATES`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials import tf32_allowance
from kernelllm.judge.trials.amplified_terms import amplified
from kernelllm.judge.trials.other_states import State, computable, other_state
from kernelllm.judge.trials.reference import Reference

REFERENCE, RANDOM, FAINT, AMPLIFIED, TF32_EXACT = "reference", "random", "faint", "amplified", "tf32_exact"
TOUCHED = ("touched", "touched_others", "touched_buffers")
OWN = "own"
"""The state of a candidate that names its parameters otherwise than the reference: what its seed gives."""


_BUFFERS = TOUCHED.index("touched_buffers")
_FEW = 3
"""So many elements of a tensor change."""


@dataclass(frozen=True)
class ParameterState:
    """A state that is not the one the reference was built with."""

    make: Callable[[Reference, Mapping[str, torch.Tensor], int], State]
    """From the reference, its own state and a seed to this state."""
    explanation: str
    """What a wrong output in this state says of a candidate that was right before."""
    inputs: Callable[[list[Any]], list[Any]] | None = None
    """What is done to the inputs as well."""
    all_names: bool = False
    """Whether it means nothing where a candidate lacks some of the names."""


def _random(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    return other_state(reference, seed)


def _faint(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """Random parameters at a hundredth of their size. Functions that are flat far from zero (a GELU) show there what they are given."""
    buffers = reference.buffers()
    other = other_state(reference, seed)
    return {n: t if n in buffers or not t.is_floating_point() else (computable(t) * 0.01).to(t.dtype) for n, t in other.items()}


def _touched(which: int, reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """A few elements of every other parameter, or of the buffers: others are not even written to. Who keeps something made of them must
    see it."""
    groups: dict[int, list[str]] = {}
    model = reference.model
    tensors = model.named_buffers(remove_duplicate=False) if which == _BUFFERS else model.named_parameters(remove_duplicate=False)
    for name, tensor in tensors:
        if name in saved and tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel() and bool(tensor.isfinite().all()):
            groups.setdefault(id(tensor), []).append(name)  # 8 bits cannot be computed with; names that share a tensor stay together
    chosen, generator = list(groups.values()), torch.Generator().manual_seed(seed + which)
    made: State = {}
    for names in (chosen[which::2] or chosen) if which != _BUFFERS else chosen:
        changed = saved[names[0]].clone(memory_format=torch.contiguous_format)
        flat = changed.view(-1)
        places = torch.randint(flat.numel(), (_FEW,), generator=generator).to(flat.device)
        flat[places] += 0.5 * flat[places].abs().max() + 0.1  # larger: who must be positive stays so
        made |= dict.fromkeys(names, changed)
    return made


def _tf32_exact(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    rounded: State = tf32_allowance.rounded(dict(saved))
    return rounded


STATES = {
    RANDOM: ParameterState(
        _random,
        "Right with the parameters and buffers it was built with, wrong after others were loaded: some of them are baked in or ignored.",
    ),
    **{
        name: ParameterState(
            partial(_touched, which),
            "Right with the parameters and buffers it was built with, wrong after some changed in place: something made of them is kept.",
        )
        for which, name in enumerate(TOUCHED)
    },
    FAINT: ParameterState(
        _faint, "Right with the parameters it was built with, wrong with parameters of a hundredth of their size."
    ),
    AMPLIFIED: ParameterState(
        lambda reference, saved, seed: amplified(reference),
        "Right with the parameters it was built with, wrong where those are large on which the output hardly depends: a term is left out.",
    ),
    TF32_EXACT: ParameterState(
        _tf32_exact,
        "Less exact than TF32 in convolutions explains: something else computes in too little precision.",
        inputs=tf32_allowance.rounded,
        all_names=True,
    ),
}  # fmt: skip


class ParameterStates:
    """Sets the state of the reference and of the candidate at one size. ``missing``: names that the candidate lacks."""

    def __init__(self, reference: Reference, process: CandidateProcess, missing: tuple[str, ...]) -> None:
        self._reference, self._process, self._missing = reference, process, missing
        self._saved = {n: t.clone() for n, t in reference.state().items()}

    def possible(self, state: str) -> bool:
        """Whether both sides can have this state, under the names that both have, and it differs from the reference's own."""
        if state == REFERENCE:
            return True
        if STATES[state].all_names:
            return not self._missing
        if state == AMPLIFIED:
            return bool(self._shared(amplified(self._reference)))
        if state == TOUCHED[_BUFFERS]:
            return any(t.is_floating_point() for t in self._shared(self._reference.buffers()).values())
        return bool(self._shared(self._saved))

    @contextlib.contextmanager
    def applied(self, state: str, seed: int) -> Iterator[None]:
        """Inside it both sides have the state. Not restored after an error: the candidate is done then (see :meth:`restore`)."""
        if state == REFERENCE:
            self._restore_buffers()
            yield
            return
        self._restore_buffers()  # runs change them
        self.restore()
        other = self._shared(STATES[state].make(self._reference, self._saved, seed))
        self._reference.load(other)
        self._process.load(other, self._reference.training)
        yield
        self.restore()
        self._process.load(self._shared(self._saved), self._reference.training)

    def restore(self) -> None:
        """Give the reference its own state again: it is kept for the next candidate."""
        self._reference.load(self._saved)

    def _restore_buffers(self) -> None:
        """Buffers change in training mode; every trial starts with those of the reference."""
        buffers = {n: self._saved[n] for n in self._reference.buffers()}
        if buffers:
            self._reference.load(buffers)
            self._process.load(self._shared(buffers), self._reference.training)

    def _shared(self, state: Mapping[str, torch.Tensor]) -> State:
        return {n: t for n, t in state.items() if n not in self._missing}
