"""Keeps what code of others prints off standard output, which is for results, thread by thread; and its log lines off the terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

CHATTY = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.utils._sympy.interp",
    "torch._dynamo",
    "torch._inductor",
    "torch._logging._internal",
)
"""Loggers that print tracebacks of errors which are caught and told in a sentence."""

_lock = threading.Lock()
_here = threading.local()
_users = 0
_routers: list[_Router] = []


class _Router:
    """``sys.stdout`` or ``sys.stderr`` while anybody is inside: each thread writes where it wants to, all others where they did before."""

    def __init__(self, name: str) -> None:
        self.name, self.real = name, getattr(sys, name)
        setattr(sys, name, self)

    def leave(self) -> None:
        if getattr(sys, self.name) is self:  # else somebody else has replaced it meanwhile
            setattr(sys, self.name, self.real)

    def _target(self) -> Any:
        chosen = getattr(_here, "chosen", None)
        return self.real if not chosen else chosen[-1]

    def write(self, text: str) -> int:
        return int(self._target().write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target(), name)


@contextlib.contextmanager
def _routed(nowhere: bool) -> Iterator[None]:
    global _users
    with _lock:
        if _users == 0:
            _routers[:] = [_Router("stdout"), _Router("stderr")]
        _users += 1
        target = io.StringIO() if nowhere else _routers[1].real
    chosen = _here.__dict__.setdefault("chosen", [])
    chosen.append(target)
    try:
        yield
    finally:
        chosen.pop()
        with _lock:
            _users -= 1
            if _users == 0:
                for router in _routers:
                    router.leave()
                _routers.clear()


def printing_to_stderr() -> contextlib.AbstractContextManager[None]:
    """What this thread prints goes to standard error. Unlike with ``contextlib.redirect_stdout``, threads may overlap."""
    return _routed(nowhere=False)


def printing_nowhere() -> contextlib.AbstractContextManager[None]:
    """What this thread prints, on either stream, is dropped."""
    return _routed(nowhere=True)


def quiet_libraries() -> None:
    """Keep torch's own log lines off the terminal, unless ``--verbose`` is anywhere on the command line."""
    if not {"-v", "--verbose"} & set(sys.argv):
        for name in CHATTY:
            logging.getLogger(name).disabled = True
