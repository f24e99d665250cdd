"""Values of masked-off lanes of a load without ``other``: arbitrary, so no result may depend on them."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import numpy as np


class UnloadedLanes:
    file = ""
    """The candidate's, for the lines of its loads."""
    places: dict[str, None] = {}  # noqa: RUF012 (one for the process)
    """Loads that left lanes undefined so far, each by its kernel and line."""
    kept: Collection[str] | None = None
    """Places whose lanes hold what no result can depend on, while those of all others hold ``fill``; None: all places."""
    fill = 0.0
    """Zero or an infinity. An integer takes its smallest or largest value for these."""


def value(element: Any, kind: np.dtype[Any]) -> Any:
    """For the lanes of the load under way: NaN, or an integer that fits no tensor."""
    place = _place()
    UnloadedLanes.places.setdefault(place)
    if UnloadedLanes.kept is not None and place not in UnloadedLanes.kept:
        return _filling(element, kind)
    if kind.kind == "f":
        return np.nan
    if element.is_floating():  # bfloat16 and float8 live as integers
        return 0x7FC0 if kind.itemsize == 2 else 0x7F
    return True if kind.kind == "b" else np.iinfo(kind).max // 3


def _filling(element: Any, kind: np.dtype[Any]) -> Any:
    fill = UnloadedLanes.fill
    if kind.kind == "f" or fill == 0:
        return fill
    if element.is_floating():
        return int(np.float32(fill).view(np.uint32)) >> 16 if kind.itemsize == 2 else 0
    return fill > 0 if kind.kind == "b" else np.iinfo(kind).max if fill > 0 else np.iinfo(kind).min


def _place() -> str:
    name, line = place()
    return f"{name} (line {line})" if line else ""


def place() -> tuple[str, int]:
    """The kernel under way, and its line; 0 where there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == UnloadedLanes.file:
            return frame.f_code.co_name, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return "", 0
