"""The first run of a problem's code: does it come back, and what does it ask for? A dry run, in a thread that can be given up.

Problem sources are the user's own and run in this process. What they may do to it by mistake is met here, before anything else: an
endless loop, a wait for input, an exit, tensors that fit nowhere.
"""

from __future__ import annotations

import ast
import functools
import logging
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.instance import Instance, explain
from kernelllm.problems.seeds import own_generators
from kernelllm.problems.trace import WAYS, Trace
from kernelllm.problems.watch import Exited, GivenUp, watched

log = logging.getLogger(__name__)
T = TypeVar("T")
SECONDS = 10.0
"""What the file, and one dry run on tensors without memory, may take. The judge does this dozens of times."""
BUILD_SECONDS = 60.0
"""The same where parameters have to be drawn for it."""
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
    try:
        return watched(call, seconds)
    except Exited as ended:
        raise explain(ended.error, stage, problem) from ended
    except GivenUp as late:
        own = [frame for frame in late.stack if frame.filename.startswith("<problem")]
        place = f"{own[0].name}()" if own and own[0].name != "<module>" else stage
        line = f" It was on line {own[-1].lineno}: {own[-1].line}" if own else ""
        raise ProblemError(
            f"The problem's {place} was not done after {seconds:g} s.{line}",
            where=problem.path or problem.name,
            fix="It is called dozens of times: let it draw its tensors with torch, and wait for nothing.",
        ) from late


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
