"""Finds and loads the parameters and buffers of a candidate."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport import trusted_torch, values


def entries(model: Any) -> tuple[p.StateEntry, ...]:
    """What lies in the modules, whatever their own methods say of it."""
    found, first = trusted_torch.named_state(model), dict[int, str]()
    known = [
        p.StateEntry(name, tuple(t.shape), values.dtype_name(t.dtype), is_buffer, first.setdefault(id(t), name))
        for name, (t, is_buffer) in found.items()
        if not is_lazy(t)
    ]
    return tuple(known[: p.MAX_TENSORS])


def load(model: Any, command: p.LoadState, tensors: list[torch.Tensor]) -> None:
    """Copy the values into the tensors, or have the model load them, as the command says."""
    if command.dtype and isinstance(model, torch.nn.Module):
        model.to(values.dtype(command.dtype))
    if command.by == "renamed":
        mine = trusted_torch.named_state(model)
        given = dict(zip(command.names, tensors, strict=True))
        model.load_state_dict({name: tensor for name, tensor in given.items() if name not in mine}, strict=False)
        with torch.no_grad():
            for name in given.keys() & mine.keys():
                mine[name][0].copy_(given[name])
    elif command.by in ("itself", "assign"):
        given = {name: t.clone() if command.by == "assign" else t for name, t in zip(command.names, tensors, strict=True)}
        model.load_state_dict(given, strict=True, assign=command.by == "assign")
    else:
        mine = trusted_torch.named_state(model)
        with torch.no_grad():
            for name, value in zip(command.names, tensors, strict=True):
                (mine[name][0].data if command.by == "data" else mine[name][0]).copy_(value)
    if isinstance(model, torch.nn.Module) and model.training != command.training:
        model.train(command.training)  # only then: who is told at each load could prepare for it


def own_state(model: Any) -> dict[str, tuple[torch.Tensor, bool]]:
    """What the model's own ``state_dict`` gives, as it is saved."""
    return {name: (value, False) for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def set_attribute(model: Any, name: str, value: Any) -> bool:
    """As a user does; whether there was one of that name."""
    *path, last = name.split(".")
    module = reduce(getattr, path, model)
    had = getattr(module, last, None)
    if type(had) is torch.Tensor and isinstance(value, list):
        value = torch.tensor(value, dtype=had.dtype, device=had.device).reshape(had.shape)
    setattr(module, last, tuple(value) if type(had) is tuple else value)
    return had is not None
