"""Builds a candidate's model without memory, and once more under another setting: a file may ask for its machine when it is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelllm.backends.base import Backend
from kernelllm.judge.caller_settings import setting
from kernelllm.judge.transport import trusted_torch
from kernelllm.judge.worker import fake_cuda
from kernelllm.problems.seeds import seed_all

_Code = Callable[[str], contextlib.AbstractContextManager[None]]


def fake_tensors() -> contextlib.AbstractContextManager[Any]:
    """A context in which tensors have no memory."""
    from kernelllm.judge.worker import fake_run

    return fake_run.fake_tensors()


def rebuilt(backend: Backend, path: str, candidate_code: _Code, name: str, model: Any, made: tuple[Any, Any, int]) -> Any:
    """A model as ``model`` is, built where the setting of this ``name`` holds. ``made``: its arguments and seed."""
    args, kwargs, seed = made
    with setting(name, model), candidate_code("import"):
        module = backend.load(Path(path), fake_cuda.CANDIDATE)
    with setting(name, model), candidate_code("construct"):
        seed_all(seed)
        other = module.ModelNew(*args, **kwargs)
    before, own = trusted_torch.named_state(model), trusted_torch.named_state(other)
    with torch.no_grad():
        for key, (tensor, _) in own.items():
            if key in before and before[key][0].shape == tensor.shape:
                tensor.copy_(before[key][0])
    if isinstance(other, torch.nn.Module):
        other.train(bool(getattr(model, "training", True)))
    return other
