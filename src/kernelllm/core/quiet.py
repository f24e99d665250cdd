"""Keeps standard output for results: output of other code, and logs of libraries, go to standard error or nowhere.

Only a process of our own (the command line, a pool's slot) may change where it prints. Used as a library, nothing is redirected:
``sys.stdout`` belongs to the whole process, and trainers, notebooks and pytest put objects of their own there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

CHATTY = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.utils._sympy.interp",
    "torch._dynamo",
    "torch._inductor",
    "torch._export",
    "torch._export.non_strict_utils",
    "torch._logging._internal",
)
"""Loggers that print tracebacks of errors which are caught and told in a sentence."""

_others: ContextVar[bool] = ContextVar("kernelllm_third_party_output", default=False)


class ResultsOnly:
    """A stream in the place of ``sys.stdout``: what is written inside :func:`third_party_output` goes to ``sys.stderr``."""

    def __init__(self, results: Any) -> None:
        self._results = results

    def write(self, text: str) -> int:
        return int((sys.stderr if _others.get() else self._results).write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)


@contextlib.contextmanager
def results_only() -> Iterator[None]:
    """For the command line, around a whole command: standard output gets nothing that :func:`third_party_output` prints."""
    before = sys.stdout
    sys.stdout = ResultsOnly(before)
    try:
        yield
    finally:
        sys.stdout = before


@contextlib.contextmanager
def third_party_output() -> Iterator[None]:
    """A context manager for code of a problem: what this thread prints is no result. Changes nothing where the process is not ours."""
    token = _others.set(True)
    try:
        yield
    finally:
        _others.reset(token)


def stdout_to_stderr() -> None:
    """For a process that only works for another one: all that is printed in it, by C code too, goes to standard error."""
    sys.stdout.flush()
    os.dup2(2, 1)


def _verbose() -> bool:
    return bool({"-v", "--verbose"} & set(sys.argv))


def quiet_libraries() -> None:
    """Keep torch's own log lines off the terminal, and Python's remarks about candidates' texts that are parsed, unless ``--verbose`` is
    anywhere on the command line."""
    if not _verbose():
        warnings.simplefilter("ignore", SyntaxWarning)
        for name in CHATTY:
            logging.getLogger(name).disabled = True


@contextlib.contextmanager
def quiet_thread() -> Iterator[None]:
    """The same for what this thread logs meanwhile, in a process that is not ours."""
    own = threading.get_ident()
    loggers = [] if _verbose() else [logging.getLogger(name) for name in CHATTY]

    def by_others(record: logging.LogRecord) -> bool:
        return record.thread != own

    for logger in loggers:
        logger.addFilter(by_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(by_others)
