"""Builds a candidate's model without memory, and once more under another setting: a file may ask for its machine when it is loaded."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

from kernelllm.judge.caller_settings import MULTIPROCESSORS, setting
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport import trusted_torch
from kernelllm.judge.worker import fake_cuda
from kernelllm.problems.seeds import seed_all


def fake_tensors() -> contextlib.AbstractContextManager[Any]:
    """A context in which tensors have no memory."""
    from kernelllm.judge.worker import fake_run

    return fake_run.fake_tensors()


def called_model(session: Any, command: p.RunOnce, made: tuple[str, Any, Any, int]) -> Any:
    """What a command calls: the model of a worker's session, with its backward where it has one, or one as it is that was built on another
    GPU. ``made``: its class, arguments and seed."""
    model, (kind, args, kwargs, seed) = session.model, made
    if command.setting != MULTIPROCESSORS or not isinstance(model, torch.nn.Module):
        return model if command.named or command.by_name else session.called
    with setting(MULTIPROCESSORS, model), session.candidate_code("import"):
        module = session.backend.load(Path(session.path), fake_cuda.CANDIDATE)
    with setting(MULTIPROCESSORS, model), session.candidate_code("construct"):
        seed_all(seed)
        other = getattr(module, kind)(*args, **kwargs)
    before, own = trusted_torch.named_state(model), trusted_torch.named_state(other)
    with torch.no_grad():
        for key, (tensor, _) in own.items():
            if key in before and before[key][0].shape == tensor.shape:
                tensor.copy_(before[key][0])
    if isinstance(other, torch.nn.Module):
        other.train(bool(getattr(model, "training", True)))
    return other
