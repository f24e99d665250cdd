"""Draws other values for a reference's parameters and buffers, and tells whether it depends on those that a candidate lacks."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch

from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.problems.nested import computable

State = dict[str, torch.Tensor]
_PARAMETER_NOISE, _BUFFER_NOISE = (0.1, 0.1), (0.5, 1.0)
"""What no seed changes moves by this share of its mean size, which is taken to be the second number at least."""
_NAMED = 16
"""Up to so many missing names, each is tried by itself."""


def alternate_state(reference: Reference, seed: int) -> State:
    """A second, different state, built under another seed. Parameters that no seed changes get a little noise, buffers that are
    state other valid values. Names that share a tensor get the same value."""
    other = reference.built(seed)
    generator = torch.Generator(reference.device).manual_seed(seed)
    mine, buffers = reference.state(), _state_buffers(reference)
    drawn = {n: t.detach() for n, t in other.named_parameters(remove_duplicate=False)}
    drawn |= {n: t.detach() for n, t in other.named_buffers(remove_duplicate=False)}
    parameters = {n for n, _ in reference.model.named_parameters(remove_duplicate=False)}
    tensors: State = {**dict(reference.model.named_parameters(remove_duplicate=False))}
    tensors |= dict(reference.model.named_buffers(remove_duplicate=False))
    made: dict[int, torch.Tensor] = {}
    state: State = {}
    for name, value in drawn.items():
        shared = id(tensors[name])
        if shared not in made:
            same = value.shape == mine[name].shape and torch.equal(value, mine[name])
            if same and name in parameters and value.is_floating_point():
                value = _moved(value, generator, _PARAMETER_NOISE)
            elif same and name in buffers:
                value = _other_buffer(value, generator)
            made[shared] = value
        state[name] = made[shared]
    return state


def missing_but_used(reference: Reference, missing: Collection[str], seed: int) -> tuple[str, ...]:
    """Among the names that a candidate lacks, those on whose values the reference's output depends."""
    if not missing:
        return ()
    saved = {n: t.clone() for n, t in reference.state().items()}
    other = alternate_state(reference, seed)
    varied = [n for n in missing if n in other and not torch.equal(other[n], saved[n])]  # what a forward leaves behind is no state

    def output(kept: Collection[str]) -> Any:
        """With the other state, but the reference's own values under the names ``kept``."""
        reference.load(saved)
        reference.load({n: t for n, t in other.items() if n not in kept})
        run = reference.run(reference.inputs(seed), seed, refinable=False)
        return run.expected.value if run.is_informative else None

    def matter(names: Collection[str]) -> bool:
        held = output(names)
        return held is not None and not compare(held, Expected(full), Rules(scaled=True, precise=False)).ok

    try:
        full = output(()) if varied else None
        if full is None or not matter(varied):
            return ()
        return tuple(n for n in varied[:_NAMED] if matter((n,))) or tuple(varied)
    finally:
        reference.load(saved)


def _moved(value: torch.Tensor, generator: torch.Generator, noise: tuple[float, float]) -> torch.Tensor:
    share, least = noise
    drawn = torch.empty(value.shape, device=value.device).normal_(generator=generator)
    wide = computable(value)
    return (wide + share * drawn.to(wide.dtype) * value.float().abs().mean().clamp(min=least)).to(value.dtype)


def _other_buffer(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Other values that are as valid: variances stay positive, counters whole."""
    if value.numel() == 0 or value.dtype is torch.bool or value.is_complex():
        return value
    if not value.is_floating_point():
        return value + torch.randint(1, 9, value.shape, device=value.device, generator=generator, dtype=value.dtype)
    wide = computable(value)
    if bool((wide >= 0).all()) and bool((wide > 0).any()):
        return (wide * (0.5 + 1.5 * torch.rand(value.shape, device=value.device, generator=generator))).to(value.dtype)
    return _moved(value, generator, _BUFFER_NOISE)


def _state_buffers(reference: Reference) -> frozenset[str]:
    """Buffers that are state: what training updates, and what is saved and still holds one number everywhere, to be loaded later.

    Other buffers are tables that the constructor computes (masks, positions); a kernel may compute these itself.
    """
    if reference.state_buffers is None:
        reference.state_buffers = frozenset(_found_state_buffers(reference))
    return reference.state_buffers


def _found_state_buffers(reference: Reference) -> set[str]:
    before = {n: t.clone() for n, t in reference.buffers().items()}
    if not before:
        return set()
    saved = reference.model.state_dict().keys()
    fillable = {n for n, t in before.items() if n in saved and t.numel() > 1 and t.is_floating_point()}
    found = {n for n in fillable if bool((before[n] == before[n].flatten()[0]).all())}
    with failures_logged("what training updates is not known"), reference.calling(reference.seed):
        model = copy.deepcopy(reference.model).train()
        model(*reference.inputs(reference.seed))
        after = dict(model.named_buffers(remove_duplicate=False))
        found |= {n for n, t in before.items() if n in after and not torch.equal(after[n], t)}
    return found
