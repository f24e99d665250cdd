"""Sets which parameters and buffers both models have in a trial; a new state is one entry of :data:`STATES`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.trials.reference_runs import tf32_allowance
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.state.alternate_states import State, alternate_state
from kernelllm.judge.trials.state.amplified_terms import amplified_parameters
from kernelllm.problems.inputs import turned
from kernelllm.problems.nested import computable

REFERENCE, RANDOM, FAINT, AMPLIFIED, TF32_EXACT = "reference", "random", "faint", "amplified", "tf32_exact"
FEW_LARGE = "few_large"
TOUCHED = ("touched", "touched_others", "touched_buffers")
TOUCHED_ALONE = tuple(f"touched_{number}" for number in range(8))
"""Each changes one of up to eight tensors, and one of every eight where there are more."""
EXCHANGED = "exchanged"
OWN = "own"
"""The state of a candidate that names its parameters otherwise than the reference: what its seed gives."""


_BUFFERS = TOUCHED.index("touched_buffers")
_RARE, _LARGER = 16, 64.0
"""One of so many elements of each parameter is so many times as large in a state where a few are large."""
_FEW = 3
"""Elements of a tensor that change."""
_SLOW_MS = 500.0
"""Where a call of the candidate takes longer, every other tensor is changed at once, not one of eight."""


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
    after_a_run: bool = False
    """Whether the candidate runs on its own state first, so that nothing but what this state changes was written to since."""


def _random(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """Another random state. In each parameter with numbers of both signs the first is zero: nobody may go by that one alone."""
    made, parameters = alternate_state(reference, seed), dict(reference.model.named_parameters(remove_duplicate=False))
    zeroed = {id(t): _without_first(t) for n, t in made.items() if n in parameters and _is_number(t)}
    return {name: zeroed.get(id(tensor), tensor) for name, tensor in made.items()}


def _without_first(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() < _FEW or not bool((tensor > 0).any() & (tensor < 0).any()):
        return tensor
    changed = tensor.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[0] = 0
    return changed


def _faint(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """Random parameters at a hundredth of their size. Functions that are flat far from zero (a GELU) show there what they are given."""
    buffers = reference.buffers()
    other = alternate_state(reference, seed)
    return {n: t if n in buffers or not t.is_floating_point() else (computable(t) * 0.01).to(t.dtype) for n, t in other.items()}


def _few_large(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """Random parameters of which a few elements are far larger than the others: a clamp shows, and a type that does not hold them."""
    made, parameters = alternate_state(reference, seed), dict(reference.model.named_parameters(remove_duplicate=False))
    generator, larger = torch.Generator().manual_seed(seed), dict[int, torch.Tensor]()
    for name, tensor in made.items():
        if name in parameters and _is_number(tensor) and tensor.numel() and id(tensor) not in larger:
            changed = tensor.clone(memory_format=torch.contiguous_format)
            places = torch.randint(changed.numel(), (-(-changed.numel() // _RARE),), generator=generator).to(changed.device)
            changed.view(-1)[places] = tensor.reshape(-1)[places] * _LARGER
            larger[id(tensor)] = changed
    return {name: larger.get(id(tensor), tensor) for name, tensor in made.items()}


def _touched(which: int, reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """A few elements of every other parameter, or of the buffers: others are not even written to. Who keeps something made of them must
    see it."""
    groups = _groups(reference, saved, parameters=which != _BUFFERS, buffers=which == _BUFFERS)
    return _changed((groups[which::2] or groups) if which != _BUFFERS else groups, saved, seed + which)


def _touched_alone(which: int, reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """A few elements of one tensor of each eight neighbours. Who keeps something made of several, and looks at some of them, must see
    the others. Which one of eight comes when is drawn, so that tensors far from each other do not always change together."""
    groups, draw, count = _groups(reference, saved), random.Random(seed), len(TOUCHED_ALONE)
    orders = [draw.sample(range(count), count) if len(groups) > count else range(count) for _ in range(0, len(groups), count)]
    chosen = [names for place, names in enumerate(groups) if orders[place // count][place % count] == which]
    return _changed(chosen, saved, seed + len(TOUCHED) + which)


def _exchanged(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    """Of each parameter two elements change places, or two alike become a larger and a smaller one. Sums stay, and most elements: who goes
    by such figures must see it all the same."""
    made: State = {}
    generator = torch.Generator().manual_seed(seed)
    for names in _groups(reference, saved, buffers=False):
        changed = saved[names[0]].clone(memory_format=torch.contiguous_format)
        if _is_code(changed) or changed.numel() < _FEW:
            continue
        flat = changed.view(-1)
        one, other = (int(flat.argmax()), int(flat.argmin()))
        if bool(flat[one] == flat[other]):
            one, other = torch.randperm(flat.numel(), generator=generator)[:2].tolist()
            step = 0.5 * flat[one].abs() + 0.1 * (flat[one] == 0)
            flat[one], flat[other] = flat[one] + step, flat[other] - step
        else:
            flat[[one, other]] = flat[[other, one]]
        made |= dict.fromkeys(names, changed)
    return made


def _groups(reference: Reference, saved: Mapping[str, torch.Tensor], *, parameters: bool = True, buffers: bool = True) -> list[list[str]]:
    """The names of each tensor that may change: names that share one stay together."""
    model, groups = reference.model, dict[int, list[str]]()
    kept = model.state_dict().keys()
    found: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False)) if parameters else {}
    found |= dict(model.named_buffers(remove_duplicate=False)) if buffers else {}
    for name, tensor in found.items():
        if name in saved and tensor.numel() and ((_is_code(tensor) and name in kept) or _is_number(tensor)):
            groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def _is_number(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.itemsize > 1 and bool(tensor.isfinite().all())


def _is_code(tensor: torch.Tensor) -> bool:
    """Whether these are quantised numbers, of up to four bytes: none can be changed into just any other, but they may change places."""
    whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype is not torch.bool
    return tensor.itemsize <= (4 if whole else 1) and tensor.dtype is not torch.bool and tensor.dim() > 0


def _changed(chosen: Sequence[list[str]], saved: Mapping[str, torch.Tensor], seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    made: State = {}
    for names in chosen:
        changed = saved[names[0]].clone(memory_format=torch.contiguous_format)
        if _is_code(changed):
            codes = turned(changed.view(torch.uint8) if changed.is_floating_point() else changed, "touched", seed)
            if codes is None:
                continue
            changed = codes.view(changed.dtype)
        else:
            flat = changed.view(-1)
            places = torch.randint(flat.numel(), (_FEW,), generator=generator).to(flat.device)
            flat[places] += 0.5 * flat[places].abs().max() + 0.1  # larger: who must be positive stays so
        made |= dict.fromkeys(names, changed)
    return made


def _tf32_exact(reference: Reference, saved: Mapping[str, torch.Tensor], seed: int) -> State:
    rounded: State = tf32_allowance.round_to_tf32(dict(saved))
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
    **{
        name: ParameterState(
            partial(_touched_alone, which),
            "Right with the parameters and buffers it was built with, wrong after some changed in place and others did not: something made "
            "of several is kept, and not all of them are looked at.",
            after_a_run=True,
        )
        for which, name in enumerate(TOUCHED_ALONE)
    },
    EXCHANGED: ParameterState(
        _exchanged,
        "Right with the parameters and buffers it was built with, wrong after two elements changed places: something made of them is kept, "
        "by a figure such as their sum, or by some of the elements.",
        after_a_run=True,
    ),
    FAINT: ParameterState(
        _faint, "Right with the parameters it was built with, wrong with parameters of a hundredth of their size."
    ),
    FEW_LARGE: ParameterState(
        _few_large, "Right with the parameters it was built with, wrong where a few of their elements are far larger than the others."
    ),
    AMPLIFIED: ParameterState(
        lambda reference, saved, seed: amplified_parameters(reference),
        "Right with the parameters it was built with, wrong where those are large on which the output hardly depends: a term is left out.",
    ),
    TF32_EXACT: ParameterState(
        _tf32_exact,
        "Less exact than TF32 in convolutions explains: something else computes in too little precision.",
        inputs=tf32_allowance.round_to_tf32,
        all_names=True,
    ),
}  # fmt: skip


class ParameterStates:
    """Sets the state of the reference and of the candidate at one size. ``missing``: names that the candidate lacks."""

    def __init__(self, reference: Reference, process: CandidateProcess, missing: tuple[str, ...]) -> None:
        self._reference, self._process, self._missing = reference, process, missing
        self._saved = {n: t.clone() for n, t in reference.state().items()}
        self._run_changes: set[str] = set()
        """Buffers that a run of the reference changed so far."""

    def possible(self, state: str, wall_ms: float) -> bool:
        """Whether both sides can have this state, under the names that both have, and it differs from the reference's own.

        ``wall_ms``: what a run of the candidate took, since a slow one is tried in fewer states."""
        if state == REFERENCE:
            return True
        if STATES[state].all_names:
            return not self._missing
        if state == EXCHANGED:
            return bool(self._made(state, 0))
        if state not in (*TOUCHED, *TOUCHED_ALONE):
            return bool(self._shared(self._saved))
        alone = wall_ms <= _SLOW_MS
        few = len(_groups(self._reference, self._shared(self._saved))) <= len(TOUCHED_ALONE)
        wanted = alone if state in TOUCHED_ALONE else not (alone and few)
        return wanted and bool(self._made(state, 0))

    def _made(self, state: str, seed: int) -> State:
        return self._shared(STATES[state].make(self._reference, self._shared(self._saved), seed))

    @contextlib.contextmanager
    def applied(self, state: str, seed: int) -> Iterator[None]:
        """Inside it both sides have the state. Not restored after an error: the candidate is done then (see :meth:`restore`)."""
        if state == REFERENCE:
            self._restore_buffers()
            yield
            return
        self._restore_buffers()  # runs change them
        self.restore()
        if STATES[state].after_a_run:
            inputs = self._reference.inputs(seed)
            self._process.run(inputs, seed)
            self._reference.run(inputs, seed, refinable=False)  # as often: both may count their calls
            self._put_back(self._shared({n: self._saved[n] for n in self._run_changes}))
        other = self._made(state, seed)
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
        now = self._reference.buffers()
        self._run_changes |= {n for n, t in now.items() if not torch.equal(t, self._saved[n])}
        self._put_back({n: self._saved[n] for n in now})

    def _put_back(self, buffers: State) -> None:
        if buffers:
            self._reference.load(buffers)
            self._process.load(self._shared(buffers), self._reference.training)

    def _shared(self, state: Mapping[str, torch.Tensor]) -> State:
        return {n: t for n, t in state.items() if n not in self._missing}
