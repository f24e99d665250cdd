"""Splits the operators of a candidate into forward and backward, each beside those of the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelllm.judge.isolation.candidate_process import CandidateRun
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.trials.reference_runs.reference import Reference


def operators_by_pass(reference: Reference, where: str, run: CandidateRun) -> list[WatchedOperators]:
    """:meth:`Reference.watched_operators` of the forward and of the backward, each by itself."""
    whole = reference.watched_operators("", run.ops, run.flops)
    theirs = dict(reference.forward_ops), {name: float(amount) for name, amount in reference.forward_flops.items()}
    forward = WatchedOperators(f"in the forward ({where})", run.forward_ops, run.forward_flops, *theirs, run.forward_launches)
    ours = _less(whole.ops, run.forward_ops), _less(whole.flops, run.forward_flops)
    rest = _less(whole.reference_ops, theirs[0]), _less(whole.reference_flops, theirs[1])
    return [forward, WatchedOperators(f"in the backward ({where})", *ours, *rest, run.launches - run.forward_launches)]


def _less(whole: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amount - part.get(name, 0) for name, amount in whole.items() if amount > part.get(name, 0)}
