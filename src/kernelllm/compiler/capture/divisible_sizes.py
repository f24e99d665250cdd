"""What torch knows about sizes, looked through again where a size is found divisible: only what holds the quotient in question."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import FloorDiv, Mod

from kernelllm.compiler.capture.patching import patch


@dataclass
class _Facts:
    """An environment's facts by the quotients that they hold."""

    seen: int = 0
    holding: dict[sympy.Expr, list[sympy.Basic]] = field(default_factory=dict)
    replacements: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    """As they were when all was looked through."""


_FACTS: WeakKeyDictionary[ShapeEnv, _Facts] = WeakKeyDictionary()


@contextmanager
def looked_up() -> Iterator[None]:
    """While open, a new divisible size costs the facts that hold its quotient. torch simplifies them all, which for loops over halves of a
    size (``n // (2 * h)``) takes minutes.
    """
    plain = ShapeEnv._maybe_evaluate_static

    @functools.wraps(plain)
    def evaluated(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        if self._resimplify_floor_div_axioms and kwargs.get("axioms") is None:
            _simplify(self)
        return plain(self, *args, **kwargs)

    with ExitStack() as stack:
        patch(stack, ShapeEnv, "_maybe_evaluate_static", evaluated)
        yield


def _simplify(env: ShapeEnv) -> None:
    facts = _FACTS.setdefault(env, _Facts())
    if facts.replacements != env.replacements or facts.seen > len(env.axioms):  # a name has another meaning: torch looks at all
        _FACTS[env] = _Facts(replacements=dict(env.replacements))
        return
    env._resimplify_floor_div_axioms = False
    keys = list(env.axioms)
    for key in keys[facts.seen :]:
        for quotient in key.atoms(FloorDiv):
            facts.holding.setdefault(quotient, []).append(key)
    facts.seen = len(keys)
    whole = [q for q in facts.holding if env.replace(Mod(*q.args)) in env.divisible]
    for key in {key: None for quotient in whole for key in facts.holding.pop(quotient, ())}:
        env.axioms[env.simplify(key)] = env.axioms[key]
