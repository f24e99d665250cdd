"""The sizes of a convolution over images or volumes, and texts of places in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

DIRECTIONS = ("deep", "down", "right")
"""Of volumes, the last two of images."""


@dataclass(frozen=True)
class Shape:
    """A convolution of channels-last images or volumes by weights [out, *taps, channels]; transposed: [*taps, out, channels]."""

    images: int
    channels: int
    size: tuple[int, ...]
    out_channels: int
    out_size: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool = False
    paired: bool = False
    """Whether a program has pixels of both phases of the last direction."""

    @property
    def pixels(self) -> int:
        return self.images * math.prod(self.out_size)

    @property
    def phases(self) -> int:
        """Kinds of pixels that other taps reach: of a transposed convolution, those of each remainder by its stride."""
        return math.prod(self.stride) // (2 if self.paired else 1) if self.transposed else 1

    @property
    def places(self) -> tuple[int, ...]:
        """Pixels of one phase, by direction."""
        return tuple(-(-n // s) for n, s in zip(self.out_size, self.stride, strict=True)) if self.transposed else self.out_size

    @property
    def products(self) -> int:
        """Products that make one result, at most."""
        apart = self.stride if self.transposed else [1] * len(self.taps)
        return self.channels * math.prod(-(-k // s) for k, s in zip(self.taps, apart, strict=True))


def names(shape: Shape) -> tuple[str, ...]:
    """Names of the spatial directions."""
    return DIRECTIONS[-len(shape.size) :]


def split(whole: str, sizes: tuple[int, ...]) -> list[str]:
    """A place's coordinates, the last of which run fastest; whatever is left over is of the first."""
    found: list[str] = []
    for at in range(len(sizes)):
        below = math.prod(sizes[at + 1 :])
        found.append(f"{whole} // {below} % {sizes[at]}" if below > 1 else f"{whole} % {sizes[at]}")
    return found


def joined(parts: list[str], sizes: tuple[int, ...]) -> str:
    """The place of coordinates among these sizes."""
    text = parts[0]
    for part, size in zip(parts[1:], sizes[1:], strict=True):
        text = f"({text}) * {size} + {part}" if " " in text else f"{text} * {size} + {part}"
    return text


def times(text: str, number: int) -> str:
    """The text of a product with a number, which is left out where it is 1."""
    return text if number == 1 else f"{text} * {number}"


__all__ = ["DIRECTIONS", "Shape", "joined", "names", "split", "times"]
