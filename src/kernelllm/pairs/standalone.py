"""A recorded module as a problem file that stands alone and runs fast, checked by running it."""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves

from kernelllm.core.errors import UsageError
from kernelllm.pairs.described import NO_RANDOM, Constructor, Described, changed, input_text
from kernelllm.pairs.isolate import Isolated
from kernelllm.pairs.recording import Arguments

SMALL: Final = 2**14
"""Numbers in inputs and parameters together up to which a problem is small."""
LARGEST: Final = 2**19
"""The most that is kept where nothing smaller runs."""
ROUNDS: Final = 40
"""Names that a text may ask for."""
FACTORS: Final = (2, 4, 8, 16)


@dataclass(frozen=True)
class ModuleUse:
    """A class as somebody used it: constructor's arguments, inputs in order (described), and how modules among them were built."""

    cls: Any
    constructor: Arguments
    inputs: list[Any]
    built: Callable[[torch.nn.Module], Arguments | None]


class Missing(str):
    """The global name that a text lacked when it ran."""

    __slots__ = ()


@dataclass(frozen=True)
class Way:
    """How a text is written: which sizes, whether bases stay, and which global names are followed (None: all)."""

    change: Callable[[int], int]
    plain_bases: bool
    wanted: frozenset[str] | None


def problem_of(use: ModuleUse, allowed: Callable[[str], bool], way: Way | None = None) -> tuple[str, set[str], Way]:
    """The text of the problem, the packages that it is made of, and the way in which it was written, which is ``way`` where that is given:
    of the same class with other arguments. Raises UsageError with the reason where there is none."""
    reasons: list[str] = []
    ways = ((None, False), (frozenset[str](), False), (None, True)) if way is None else ((way.wanted, way.plain_bases),)
    for wanted, plain_bases in ways:
        best: tuple[str, set[str], Way] | None = None
        for change in _changes(use) if way is None else [way.change]:
            try:
                source, packages, found, wanted = _asked_for(use, change, plain_bases, allowed, wanted)
            except (UsageError, RecursionError) as error:
                reasons.append(error.what if isinstance(error, UsageError) else "it is defined by itself")
                break
            if isinstance(found, Missing):
                reasons.append(f"its text does not run alone (needs {found})")
                break
            if isinstance(found, str):
                reasons.append(found)
            elif found <= SMALL:
                return source, packages, Way(change, plain_bases, wanted)
            else:
                best = best or (source, packages, Way(change, plain_bases, wanted))
        if best:
            return best
        if any("chance" in r or "finite" in r or "tensors" in r or "large" in r or "back" in r for r in reasons):
            break
    raise UsageError(reasons[0] if reasons else "it is too large")


def _asked_for(
    use: ModuleUse, change: Callable[[int], int], plain_bases: bool, allowed: Callable[[str], bool], wanted: frozenset[str] | None
) -> tuple[str, set[str], int | str, frozenset[str] | None]:
    """The text, its packages, what checking it says, and the names it asked for.

    With a set ``wanted`` the text grows by the names that it lacks when it runs.
    """
    for _ in range(ROUNDS):
        source, packages = _text(use, change, plain_bases, allowed, wanted)
        found = checked(source)
        if wanted is None or not isinstance(found, Missing) or found in wanted:
            break
        wanted |= {str(found)}
    if wanted is not None and isinstance(found, int):
        shorter, packages = _text(use, change, plain_bases, allowed, wanted, pruned=True)
        source = shorter if isinstance(checked(shorter), int) else source
    return source, packages, found, wanted


