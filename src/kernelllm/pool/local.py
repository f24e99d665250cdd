"""Work on this machine: long-lived processes, each bound to a device slot, fed one item at a time.

A slot's process builds its state once (a judge, say) and keeps it. A process that dies takes only its
item with it: the item comes back as failed and the slot is filled again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Slot:
    """Where one process works."""

    index: int
    device: str
    """``cpu`` or ``cuda:N``, N as the parent process counts devices."""


@dataclass(frozen=True)
class Done(Generic[Item, Result]):
    """An item that left the pool: with its result, or with the text of what went wrong."""

    item: Item
    result: Result | None = None
    error: str = ""


class LocalPool(Generic[Item, Result]):
    """A context manager over processes that run ``work(state, item)`` with ``state = setup(slot)``.

    ``setup`` and ``work`` must be importable module-level functions; items and results must pickle (both
    sides are this program, never a candidate).
    """

    def __init__(
        self,
        setup: Callable[[Slot], Any],
        work: Callable[[Any, Item], Result],
        *,
        devices: Iterable[str] = ("cpu",),
        per_device: int = 1,
    ) -> None:
        self._setup, self._work = setup, work
        self._context = multiprocessing.get_context("spawn")
        slots = [d for d in devices for _ in range(per_device)]
        self._slots = [Slot(i, device) for i, device in enumerate(slots)]
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}

    def __enter__(self) -> LocalPool[Item, Result]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, items: Iterable[Item]) -> Iterator[Done[Item, Result]]:
        """Yield each item as it finishes, in no fixed order. Items are drawn only when a slot is free."""
        source = iter(items)
        busy: dict[int, Item] = {}
        idle = list(reversed(self._slots))
        more = True
        while more or busy:
            while more and idle:
                try:
                    item = next(source)
                except StopIteration:
                    more = False
                    break
                slot = idle.pop()
                self._send(slot, item)
                busy[slot.index] = item
            if not busy:
                break
            for index, done in self._collect(busy):
                del busy[index]
                idle.append(self._slots[index])
                yield done

    def close(self) -> None:
        """End every process. Waits five seconds for a polite end, then kills."""
        for process, pipe in self._running.values():
            pipe.close()
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        self._running.clear()

    def _send(self, slot: Slot, item: Item) -> None:
        if slot.index not in self._running:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs, self._setup, self._work, slot), daemon=False)
            process.start()
            theirs.close()
            self._running[slot.index] = (process, ours)
        self._running[slot.index][1].send(item)

    def _collect(self, busy: dict[int, Item]) -> list[tuple[int, Done[Item, Result]]]:
        pipes = {self._running[i][1]: i for i in busy}
        finished = []
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            index = pipes[pipe]
            item = busy[index]
            try:
                ok, payload = pipe.recv()
                finished.append((index, Done[Item, Result](item, result=payload) if ok else Done[Item, Result](item, error=payload)))
            except (EOFError, ConnectionResetError):
                process, pipe = self._running.pop(index)
                process.join()
                pipe.close()
                finished.append((index, Done[Item, Result](item, error=f"the pool's process ended with exit code {process.exitcode}")))
        return finished


def _serve(pipe: Connection, setup: Callable[[Slot], Any], work: Callable[[Any, Any], Any], slot: Slot) -> None:
    # Ctrl-C reaches the whole group; the parent decides what ends and when.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if slot.device.startswith("cuda:"):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        number = int(slot.device.removeprefix("cuda:"))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number] if visible else str(number)
    state: Any = None
    ready = False
    while True:
        try:
            item = pipe.recv()
        except (EOFError, OSError):
            break
        try:
            if not ready:
                state, ready = setup(slot), True
            answer = (True, work(state, item))
        except Exception:  # noqa: BLE001 - the item's failure is its answer; the slot goes on
            answer = (False, traceback.format_exc())
        try:
            pipe.send(answer)
        except (BrokenPipeError, OSError):
            break
    close = getattr(state, "close", None)
    if close is not None:
        close()
