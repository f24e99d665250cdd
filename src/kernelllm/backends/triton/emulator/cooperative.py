"""Cooperative grids, whose programs wait for each other: each program is a thread, and one thread runs at a time.

A program hands over to the next after each atomic operation: one that polls a barrier lets the others arrive there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from triton.runtime import interpreter as ti

MOST_PROGRAMS = 512


class _Ended(BaseException):
    """Another program failed. Not an Exception: Triton wraps those."""


class Grid:
    """The programs of one launch."""

    active: Grid | None = None

    def __init__(self, programs: Sequence[tuple[int, ...]], body: Callable[[], Any]) -> None:
        if len(programs) > MOST_PROGRAMS:
            raise NotImplementedError(f"A cooperative grid of {len(programs)} programs cannot be interpreted without a GPU; judge this "
                                      "candidate with --device cuda.")  # fmt: skip
        self._programs, self._body = programs, body
        self._turns = [threading.Semaphore(0) for _ in programs]
        self._alive = list(range(len(programs)))
        self._current = 0
        self._error: BaseException | None = None
        self._done = threading.Event()

    def run(self) -> None:
        """Run all programs. Raises what the first one that fails raises."""
        Grid.active = self
        threads = [threading.Thread(target=self._run_one, args=(number,), daemon=True) for number in self._alive]
        try:
            for thread in threads:
                thread.start()
            self._turns[0].release()
            self._done.wait()
            for thread in threads:
                thread.join()
        finally:
            Grid.active = None
        if self._error is not None:
            raise self._error

    def hand_over(self) -> None:
        """Let the next program run, and wait for this one's turn."""
        mine = self._current
        following = self._following()
        if following == mine:
            return
        self._current = following
        self._turns[following].release()
        self._turns[mine].acquire()
        if self._error is not None:
            raise _Ended
        ti.interpreter_builder.set_grid_idx(*self._programs[mine])

    def _following(self) -> int:
        return next((number for number in self._alive if number > self._current), self._alive[0])

    def _run_one(self, number: int) -> None:
        self._turns[number].acquire()
        try:
            if self._error is None:
                ti.interpreter_builder.set_grid_idx(*self._programs[number])
                self._body()
        except _Ended:
            pass
        except BaseException as error:  # noqa: BLE001 (whatever a kernel raises is raised where it was launched)
            self._error = self._error or error
        following = self._following()
        self._alive.remove(number)
        if not self._alive:
            self._done.set()
            return
        self._current = following if following != number else self._alive[0]
        self._turns[self._current].release()