def checked(source: str) -> int | str:
    """How many numbers a problem's inputs and parameters have, or why it is none: it raises, is slow, large, of chance, or not finite."""
    scope: dict[str, Any] = {"__name__": "harvested"}
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            exec(compile(source, "harvested", "exec"), scope)
            torch.manual_seed(0)
            inputs = scope["get_inputs"]()
            model = scope["Model"](*scope["get_init_inputs"]())
            held = (*tree_leaves(inputs), *model.parameters())
            size = sum(int(x.numel()) for x in held if isinstance(x, torch.Tensor))
            if size > LARGEST:
                return "it is too large"
            kept = {k: v.clone() for k, v in model.state_dict().items()}
            outputs: list[list[Any]] = []
            for seed in (1, 2):
                model.load_state_dict(kept)
                torch.manual_seed(seed)
                began = time.monotonic()
                outputs.append([x for x in tree_leaves(model(*_copied(inputs))) if x is not None])
            took = time.monotonic() - began
    except Exception as error:  # noqa: BLE001 - the code of others raises what it likes
        if type(error) is NameError and error.name:
            return Missing(error.name)
        return f"its text does not run alone ({type(error).__name__})"
    if not all(x.numel() if isinstance(x, torch.Tensor) else isinstance(x, bool | int | float) for x in outputs[0]):
        return "its outputs are not tensors"
    outputs = [[x for x in out if isinstance(x, torch.Tensor)] for out in outputs]
    if not outputs[0]:
        return "its outputs are not tensors"
    if took > 0.5:
        return "it is slow"
    if not all(torch.isfinite(x).all() for x in outputs[0] if x.is_floating_point()):
        return "its outputs are not finite"
    if not all(torch.equal(x, y) for x, y in zip(*outputs, strict=True)):
        return "its outputs are of chance"
    given = [x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    if all(any(x.shape == y.shape and torch.equal(x, y) for y in given) for x in outputs[0]):
        return "it gives its inputs back"
    return size + sum(int(x.numel()) for x in outputs[0])


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def _changes(use: ModuleUse) -> Iterator[Callable[[int], int]]:
    """Ways of making sizes smaller, the same for constructor and inputs, the mildest first; where that does not run, as they are."""
    widths = [v for v in tree_leaves((use.constructor[0], use.constructor[1])) if isinstance(v, int) and not isinstance(v, bool)]
    if _numbers(use.inputs) > SMALL // 2 or max(widths, default=0) > 128:
        for factor in FACTORS:
            change = functools.partial(_divided, factor)
            if _numbers(changed(use.inputs, change)) < SMALL or factor == FACTORS[-1]:
                yield change
    yield int


def _divided(factor: int, n: int) -> int:
    return n // factor if n >= 16 and n % factor == 0 and n // factor >= 2 else n


def _numbers(inputs: list[Any]) -> int:
    return sum(_numel(x) for x in tree_leaves(inputs, is_leaf=lambda x: isinstance(x, Described)) if isinstance(x, Described))


def _numel(x: Described) -> int:
    total = 1
    for n in x.shape:
        total *= n
    return total


def _text(
    use: ModuleUse, change: Callable[[int], int], plain_bases: bool, allowed: Callable[[str], bool], wanted: frozenset[str] | None, *,
    pruned: bool = False,
) -> tuple[str, set[str]]:  # fmt: skip
    args, kwargs = _without_chance(use)
    into = Isolated(_strings((args, kwargs)), plain_bases=plain_bases, allowed=allowed, wanted=wanted, pruned=pruned)
    plain = None if use.cls.__name__ == "Model" else _positional(use.cls, args, kwargs)
    own = into.add(use.cls, root="Model" if plain is not None else "")
    into.grow()
    before = -1
    while before != len(into.attributes):  # settings are those that the text reads, and telling them may add to it
        before = len(into.attributes)
        told = Constructor(into, use.built, change).of(use.cls, args if plain is None else plain, kwargs if plain is None else {})
        into.grow()
    inputs = ", ".join(input_text(changed(v, change)) for v in use.inputs)
    end = ""
    if plain is None:
        end = f"\n\n\nclass Model({own}):\n    def __init__(self):\n        super().__init__({', '.join(told)})\n"
    init = ", ".join(told) if plain is not None else ""
    tail = f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return [{init}]\n"
    body = into.text(f"{end}\n\n\n{tail}")
    return body if "import torch\n" in body else f"import torch\n{body}", into.packages


def _without_chance(use: ModuleUse) -> Arguments:
    """The constructor's arguments, with those that make dropout named, so that they can be 0."""
    args, kwargs = use.constructor
    try:
        parameters = list(inspect.signature(use.cls.__init__).parameters.values())[1:]
    except (TypeError, ValueError):
        return args, kwargs
    more = {
        p.name: p.default for p in parameters[len(args) :]
        if NO_RANDOM in p.name and isinstance(p.default, float) and p.default and p.name not in kwargs and p.kind is not p.POSITIONAL_ONLY
    }  # fmt: skip
    return args, {**kwargs, **more}


def _positional(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """The arguments in order, as get_init_inputs gives them; None where one is an object or has no place there."""
    try:
        signature = inspect.signature(cls.__init__)
        bound = signature.bind(None, *args, **kwargs)
    except (TypeError, ValueError):
        return None
    if any(p.kind not in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY) and p.name in bound.arguments for p in signature.parameters.values()):
        return None
    names = [n for n, p in signature.parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    last = max((i for i, n in enumerate(names) if n in bound.arguments), default=0)
    found = tuple(bound.arguments.get(n, signature.parameters[n].default) for n in names[1 : last + 1])
    return found if all(map(_is_plain, found)) else None


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _strings(value: Any, depth: int = 0) -> set[str]:
    """Every text among the arguments, settings' objects included."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return _strings(list(value.values()), depth) | _strings([k for k in value if isinstance(k, str)], depth)
    if isinstance(value, list | tuple):
        return set().union(*(_strings(v, depth) for v in value))
    if hasattr(value, "__dict__") and not callable(value) and depth < 3:
        return _strings(list(vars(value).values()), depth + 1)
    return set()
