"""The process pool of this machine: each process has a device and a share of the cores, and gets one item at a time.

A slot's process builds its state once (a judge, say) and keeps it. A process that dies takes only its
item with it: the item comes back as failed and the slot is filled again. A process that says that it is spent
is replaced, and its item done once more by the next.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from types import ModuleType
from typing import Any, Generic, TypeVar

from kernelllm.core.closing import Closing
from kernelllm.core.errors import ProcessSpent
from kernelllm.core.garbage_collection import collect_seldom
from kernelllm.core.quiet import quiet_libraries, stdout_to_stderr
from kernelllm.pool import cores

Item = TypeVar("Item")
Result = TypeVar("Result")

_WARNINGS = "ignore:resource_tracker:UserWarning"
"""For the processes: what those leave behind that had to be killed is no news to a person who has pressed Ctrl-C."""
_MAIN = threading.Lock()
_LEAVE_S = 3.0
"""Seconds to wait for killed processes. Giving back a GPU's memory may take them longer; the interpreter waits for them at its end."""


@dataclass(frozen=True)
class Slot:
    """Where one process works."""

    index: int
    device: str
    """``cpu`` or ``cuda:N``, N as the parent process counts devices."""
    alone: bool = True
    """Whether no other slot of the pool works on that device."""


@dataclass(frozen=True)
class PoolResult(Generic[Item, Result]):
    """An item that left the pool: with its result, or with the text of what went wrong."""

    item: Item
    result: Result | None = None
    error: str = ""


class LocalPool(Closing, Generic[Item, Result]):
    """A context manager over processes that run ``work(state, item)`` with ``state = setup(slot)``.

    ``setup`` and ``work`` must be importable module-level functions (or picklable objects); items and results
    must pickle (both sides are this program, never a candidate). ``daemon``: the processes end with this one, unasked,
    and may have no pools of their own. ``forked``: they start as copies of this process, which must have no other thread then.
    """

    def __init__(
        self,
        setup: Callable[[Slot], Any],
        work: Callable[[Any, Item], Result],
        *,
        devices: Iterable[str] = ("cpu",),
        per_device: int = 1,
        daemon: bool = False,
        forked: bool = False,
    ) -> None:
        self._daemon = daemon
        self._setup, self._work = setup, work
        self._context: Any = multiprocessing.get_context("fork" if forked else "spawn")
        self.slots = [Slot(i, d, per_device == 1) for i, d in enumerate(d for _ in range(per_device) for d in devices)]
        self._idle: SimpleQueue[Slot] = SimpleQueue()
        for slot in self.slots:
            self._idle.put(slot)
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}

    def call(self, item: Item) -> PoolResult[Item, Result]:
        """Run one item on the next free slot and wait for it. Many threads may call at once."""
        slot = self._idle.get()
        try:
            return self._exchange(slot, item)
        finally:
            self._idle.put(slot)

    def run(self, items: Iterable[Item]) -> Iterator[PoolResult[Item, Result]]:
        """Yield each item as it finishes, in no fixed order. Items are drawn only when a slot is free."""
        with closing(self.watched(items, None)) as finished:
            yield from (done for done in finished if done is not None)

    def watched(self, items: Iterable[Item], every_s: float | None) -> Generator[PoolResult[Item, Result] | None, None, None]:
        """As :meth:`run`; and None after every so many seconds in which no item finishes."""
        source = iter(items)
        pending: set[Future[PoolResult[Item, Result]]] = set()
        threads = ThreadPoolExecutor(len(self.slots), thread_name_prefix="kernelllm-pool")
        try:
            for item in source:
                pending.add(threads.submit(self.call, item))
                while len(pending) >= len(self.slots):
                    done, pending = wait(pending, every_s, return_when=FIRST_COMPLETED)
                    yield from (f.result() for f in done)
                    if not done:
                        yield None
            while pending:
                done, pending = wait(pending, every_s, return_when=FIRST_COMPLETED)
                yield from (f.result() for f in done)
                if not done:
                    yield None
        except BaseException:
            # Ctrl-C or an abandoned iteration: end the processes, so that the threads come home, each when its process is gone.
            self.close(grace_s=0.5)
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        threads.shutdown()

    def close(self, grace_s: float = 5.0) -> None:
        """End every process: politely for ``grace_s`` seconds, then by force."""
        running, self._running = self._running, {}
        for process, _ in running.values():
            process.terminate()
        deadline = time.monotonic() + grace_s
        for process, _ in running.values():
            process.join(max(0.0, deadline - time.monotonic()))
        for process, _ in running.values():
            if process.is_alive():
                process.kill()  # all before any is waited for
        deadline = time.monotonic() + _LEAVE_S
        for process, pipe in running.values():
            process.join(max(0.0, deadline - time.monotonic()))
            pipe.close()

    def _exchange(self, slot: Slot, item: Item, once_more: bool = True) -> PoolResult[Item, Result]:
        if slot.index not in self._running:
            os.environ.setdefault("PYTHONWARNINGS", _WARNINGS)
            ours, theirs = self._context.Pipe()
            serving = (theirs, self._setup, self._work, slot, len(self.slots))
            process: BaseProcess = self._context.Process(target=_serve, args=serving, daemon=self._daemon)
            with _script_left_alone(self._setup, self._work):
                process.start()
            theirs.close()
            self._running[slot.index] = (process, ours)
        worker, pipe = self._running[slot.index]
        try:
            pipe.send(item)
            ok, payload = pipe.recv()
        except (EOFError, OSError):
            self._running.pop(slot.index, None)
            worker.join(_LEAVE_S)
            return PoolResult(item, error=f"the pool's process ended with exit code {worker.exitcode}")
        if ok is None:
            self._running.pop(slot.index, None)
            worker.join(_LEAVE_S)
            return self._exchange(slot, item, once_more=False) if once_more else PoolResult(item, error=payload)
        return PoolResult(item, result=payload) if ok else PoolResult(item, error=payload)


