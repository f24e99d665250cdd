"""The first run of a problem's code, dry and in a thread that can be abandoned: does it end, and how much does it need?

Problem sources are the user's own and run in this process. What they may do to it by mistake is met here, before anything else: an
endless loop, a wait for input, an exit, tensors that fit nowhere.
"""

from __future__ import annotations

import ast
import contextvars
import ctypes
import functools
import logging
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Generic, TypeVar

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes, unfused_flex
from kernelllm.problems.instance import Instance, explain
from kernelllm.problems.seeds import lent, own_generators
from kernelllm.problems.trace import WAYS, Trace

_IMPORT_FACTOR = 6
"""How many times longer it may take while it imports something: packages are large, and disks are slow."""
log = logging.getLogger(__name__)
T = TypeVar("T")
SECONDS = 10.0
"""What the file, and one dry run on tensors without memory, may take. The judge does this dozens of times."""
BUILD_SECONDS = 60.0
"""The same where parameters have to be drawn for it."""
REMARK_SECONDS = 8.0
"""Who waits so long is told what for."""
SLOW_SECONDS = 4.0
"""What a dry run may take without a remark."""
MOST_BYTES = 2**40
"""More than any device holds."""
_KEPT = 512
_EXITS = {"_exit", "abort", "execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe"}

_known: dict[str, tuple[str, Trace] | ProblemError] = {}


def first_run(problem: Problem) -> tuple[str, Trace]:
    """The dry run at the problem's own sizes, and the way (:data:`kernelllm.problems.trace.WAYS`) that worked first. Kept by source.

    Raises ProblemError where the problem fails, does not come back, ends the process, or asks for more than :data:`MOST_BYTES`.
    """
    found = _known.get(problem.digest)
    if found is None:
        with own_generators(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _known[problem.digest] = _kept(problem)
            while len(_known) > _KEPT:
                del _known[next(iter(_known))]
    if isinstance(found, ProblemError):
        raise found
    return found


def _kept(problem: Problem) -> tuple[str, Trace] | ProblemError:
    try:
        way, trace = _first_that_works(problem)
        _refuse_giants(problem, trace)
        return way, trace
    except ProblemError as error:
        return error


def _first_that_works(problem: Problem) -> tuple[str, Trace]:
    _refuse_exits(problem)
    instance = _in_time(problem, "the file", SECONDS, lambda: Instance(problem))
    failures: list[ProblemError] = []
    for way, run in WAYS.items():
        start = time.monotonic()
        try:
            seconds = SECONDS if way == "meta" else BUILD_SECONDS
            trace = _in_time(problem, "a dry run", seconds, functools.partial(run, instance, None))
            if time.monotonic() - start > SLOW_SECONDS:
                log.warning("%s: one dry run takes %.1f s, and dozens follow.", problem.name, time.monotonic() - start)
            return way, trace
        except ProblemError as error:
            if isinstance(error.__cause__, GivenUp):
                raise
            failures.append(error)
    raise failures[-1]


def _in_time(problem: Problem, stage: str, seconds: float, call: Callable[[], T]) -> T:
    def told(stack: traceback.StackSummary, limit: float) -> None:
        place, line = _place(stack, stage)
        log.warning("%s: %s has not come back yet, and is given up after %.0f s.%s", problem.name, place, limit, line)

    try:
        return watched(call, seconds, told)
    except Exited as ended:
        raise explain(ended.error, stage, problem) from ended
    except GivenUp as late:
        place, line = _place(late.stack, stage)
        raise ProblemError(
            f"The problem's {place.removeprefix('the ').removeprefix('a ')} was not done after {seconds:g} s.{line}",
            where=problem.path or problem.name,
            fix="It is run dozens of times. Look for a loop that never ends; draw tensors with torch, and wait for nothing.",
        ) from late


def _place(stack: traceback.StackSummary, stage: str) -> tuple[str, str]:
    """The problem's function that runs, or ``stage``, and a sentence with its line."""
    own = [frame for frame in stack if frame.filename.startswith("<problem")]
    place = f"{own[0].name}()" if own and own[0].name != "<module>" else stage
    return place, f" It was on line {own[-1].lineno}: {own[-1].line}" if own else ""


def _refuse_exits(problem: Problem) -> None:
    """No call may end this process without a word; ``sys.exit`` raises, and is told of as any error."""
    tree = sizes.parse(problem.source, problem.path or problem.name)
    for statement in tree.body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):  # does not run here
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in _EXITS:
                    raise ProblemError(
                        f"The problem calls os.{name} on line {node.lineno}, which would end this process.",
                        where=problem.path or problem.name,
                        fix="Raise an exception instead.",
                    )


