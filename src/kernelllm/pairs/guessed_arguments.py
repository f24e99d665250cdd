"""Arguments for a class that nobody has told about: constructor and inputs, guessed by name and kind, kept where the forward runs."""

from __future__ import annotations

import inspect
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves

from kernelllm.problems.fake_mode import fake_mode

WIDTH: Final = 32
BATCH: Final = 4
TRIES: Final = 60
"""Combinations of constructor and inputs that are tried for one class."""

_BY_NAME: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    (r"head_dim|dim_head|head_size", (8, 16)),
    (r"^(n|num)_?heads?$|heads$|nhead", (4, 2)),
    (r"kernel|window|patch", (3, 4)),
    (r"stride|dilation|groups|depth$|layers$|num_blocks|repeat|expansion|ratio|factor|scale$|reduction", (1, 2, 4)),
    (r"padding", (1, 0)),
    (r"drop|^p$|prob", (0.0,)),
    (r"eps", (1e-5,)),
    (r"bias|affine|use_|with_|is_|enable|causal", (True, False)),
    (r"act|nonlin", (torch.nn.ReLU, "relu", torch.nn.ReLU())),
    (r"norm_layer", (torch.nn.LayerNorm, torch.nn.BatchNorm2d)),
    (r"max_.*(len|pos)|seq_?len|length|num_patches|num_tokens|positions", (16, 64)),
    (r"vocab|num_embeddings|num_classes|classes", (WIDTH, 10)),
    (r"size$|resolution|height|width", (16, WIDTH)),
)
_SHAPES: Final = {
    "image": "bchw", "x": "bchw", "sequence": "bsc", "rows": "bc", "signal": "bcl", "volume": "bcdhw", "heads": "bhsc", "last": "bhwc",
}  # fmt: skip
_SIZE: Final = {"b": BATCH, "h": 16, "w": 16, "s": 16, "l": 64, "d": 8}
_IDS: Final = re.compile(r"(^|_)ids?$|indices|index|tokens$|labels|positions|timestep$")


@dataclass(frozen=True)
class Found:
    """Arguments with which a class works: texts for ``get_init_inputs`` and ``get_inputs``."""

    constructor: tuple[Any, ...]
    inputs: tuple[str, ...]


def guessed(cls: type[torch.nn.Module]) -> list[Found]:
    """Arguments with which ``cls`` builds and its forward runs on fake tensors and gives tensors; several where switches have defaults."""
    for constructor, inputs in itertools.islice(_combinations(cls), TRIES):
        texts = tuple(inputs)
        if _runs(cls, constructor, texts):
            switched = [c for c in _switched(cls, constructor) if _runs(cls, c, texts)]
            return [Found(c, texts) for c in (constructor, *switched)]
    return []


def _switched(cls: type[torch.nn.Module], constructor: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The constructor's arguments with one of its switches the other way, those before it as their defaults say."""
    before = constructor
    for p in list(inspect.signature(cls.__init__).parameters.values())[1 + len(constructor) :]:
        if p.kind is not p.POSITIONAL_OR_KEYWORD or not isinstance(p.default, bool | int | float | str | None):
            return
        if isinstance(p.default, bool):
            yield (*before, not p.default)
        before = (*before, p.default)


def _combinations(cls: type[torch.nn.Module]) -> Iterator[tuple[tuple[Any, ...], list[str]]]:
    try:
        needed = [p for p in list(inspect.signature(cls.__init__).parameters.values())[1:] if _required(p)]
        arguments = [p for p in list(inspect.signature(cls.forward).parameters.values())[1:] if _required(p)]
    except (TypeError, ValueError):
        return
    if len(needed) > 6 or not 0 < len(arguments) <= 4:
        return
    constructors = itertools.islice(itertools.product(*(_values(p) for p in needed)), 8)
    for constructor in list(constructors):
        for shape in dict.fromkeys(_SHAPES.values()):
            yield constructor, [_draw(a.name, shape) for a in arguments]


def _required(p: inspect.Parameter) -> bool:
    return p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)


def _values(p: inspect.Parameter) -> tuple[Any, ...]:
    for pattern, values in _BY_NAME:
        if re.search(pattern, p.name):
            return values
    told = str(p.annotation)
    if "bool" in told:
        return (False, True)
    if "float" in told:
        return (0.5,)
    if "str" in told:
        return ("relu", "mean")
    return (WIDTH,)


def _draw(name: str, shape: str) -> str:
    if _IDS.search(name):
        return f"torch.randint(0, 8, ({BATCH}, {_SIZE['s']}))"
    sizes = ", ".join(str(_SIZE.get(c, WIDTH)) for c in shape)
    return f"torch.rand({sizes})" if re.search("mask|target|prob|label", name) else f"torch.randn({sizes})"


def _runs(cls: type[torch.nn.Module], constructor: tuple[Any, ...], inputs: tuple[str, ...]) -> bool:
    try:
        with warnings.catch_warnings(), fake_mode(), torch.no_grad():
            warnings.simplefilter("ignore")
            out = cls(*constructor)(*[eval(text, {"torch": torch}) for text in inputs])
    except Exception:  # noqa: BLE001 - the code of others raises what it likes; the next guess follows
        return False
    leaves = tree_leaves(out)
    return bool(leaves) and all(isinstance(x, torch.Tensor) and x.numel() for x in leaves)
