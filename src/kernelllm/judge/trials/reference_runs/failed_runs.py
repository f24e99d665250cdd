"""Logs errors of a problem's own code that end one run of it, and nothing else."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def failures_logged(consequence: str, kind: type[Exception] = Exception) -> Iterator[None]:
    """Go on after an error of the problem's code, which may raise anything in float64 or on a GPU."""
    try:
        yield
    except kind as error:
        _LOG.info("%s: %s", consequence, error)