def _refuse_giants(problem: Problem, trace: Trace) -> None:
    for what, size in (("inputs", trace.input_bytes), ("parameters and buffers", trace.parameter_bytes)):
        if size > MOST_BYTES:
            raise ProblemError(
                f"The problem's {what} take {size / 1e12:.1f} TB, more than any device holds.",
                where=problem.path or problem.name,
                fix="Make its sizes smaller.",
            )


class GivenUp(Exception):
    """What was to be run has not come back in time. ``stack``: where it was then, the innermost frame last."""

    def __init__(self, seconds: float, stack: traceback.StackSummary) -> None:
        super().__init__(f"not back after {seconds:g} s")
        self.stack = stack


class Exited(Exception):
    """What was run raised something that is meant to end the process. No signal reaches its thread, so it is the code's own doing."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class _Stop(BaseException):
    """Raised inside the thread that was given up; not an Exception, so that ``except Exception`` in a loop does not swallow it."""


class _Watched(threading.Thread, Generic[T]):
    """Runs a call in the caller's context, and keeps its result or whatever it raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        super().__init__(name="kernelllm-problem", daemon=True)
        self._call, self._context = call, contextvars.copy_context()
        self.result: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with lent():
                self.result.append(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too: no signal reaches this thread
            self.error = error

    def stack(self) -> traceback.StackSummary:
        """The frames that the thread is in, the innermost last."""
        frame = sys._current_frames().get(self.ident or 0)
        return traceback.extract_stack(frame) if frame else traceback.StackSummary()

    def stop(self) -> None:
        """Raise in it. Python code ends at once; a call into C ends when that call does, and nobody waits for it."""
        if self.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(_Stop))


def watched(call: Callable[[], T], seconds: float, told: Callable[[traceback.StackSummary, float], None]) -> T:
    """``call()``, which may take ``seconds``, and longer where more wants to run than there are cores.

    ``told``: called once with where it is, and the seconds that it may take, where it takes longer than :data:`REMARK_SECONDS`.
    The caller holds the generators (:func:`kernelllm.problems.seeds.own_generators`) for it.
    Raises GivenUp where it takes longer, Exited where it raises SystemExit, KeyboardInterrupt and the like, and its own exceptions.
    """
    thread = _Watched(call)
    seconds *= min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), _IMPORT_FACTOR)
    start = time.monotonic()
    thread.start()
    try:
        thread.join(min(seconds, REMARK_SECONDS))
        if thread.is_alive() and seconds > REMARK_SECONDS:
            told(thread.stack(), seconds)
            thread.join(seconds - REMARK_SECONDS)
        while thread.is_alive() and time.monotonic() - start < seconds * _IMPORT_FACTOR and _importing(thread.stack()):
            thread.join(seconds / 10)
        if thread.is_alive():
            unfused_flex.given_up(thread.ident or 0)
            raise GivenUp(seconds, thread.stack())
    finally:
        thread.stop()
    if isinstance(thread.error, Exception):
        raise thread.error
    if thread.error is not None:
        raise Exited(thread.error)
    return thread.result[0]


def _importing(stack: traceback.StackSummary) -> bool:
    return any(frame.filename.startswith("<frozen importlib") for frame in stack)
