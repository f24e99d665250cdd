"""The process that writes and judges kernels for ``torch.compile``, beside the caller's process and as long-lived.

It is started with ``python -m``, and takes requests as lines of JSON: multiprocessing would run a user's unguarded script once more.
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
from kernelllm.core.quiet import quiet_libraries, stdout_to_stderr
from kernelllm.core.types import Attempt, Candidate, Problem
from kernelllm.problems.graphs.graph_problem import SIZE

if TYPE_CHECKING:
    from kernelllm.compiler.subprocess_writer import SubprocessWriter
    from kernelllm.judge import Judge

log = logging.getLogger(__name__)
TRIES = 2
"""Candidates of the compiler's that are judged until one is correct."""
IDLE_S = 300.0
"""Seconds without an request after which the process ends."""


class WriteRequest(msgspec.Struct, frozen=True):
    """Write this problem; with ``verify`` judge it too, on that device."""

    problem: Problem
    verify: bool
    device: str
    conv_tf32: bool
    """Whether torch lets fp32 convolutions round to TF32 where the graph runs."""


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a WriteRequest. Without a source, ``message`` says why."""

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
        """Start one ahead of its first request, which will be for that device."""
        with contextlib.suppress(queue.Empty):
            process = self._free.get_nowait()
            process.start(device)
            self._free.put(process)

    def write(self, request: WriteRequest, limit_s: float) -> WriteResult:
        """The answer of one that is free; waits for it. Raises WorkerError as :meth:`WritingProcess.write` does."""
        process = self._free.get()
        try:
            return process.write(request, limit_s)
        finally:
            self._free.put(process)


class WritingProcess:
    """The process, started with the first request. It takes one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._device = ""

    def write(self, request: WriteRequest, limit_s: float) -> WriteResult:
        """The answer. Raises WorkerError where the process was lost or took too long; the next request starts another."""
        process = self.start(request.device)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(request) + b"\n")
            process.stdin.flush()
            if not select.select([process.stdout], [], [], limit_s)[0]:
                raise WorkerError(f"Writing and judging took longer than {limit_s:g} s.")
            answer = process.stdout.readline()
            if not answer:
                raise WorkerError("The process that writes kernels has ended.")
            return msgspec.json.decode(answer, type=WriteResult)
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


def serve(requests: IO[bytes], replies: IO[bytes], device: str) -> None:
    """Answer requests until there are no more, or none comes for long. What the device's first request will need starts at once."""
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
        while select.select([requests], [], [], IDLE_S)[0] and (line := requests.readline()):
            request = msgspec.json.decode(line, type=WriteRequest)
            if request.device not in judges:
                judges[request.device] = Judge(JudgeSettings(device=request.device, track=HYBRID, measure=False))
            torch.backends.cudnn.allow_tf32 = request.conv_tf32  # the judge's references are as exact as the caller's eager
            try:
                found = write_and_judge(writers.get((request.device, request.conv_tf32)), judges[request.device], request)
            except KernelLLMError as error:
                found = WriteResult(message=error.what)
            except Exception as error:
                log.debug("the traceback", exc_info=error)
                found = WriteResult(message=f"{type(error).__name__}: {error}"[:500])
            if request.device != "cpu":
                _give_memory_back(judges[request.device])
            replies.write(msgspec.json.encode(found) + b"\n")
            replies.flush()
    finally:
        for writer in writers.values():
            writer.close()
        for judge in judges.values():
            judge.close()


def write_and_judge(writer: SubprocessWriter | None, judge: Judge, request: WriteRequest) -> WriteResult:
    """The first candidate that the judge finds correct; the first where it is not asked. Without a writer they are written here."""
    message, judging, start = "", 0.0, time.perf_counter()

    def result(**found: Any) -> WriteResult:
        return WriteResult(**found, judge_s=round(judging, 1), write_s=round(time.perf_counter() - start - judging, 1))

    looks = threading.Thread(target=judge.prepare, args=(request.problem,))
    if writer is not None and request.verify:
        looks.start()
    here = partial(candidates, device=request.device, conv_tf32=request.conv_tf32)
    for candidate in (writer.candidates if writer else here)(request.problem, TRIES, ()):
        if not request.verify:
            return result(source=candidate.source)
        if looks.is_alive():
            looks.join()
        asked = time.perf_counter()
        verdict = judge.judge(request.problem, candidate)
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
    stdout_to_stderr()  # what libraries print must not come between the replies
    quiet_libraries()
    serve(sys.stdin.buffer, own, sys.argv[1])
