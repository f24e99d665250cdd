"""``synth``: problems drawn from a typed grammar of operators, as many as are asked for, the same for the same seed.

Start with :func:`drawn` below; ``grammar.py`` holds the operators.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Problem
from kernelllm.suites import contract
from kernelllm.suites.synth.chains import chain
from kernelllm.suites.synth.composed import composed
from kernelllm.suites.synth.everyday import everyday
from kernelllm.suites.synth.grammar import ENDS, OPERATORS, Operator, applied
from kernelllm.suites.synth.module_text import Dim, Kind, ModuleText, Style, Value
from kernelllm.suites.synth.single import single

VERSION = "10"
"""The grammar's version: the same version, seed and number give the same text."""
_SINGLE, _CHAIN, _COMPOSED, _EVERYDAY = 0.13, 0.22, 0.18, 0.45
"""Shares of single operators with all of their settings, of products and convolutions with others behind them, of modules of several
statements, and of what people begin with."""
_LENGTHS = {1: 0.1, 2: 0.46, 3: 0.27, 4: 0.1, 5: 0.05, 6: 0.02}


class SynthSuite(contract.Suite):
    """``synth/COUNT`` or ``synth/SEED/COUNT`` problems, or ``synth/SEED/FROM-TO``. Raises UsageError for another form."""

    name = "synth"
    summary = "problems drawn from a grammar of operators: synth/100, synth/SEED/100, synth/SEED/100-200"
    version = VERSION

    def __init__(self, selection: str = "") -> None:
        parts = [p for p in selection.split("/") if p] or ["20"]
        seed, span = (parts if len(parts) == 2 else ("0", parts[0])) if len(parts) <= 2 else ("", "")
        start, _, end = span.partition("-") if "-" in span else ("0", "", span)
        if not (seed.isdigit() and start.isdigit() and end.isdigit()):
            raise UsageError(f"The suite synth has no {selection!r}.", fix="Write synth/COUNT, synth/SEED/COUNT or synth/SEED/FROM-TO.")
        self.seed, self.first, self.end = int(seed), int(start), int(end)

    def problems(self) -> Iterator[Problem]:
        """The problems by number; tags are the operators in order."""
        for number in range(self.first, self.end):
            module, source = drawn(self.seed, number)
            name = f"{self.seed}/{number:06d}"
            yield Problem(name=name, source=source, origin=f"synth:{VERSION}/{name}", tags=("synth", *module.operators))


def drawn(seed: int, number: int) -> tuple[ModuleText, str]:
    """Problem ``number`` of a seed: the module and its text."""
    rng = random.Random(f"{VERSION}/{seed}/{number}")
    module = ModuleText(rng, Style.drawn(rng))
    way = rng.random()
    if way < _SINGLE:
        return module, module.text(single(module))
    if way < _SINGLE + _CHAIN:
        return module, module.text(chain(module))
    if way < _SINGLE + _CHAIN + _COMPOSED:
        return module, module.text(composed(module))
    if way < _SINGLE + _CHAIN + _COMPOSED + _EVERYDAY:
        return module, module.text(everyday(module))
    value = _start(module)
    length = rng.choices(list(_LENGTHS), list(_LENGTHS.values()))[0]
    for place in range(length):
        last = place == length - 1
        value = _next(module, value, ENDS if last and rng.random() < 0.3 else OPERATORS)
        if value.kind == "scalar":
            break
    return module, module.text(value)


def _next(module: ModuleText, value: Value, table: dict[Operator, float]) -> Value:
    made = applied(module, value, table)
    return _next(module, value, OPERATORS) if made is None else made


def _start(m: ModuleText) -> Value:
    kind: Kind = m.rng.choices(("rows", "sequence", "image", "signal", "volume"), (0.35, 0.22, 0.28, 0.08, 0.07))[0]
    batch = m.constant(m.rng.choice(("batch_size", "batch_size", "batch", "N")), m.rng.choice((2, 4, 8, 10, 16, 32)))

    def size(hint: str, *choices: int) -> Dim:
        return m.constant(hint, m.rng.choice(choices))

    if kind == "rows":
        return m.start(kind, (batch, size(m.rng.choice(("in_features", "dim", "input_size", "features")), 64, 96, 256, 512, 1000, 1024)))
    if kind == "sequence":
        width = size(m.rng.choice(("hidden_dim", "embed_dim", "d_model")), 32, 64, 128, 256)
        return m.start(kind, (batch, size("seq_len", 16, 32, 50, 128), width))
    channels = size(m.rng.choice(("in_channels", "channels_in")), 3, 4, 8, 16, 32)
    if kind == "signal":
        return m.start(kind, (batch, channels, size("length", 64, 100, 256, 512)))
    if kind == "volume":
        return m.start(kind, (batch, channels, size("depth", 6, 8, 10), size("height", 8, 12, 16), size("width", 8, 12, 16)))
    return m.start(kind, (batch, channels, size("height", 12, 16, 28, 32), size("width", 12, 16, 24, 32)))
