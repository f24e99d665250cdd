"""Background threads: as many as asked for, in order, nothing after the end."""

from __future__ import annotations

import threading

from kernelllm.core.background import DaemonPool


def test_work_is_done_by_at_most_so_many_threads() -> None:
    pool = DaemonPool(3, "test")
    together = threading.Barrier(3, timeout=10)
    seen: list[str] = []
    done = threading.Semaphore(0)

    def work() -> None:
        together.wait()
        seen.append(threading.current_thread().name)
        done.release()

    for _ in range(9):
        pool.submit(work)
    for _ in range(9):
        assert done.acquire(timeout=10)
    assert set(seen) == {"test-1", "test-2", "test-3"}
    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("test-"))
    pool.close()


def test_one_thread_keeps_the_order() -> None:
    pool = DaemonPool(1, "order")
    seen: list[int] = []
    done = threading.Event()
    for i in range(5):
        pool.submit(lambda i=i: seen.append(i))  # type: ignore[misc]
    pool.submit(done.set)
    assert done.wait(10)
    assert seen == [0, 1, 2, 3, 4]
    pool.close()


def test_what_has_not_begun_is_dropped_at_the_end() -> None:
    pool = DaemonPool(1, "end")
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    seen: list[int] = []

    def first() -> None:
        begun.set()
        go.wait(10)
        ended.set()

    pool.submit(first)
    pool.submit(lambda: seen.append(1))
    assert begun.wait(10)
    pool.close()
    pool.submit(lambda: seen.append(2))
    go.set()
    assert ended.wait(10)
    for thread in [t for t in threading.enumerate() if t.name.startswith("end-")]:
        thread.join(10)
    assert seen == []
