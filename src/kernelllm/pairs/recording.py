"""Every module that is built and called while a model runs: what its constructor got, and what its forward got."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelllm.pairs.described import Described, described

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class ModuleRecorder:
    """What was built while it watched. ``calls`` gives each module that was called once, with its first inputs described."""

    def __init__(self) -> None:
        self.built: dict[int, tuple[torch.nn.Module, Arguments]] = {}
        self.calls: dict[int, tuple[torch.nn.Module, Arguments]] = {}
        """By id: the module is kept, so that no other gets its id."""

    def constructor(self, module: torch.nn.Module) -> Arguments | None:
        """What a module was built with; None for one that was not watched."""
        found = self.built.get(id(module))
        return found[1] if found else None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what is built and called. ``nn.Module.__new__`` and ``__call__`` are replaced: for processes that do nothing else."""
        called = torch.nn.Module.__call__
        recorder = self

        def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
            made = object.__new__(cls)
            recorder.built[id(made)] = (made, (_frozen(args), _frozen(kwargs)))
            return made

        @functools.wraps(called)
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if id(module) in recorder.calls or type(module).__module__.startswith("torch."):
                return called(module, *args, **kwargs)
            given = tuple(map(described, args)), {k: described(v) for k, v in kwargs.items()}
            out = called(module, *args, **kwargs)
            recorder.calls[id(module)] = (module, given)
            return out

        torch.nn.Module.__new__ = new  # type: ignore[method-assign]
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module.__new__ = lambda cls, *_, **__: object.__new__(cls)  # type: ignore[method-assign]
            torch.nn.Module.__call__ = called  # type: ignore[method-assign]


def positional(module: torch.nn.Module, arguments: Arguments) -> list[Any] | None:
    """The inputs of a call in the order of forward's parameters, without a tail of defaults; None where that cannot be."""
    args, kwargs = arguments
    kwargs = {k: v for k, v in kwargs.items() if not (isinstance(v, Described) and v.kind == "object")}
    try:
        signature = inspect.signature(type(module).forward)
        names = list(signature.parameters.values())[1:]
        named = {p.name for p in names if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        bound = signature.bind(module, *args, **{k: v for k, v in kwargs.items() if k in named}).arguments
    except (TypeError, ValueError):
        return None
    found: list[Any] = []
    skipped: list[Any] = []
    for p in names:
        if p.kind is p.VAR_POSITIONAL:
            found += bound.get(p.name, ()) if not skipped else ()
        elif p.kind is p.POSITIONAL_OR_KEYWORD or p.kind is p.POSITIONAL_ONLY:
            value = bound.get(p.name, p.default)
            if isinstance(value, Described) and value.kind == "object":
                value = p.default
            if value is p.empty:
                return None
            if p.name in bound and not _same(value, p.default):
                found += [*skipped, value]
                skipped = []
            else:
                skipped.append(value)
        elif p.kind is p.KEYWORD_ONLY and p.name in bound and not _same(bound[p.name], p.default):
            return None
    return found


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, bool | int | float | str) and value == default)


def _frozen(value: Any) -> Any:
    """Lists and dictionaries as they are now: constructors change them."""
    if type(value) in (list, tuple):
        return type(value)(map(_frozen, value))
    return {k: _frozen(v) for k, v in value.items()} if type(value) is dict else value
