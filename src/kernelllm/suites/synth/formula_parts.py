"""Parts of formulas: names that people use, numbers of the constructor, parameters beside a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kernelllm.suites.synth.grammar import CHANNEL_AXIS
from kernelllm.suites.synth.module_text import ModuleText, Value

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_NUMBERS: Final = ("alpha", "beta", "gamma", "low", "high", "fill", "scale", "offset", "eps", "temperature", "factor", "threshold",
                   "weight", "gain", "tau", "limit", "rate", "momentum", "decay", "margin", "power", "sharpness")  # fmt: skip
_PARAMETERS: Final = ("bias", "scale", "gamma", "beta", "weight", "shift", "gain", "mean", "mix", "alpha", "slope", "offset", "s")
_SCALARS: Final = (0.1, 0.25, 0.3, 0.5, 0.7, 1.5, 2.0, 3.0)


def called(m: ModuleText, hints: Sequence[str]) -> str:
    """A name that people use, now and then one that nobody does."""
    if m.rng.random() < 0.15:
        return "".join(m.rng.choice(_LETTERS) for _ in range(m.rng.randint(1, 4))) + m.rng.choice(("_in", "_t", "1", "s"))
    return m.rng.choice(hints)


def any_number(m: ModuleText) -> str:
    """A number of the constructor, computed there now and then, or one that is written out."""
    drawn = m.rng.choice((*_SCALARS, round(m.rng.uniform(0.05, 4), 2)))
    if m.rng.random() < 0.25:
        return repr(drawn)
    name = m.parameter(called(m, _NUMBERS), drawn)
    if name.isidentifier() and m.rng.random() < 0.12:
        return m.layer(called(m, _NUMBERS), m.rng.choice((f"{name} * 2", f"1.0 / {name}", f"{name} + 1.0", f"-{name}")))
    return m.kept(name)


def channel_parameter(m: ModuleText, v: Value) -> str:
    """A parameter of one number a channel, as it stands beside the value."""
    axis = CHANNEL_AXIS[v.kind]
    after = len(v.dims) - 1 - axis
    size = m.of_constructor(v.dims[axis])
    drawn = m.rng.choice(("torch.randn({s})", "torch.rand({s})", "torch.ones({s})", "torch.rand({s}) + 0.5", "torch.randn({s}) * 0.1"))
    if not after:
        return m.layer(called(m, _PARAMETERS), f"nn.Parameter({drawn.format(s=size)})")
    if m.rng.random() < 0.6:
        before = m.rng.choice(("", "1, "))
        return m.layer(called(m, _PARAMETERS), f"nn.Parameter({drawn.format(s=', '.join([before + size, *['1'] * after]))})")
    made = m.layer(called(m, _PARAMETERS), f"nn.Parameter({drawn.format(s=size)})")
    ones = ", ".join(["1", "-1", *["1"] * after])
    return m.rng.choice((f"{made}[:, {', '.join(['None'] * after)}]", f"{made}.view({ones})"))


def bracketed(text: str) -> str:
    """With brackets where an operator stands outside of all brackets."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if not depth and (sign in "+*/" or (sign == "-" and not at) or text[at : at + 3] == " - "):
            return f"({text})"
    return text
