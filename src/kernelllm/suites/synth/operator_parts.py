"""Parts of a problem of one operator: its input, a layer with settings, the settings themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kernelllm.suites.synth.module_text import Constant, Kind, ModuleText, Value

Option = tuple[Constant, Constant]
"""The value and the default of a parameter."""

LARGE: Final = (32, 48, 64, 96, 100, 128, 200, 256, 333, 384, 512, 777, 1000, 1024)
SMALL: Final = (3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
_SIDES: Final = (20, 24, 28, 32, 40, 48, 56, 64)
"""Emulated judging is quick at these; training sets them in larger numbers as well."""
NAMES: Final = {
    "rows": (("batch_size", "dim"), ("batch_size", "features"), ("N", "D"), ("rows", "cols"), ("batch", "in_features")),
    "sequence": (("batch_size", "seq_len", "hidden_dim"), ("batch_size", "dim1", "dim2"), ("B", "T", "C")),
    "signal": (("batch_size", "in_channels", "length"), ("N", "channels", "seq_len")),
    "image": (("batch_size", "in_channels", "height", "width"), ("N", "C", "H", "W"), ("batch_size", "features", "dim1", "dim2")),
    "volume": (("batch_size", "in_channels", "depth", "height", "width"), ("N", "C", "D", "H", "W")),
}
SIZES: Final[dict[str, tuple[Sequence[int], ...]]] = {
    "rows": (LARGE, LARGE), "sequence": (SMALL, LARGE[:8], LARGE[:8]), "signal": (SMALL, SMALL, LARGE),
    "image": (SMALL, SMALL, _SIDES, _SIDES),
    "volume": (SMALL[:6], SMALL, (10, 12, 14, 16), (10, 12, 16, 20), (10, 12, 16, 20)),
}  # fmt: skip
_INPUTS: Final = ("x", "x", "x", "x", "input", "inputs", "features", "data", "tensor", "hidden_states")


def start(m: ModuleText, *kinds: Kind) -> Value:
    """An input of one of the kinds."""
    kind = m.rng.choice(kinds)
    dims = tuple(
        m.constant(name, m.rng.choice(sizes)) for name, sizes in zip(m.rng.choice(NAMES[kind]), SIZES[kind], strict=True)
    )  # fmt: skip
    return m.start(kind, dims, m.rng.choice(_INPUTS))


def layer_with(m: ModuleText, kind: str, needed: Sequence[str], options: Mapping[str, Option], hint: str) -> str:
    """A layer with options (value and default): as parameters of the constructor that have defaults, or just those that differ."""
    if m.rng.random() < 0.3:
        needed = [f"{name}={text}" for name, text in zip(_NEEDED.get(kind.rstrip("d123"), ()), needed, strict=False)] or needed
    if m.rng.random() < 0.5:
        given = {name: _given(m, name, value, default) for name, (value, default) in options.items()}
        bare = ("stride", "padding") if list(given)[:2] == ["stride", "padding"] and m.rng.random() < 0.3 else ()
        plain = not any("=" in text for text in needed)
        texts = [given[name] if plain and name in bare else f"{name}={given[name]}" for name in given]
    else:
        texts = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
    return m.layer(m.rng.choice((hint, kind.lower(), "layer")), f"nn.{kind}({', '.join([*needed, *texts])})")


_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "Conv": ("in_channels", "out_channels", "kernel_size"), "ConvTranspose": ("in_channels", "out_channels", "kernel_size"),
    "Linear": ("in_features", "out_features"), "BatchNorm": ("num_features",), "InstanceNorm": ("num_features",),
    "GroupNorm": ("num_groups", "num_channels"), "LayerNorm": ("normalized_shape",), "MaxPool": ("kernel_size",),
    "AvgPool": ("kernel_size",),
}  # fmt: skip
"""What layers call their arguments."""


def _given(m: ModuleText, name: str, value: Constant, default: Constant) -> str:
    """A parameter with a default; for a pair now and then one for the height and one for the width."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(default, int) and m.rng.random() < 0.3:
        return f"({', '.join(m.option(f'{name}_{end}', one, default) for end, one in zip('hw', value, strict=True))})"
    return m.option(name, value, default)


def setting(m: ModuleText, hint: str, value: Constant) -> str:
    """A number that the forward needs: as it is, or kept by the constructor."""
    return repr(value) if m.rng.random() < 0.5 else m.kept(m.parameter(hint, value))


def windows(m: ModuleText, d: int, choices: Sequence[int]) -> Constant:
    """One number for all dimensions, or one for each."""
    if d > 1 and m.rng.random() < 0.25:
        return tuple(m.rng.choice(choices) for _ in range(d))
    return m.rng.choice(choices)
