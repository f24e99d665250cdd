"""Which conditions on sizes are independent of the others, tested on examples."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from types import CodeType

from kernelllm.compiler.capture.captured import Condition, Size
from kernelllm.compiler.emit.size_names import as_python

_DRAWN, _ENOUGH = 3000, 12
"""Sets of sizes that are tried, and how many that fit the conditions so far tell of another one."""
_SMALLEST = ((">=", "1"), (">=", "2"), ("!=", "0"), ("!=", "1"))
"""No example has a size of 0 or 1, so that none tells of these conditions."""


def independent(conditions: Iterable[Condition], sizes: Sequence[Size]) -> list[Condition]:
    """The conditions without those that hold wherever the ones ahead of them do; equalities come first, short ones ahead.

    In all examples what is computed of sizes is above 0: what a size has to be for that is a condition of its own."""
    ordered = sorted(dict.fromkeys(conditions), key=lambda c: (c[1] != "==", len(c[0]) + len(c[2])))
    codes = [(c, code) for c in ordered if (code := _code(f"({as_python(c[0])}) {c[1]} ({as_python(c[2])})")) is not None]
    examples = _examples(sizes) if codes else []
    kept: list[Condition] = []
    given = {size.symbol for size in sizes if not size.expression}
    for condition, code in codes:
        fitting = [e for e in examples if _holds(code, e)]
        least = condition[1] == ">=" and condition[2].isdigit() and condition[0] in given
        if len(fitting) < len(examples) or condition[1:] in _SMALLEST or least:
            kept.append(condition)
        if len(fitting) >= _ENOUGH:
            examples = fitting
    return kept


def _examples(sizes: Sequence[Size]) -> list[dict[str, int]]:
    """Sizes like the problem's own, multiples of them and any others, with the computed ones that follow."""
    draw = random.Random(0)
    formulas = [(s.symbol, _code(as_python(s.expression))) for s in sizes if s.expression]
    made = []
    for _ in range(_DRAWN):
        example = {}
        for size in sizes:
            if not size.expression:
                any_size = draw.randint(2, draw.choice((6, 40, 999)))
                example[size.symbol] = draw.choice((size.hint, size.hint * draw.randint(2, 4), size.hint + draw.randint(1, 4), any_size))
        if all(_computed(example, symbol, code) for symbol, code in formulas):
            made.append(example)
    return made


def _code(text: str) -> CodeType | None:
    try:
        return compile(text, "sizes", "eval")
    except SyntaxError:
        return None


def _value(code: CodeType | None, example: dict[str, int]) -> int | None:
    try:
        return None if code is None else eval(code, {"__builtins__": {}, "min": min, "max": max}, example)
    except (NameError, ArithmeticError, TypeError):
        return None


def _holds(code: CodeType, example: dict[str, int]) -> bool:
    return bool(_value(code, example))


def _computed(example: dict[str, int], symbol: str, code: CodeType | None) -> bool:
    """Whether a computed size can be had; it is then in the example."""
    value = _value(code, example)
    if value is not None:
        example[symbol] = value
    return value is not None and value > 0
