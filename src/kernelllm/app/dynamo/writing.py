"""Graphs are written and judged in a process of their own, which lives as long as this one.

It is started as a module of Python and spoken to in lines of JSON: multiprocessing would run a user's unguarded script once more.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import queue
import re
import select
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any

import msgspec

from kernelllm.core.errors import KernelLLMError, WorkerError
from kernelllm.core.quiet import no_results_here, quiet_libraries
from kernelllm.core.types import Problem
from kernelllm.problems.graph_problem import SIZE

if TYPE_CHECKING:
    from kernelllm.core.writer import Writer
    from kernelllm.judge import Judge

log = logging.getLogger(__name__)
TRIES = 2
"""Candidates of the compiler's that are judged until one is correct."""
IDLE_S = 300.0
"""Seconds without an order after which the process ends."""


class Order(msgspec.Struct, frozen=True):
    """Write this problem; with ``verify`` judge it too, on that device."""

    problem: Problem
    verify: bool
    device: str
    conv_tf32: bool
    """Whether torch lets fp32 convolutions round to TF32 where the graph runs."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. Without a source, ``message`` says why."""

    source: str = ""
    verified: bool = False
    message: str = ""
    write_s: float = 0.0
    judge_s: float = 0.0


class WritingProcesses:
    """Several of them where there are cores enough: one for a forward and one for its backward. Each starts when it is needed."""

    def __init__(self) -> None:
        self._free: queue.LifoQueue[WritingProcess] = queue.LifoQueue()
        for _ in range(2 if len(os.sched_getaffinity(0)) >= 8 else 1):
            self._free.put(WritingProcess())

    def write(self, order: Order, limit_s: float) -> Written:
        """The answer of one that is free; waits for it. Raises WorkerError as :meth:`WritingProcess.write` does."""
        process = self._free.get()
        try:
            return process.write(order, limit_s)
        finally:
            self._free.put(process)


class WritingProcess:
    """The process, started with the first order. It takes one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, order: Order, limit_s: float) -> Written:
        """The answer. Raises WorkerError where the process was lost or took too long; the next order starts another."""
        if self._process is None or self._process.poll() is not None:  # it ends by itself where there is nothing to do
            self._process = self._started()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], limit_s)[0]:
                raise WorkerError(f"Writing and judging took longer than {limit_s:g} s.")
            answer = process.stdout.readline()
            if not answer:
                raise WorkerError("The process that writes kernels has ended.")
            return msgspec.json.decode(answer, type=Written)
        except (OSError, WorkerError, KeyboardInterrupt) as error:
            self.close()
            if isinstance(error, OSError):
                raise WorkerError(f"The process that writes kernels was lost: {error}.") from error
            raise

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2.0)
            if process.poll() is None:
                process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        atexit.register(self.close)
        # its own kernels are compiled, or run by an interpreter that its workers choose
        environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TORCH_LOGS", "TORCH_TRACE")}
        command = [sys.executable, "-m", __name__]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def serve(orders: IO[bytes], answers: IO[bytes]) -> None:
    """Answer orders until there are no more, or none comes for long."""
    import torch

    from kernelllm.compiler.compiler_writer import Compiler
    from kernelllm.judge import JudgeSettings
    from kernelllm.judge.judge_settings import HYBRID
    from kernelllm.judge.judging import Judge

    judges: dict[str, Judge] = {}
    writers: dict[tuple[bool, bool], Compiler] = {}
    try:
        while select.select([orders], [], [], IDLE_S)[0] and (line := orders.readline()):
            order = msgspec.json.decode(line, type=Order)
            if order.verify and order.device not in judges:
                judges[order.device] = Judge(JudgeSettings(device=order.device, track=HYBRID, measure=False))
            # On a GPU a graph of fixed sizes does what torch.compile does, layouts included. One of dynamic sizes has torch's products at
            # any size. Dynamo guards dtypes.
            fixed = order.device != "cpu" and not re.search(rf"^{SIZE}\d+ = ", order.problem.source, re.MULTILINE)
            asked = {"extern": "allow", "fixed": fixed, "conv_tf32": order.conv_tf32, "any_dtype": False}
            writer = writers.setdefault((fixed, order.conv_tf32), Compiler(**asked))
            torch.backends.cudnn.allow_tf32 = order.conv_tf32  # the judge's references are as exact as the caller's eager
            try:
                found = written(writer, judges.get(order.device), order)
            except KernelLLMError as error:
                found = Written(message=error.what)
            except Exception as error:
                log.debug("the traceback", exc_info=error)
                found = Written(message=f"{type(error).__name__}: {error}"[:500])
            if order.device in judges and order.device != "cpu":
                _give_memory_back(judges[order.device])
            answers.write(msgspec.json.encode(found) + b"\n")
            answers.flush()
    finally:
        for writer in writers.values():
            writer.close()
        for judge in judges.values():
            judge.close()


def written(writer: Writer, judge: Judge | None, order: Order) -> Written:
    """The first candidate that the judge finds correct; without a judge, the first."""
    message, judging, start = "", 0.0, time.perf_counter()

    def result(**found: Any) -> Written:
        return Written(**found, judge_s=round(judging, 1), write_s=round(time.perf_counter() - start - judging, 1))

    for candidate in writer.write(order.problem, TRIES):
        if judge is None or not order.verify:
            return result(source=candidate.source)
        asked = time.perf_counter()
        verdict = judge.judge(order.problem, candidate)
        judging += time.perf_counter() - asked
        if verdict.correct:
            return result(source=candidate.source, verified=True, message=verdict.message)
        message = message or f"{verdict.status}: {verdict.message}"
    return result(message=message)


def _give_memory_back(judge: Judge) -> None:
    """The GPU's memory is that of the process that asked."""
    import torch

    judge.context.references.clear()
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "wb")
    no_results_here()  # what libraries print must not come between the answers
    quiet_libraries()
    serve(sys.stdin.buffer, own)