@contextmanager
def _script_left_alone(*needed: Any) -> Iterator[None]:
    """Processes started meanwhile do not run the user's script once more, guarded by ``if __name__ == "__main__"`` or not.

    multiprocessing imports the script in each new process; nothing there needs it unless ``needed`` is defined in it.
    """
    if any(getattr(x, "__module__", "") == "__main__" for x in needed):
        yield
        return
    with _MAIN:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


def _share_cores(slots: int) -> None:
    """Threads of torch's operators and processes of torch.compile, which otherwise are as many as there are cores, in every slot."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS") if slots > 1 else ():
        os.environ.setdefault(name, str(max(1, count // slots)))


def _end_with_parent() -> None:
    """A parent that was killed sends no SIGTERM, and what is under way here may take minutes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _serve(pipe: Connection, setup: Callable[[Slot], Any], work: Callable[[Any, Any], Any], slot: Slot, slots: int) -> None:
    # Ctrl-C reaches the whole group; the parent decides what ends and when, and asks by SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_end_with_parent, name="kernelllm-parent", daemon=True).start()
    _share_cores(slots)
    stdout_to_stderr()
    quiet_libraries()
    if sys.warnoptions in ([], [_WARNINGS]):
        warnings.simplefilter("ignore")  # remarks on a problem's code, which every slot would print between the lines of progress
    if slot.device.startswith("cuda:"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        number = int(slot.device.removeprefix("cuda:"))
        os.environ["CUDA_VISIBLE_DEVICES"] = chosen = visible.split(",")[number] if visible else str(number)
        if not slot.alone:
            cores.avoid_timing_cores(int(chosen) if chosen.isdigit() else number)
    state: Any = None
    ready = False
    collect_seldom()
    try:
        while True:
            item = pipe.recv()
            try:
                if not ready:
                    state, ready = setup(slot), True
                answer: tuple[bool | None, Any] = (True, work(state, item))
            except ProcessSpent:
                answer = (None, traceback.format_exc())
            except Exception:  # noqa: BLE001 - the item's failure is its answer; the slot goes on
                answer = (False, traceback.format_exc())
            pipe.send(answer)
            if answer[0] is None:
                break
    except (EOFError, OSError, SystemExit):
        pass  # the parent has gone, has closed the pool, or asks for the end
    finally:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # at once from here on, and without a word
        close = getattr(state, "close", None)
        if close is not None:
            close()
    sys.stderr.flush()
    os._exit(0)  # taking apart the threads of C++ libraries, which may still run, ends in an abort now and then
