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
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import msgspec

from kernelllm.core.errors import KernelLLMError, WorkerError
from kernelllm.core.quiet import no_results_here, quiet_libraries
from kernelllm.core.types import Attempt, Candidate, Problem
from kernelllm.problems.graph_problem import SIZE

if TYPE_CHECKING:
    from kernelllm.compiler.subprocess_writer import SubprocessWriter
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

    def start(self, device: str) -> None:
        """Start one ahead of its first order, which will be for that device."""
        with contextlib.suppress(queue.Empty):
            process = self._free.get_nowait()
            process.start(device)
            self._free.put(process)

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
        self._device = ""

    def write(self, order: Order, limit_s: float) -> Written:
        """The answer. Raises WorkerError where the process was lost or took too long; the next order starts another."""
        process = self.start(order.device)
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

    def start(self, device: str) -> subprocess.Popen[bytes]:
        """Start it, unless it runs for that device: it ends by itself where there is nothing to do."""
        if self._process is not None and self._device != device:
            self.close()
        if self._process is None or self._process.poll() is not None:
            self._process, self._device = self._started(device), device
        return self._process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2.0)
            if process.poll() is None:
                process.kill()

    def _started(self, device: str) -> subprocess.Popen[bytes]:
        atexit.register(self.close)
        # its own kernels are compiled, or run by an interpreter that its workers choose
        environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "TORCH_LOGS", "TORCH_TRACE")}
        command = [sys.executable, "-m", __name__, device]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def candidates(problem: Problem, n: int, feedback: Sequence[Attempt] = (), *, device: str, conv_tf32: bool) -> Iterator[Candidate]:
    """What the compiler makes of a graph.

    On a GPU a graph of fixed sizes does what torch.compile does, layouts included. One of dynamic sizes has torch's products at any
    size. Dynamo guards dtypes.
    """
    from kernelllm.compiler.compiler_writer import Compiler

    fixed = device != "cpu" and not re.search(rf"^{SIZE}\d+ = ", problem.source, re.MULTILINE)
    return Compiler(extern="allow", fixed=fixed, mixed=fixed, conv_tf32=conv_tf32, any_dtype=False).write_here(problem, n, feedback)


def serve(orders: IO[bytes], answers: IO[bytes], device: str) -> None:
    """Answer orders until there are no more, or none comes for long. What the device's first order will need starts at once."""
    import torch

    from kernelllm.compiler.subprocess_writer import SubprocessWriter

    writers: dict[tuple[str, bool], SubprocessWriter] = {}
    if device != "cpu":  # the judge uses the GPU here, and has threads
        for tf32 in (True, False):
            write = partial(candidates, device=device, conv_tf32=tf32)
            writers[device, tf32] = SubprocessWriter(write, forked=True, ahead=False)  # the first is right, mostly

    from kernelllm.judge import JudgeSettings
    from kernelllm.judge.judge_settings import HYBRID
    from kernelllm.judge.judging import Judge

    judges = {device: Judge(JudgeSettings(device=device, track=HYBRID, measure=False))}
    try:
        while select.select([orders], [], [], IDLE_S)[0] and (line := orders.readline()):
            order = msgspec.json.decode(line, type=Order)
            if order.device not in judges:
                judges[order.device] = Judge(JudgeSettings(device=order.device, track=HYBRID, measure=False))
            torch.backends.cudnn.allow_tf32 = order.conv_tf32  # the judge's references are as exact as the caller's eager
            try:
                found = written(writers.get((order.device, order.conv_tf32)), judges[order.device], order)
            except KernelLLMError as error:
                found = Written(message=error.what)
            except Exception as error:
                log.debug("the traceback", exc_info=error)
                found = Written(message=f"{type(error).__name__}: {error}"[:500])
            if order.device != "cpu":
                _give_memory_back(judges[order.device])
            answers.write(msgspec.json.encode(found) + b"\n")
            answers.flush()
    finally:
        for writer in writers.values():
            writer.close()
        for judge in judges.values():
            judge.close()


def written(writer: SubprocessWriter | None, judge: Judge, order: Order) -> Written:
    """The first candidate that the judge finds correct; the first where it is not asked. Without a writer they are written here."""
    message, judging, start = "", 0.0, time.perf_counter()

    def result(**found: Any) -> Written:
        return Written(**found, judge_s=round(judging, 1), write_s=round(time.perf_counter() - start - judging, 1))

    looks = threading.Thread(target=judge.prepare, args=(order.problem,))
    if writer is not None and order.verify:
        looks.start()
    here = partial(candidates, device=order.device, conv_tf32=order.conv_tf32)
    for candidate in (writer.candidates if writer else here)(order.problem, TRIES, ()):
        if not order.verify:
            return result(source=candidate.source)
        if looks.is_alive():
            looks.join()
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
    serve(sys.stdin.buffer, own, sys.argv[1])
