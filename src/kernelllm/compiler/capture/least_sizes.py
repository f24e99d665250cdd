"""What is relied on because torch takes every size that varies to be at least 2, and so asks for no guard: the file has to check it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import sympy
import torch
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from kernelllm.compiler.capture.patching import patch

_LEAST: WeakKeyDictionary[ShapeEnv, dict[tuple[sympy.Expr, int], None]] = WeakKeyDictionary()
_DECIDED: WeakKeyDictionary[ShapeEnv, dict[sympy.Basic, None]] = WeakKeyDictionary()
_TORCH, _OURS = Path(torch.__file__).parent, Path(__file__).parents[1]


def at_least(size: Any, least: Any) -> Any:
    """Whether the size is as large; noted where it varies with those of inputs."""
    if isinstance(size, torch.SymInt) and isinstance(least, int) and not free_unbacked_symbols(size):
        _LEAST.setdefault(size.node.shape_env, {})[size.node.expr, least] = None
    return size >= least


def differs(size: Any, number: int) -> Any:
    """Whether the size is another; noted where it varies with those of inputs."""
    if isinstance(size, torch.SymInt) and not free_unbacked_symbols(size):
        _DECIDED.setdefault(size.node.shape_env, {})[sympy.Ne(size.node.expr, number)] = None
    return size != number


def lower_bounds(env: ShapeEnv) -> Iterator[tuple[sympy.Expr, int]]:
    """Sizes, and what operators ask them to be at least."""
    yield from _LEAST.get(env, {})


def decided(env: ShapeEnv) -> Iterator[sympy.Basic]:
    """What the module's code found about sizes without a guard: ``if x.shape[1] > 1``."""
    yield from _DECIDED.get(env, {})


@contextmanager
def noted() -> Iterator[None]:
    """While open, decisions of the module's code that need no guard are kept. Where one stands, torch does not see this file."""
    files = {*symbolic_shapes.uninteresting_files(), __file__}
    plain: Callable[[Any], bool] = torch.SymBool.__bool__

    def decides(self: Any) -> bool:
        env = getattr(self.node, "shape_env", None)
        before = len(env.guards) if env is not None else 0
        expression = self.node.expr if env is not None else None
        answer = plain(self)
        if env is not None and len(env.guards) == before and _is_the_module_s(sys._getframe(1)):
            _DECIDED.setdefault(env, {})[expression if answer else sympy.Not(expression)] = None
        return answer

    with ExitStack() as stack:
        patch(stack, torch.SymBool, "__bool__", decides)
        patch(stack, symbolic_shapes, "uninteresting_files", lambda: files)
        yield


def _is_the_module_s(frame: Any) -> bool:
    """Whether the code that asks is no torch's. Its functions of layers raise errors as the module's own code would."""
    while frame is not None and (kind := _kind(frame.f_code.co_filename)) == "between":
        frame = frame.f_back
    return frame is not None and kind == "module"


@cache
def _kind(file: str) -> str:
    path = Path(file)
    if path == _TORCH / "__init__.py" or path.is_relative_to(_OURS):
        return "between"
    return "torch" if path.is_relative_to(_TORCH) and path != _TORCH / "nn" / "functional.py" else "module"
