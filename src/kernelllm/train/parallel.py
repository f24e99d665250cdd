"""Work on texts that takes milliseconds an item, shared by processes. What it calls lives in modules that import no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_ALONE = 500
"""Items that one process does sooner than others have started."""
_PROCESSES = 16


def parallel_map(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """The function of each item, in order, by several processes where there are many items."""
    if len(items) <= _ALONE:
        return [function(item) for item in items]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, _PROCESSES), mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, items, chunksize=50))
