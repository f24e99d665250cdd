"""The pool: everything comes back once, failures stay with their item, nothing outlives it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelllm.core.errors import ProcessSpent
from kernelllm.pool.local import LocalPool, Slot
from kernelllm.pool.locks import DeviceLock


def _setup(slot: Slot) -> dict[str, int]:
    return {"slot": slot.index, "seen": 0}


def _work(state: dict[str, int], item: int) -> tuple[int, int, int]:
    if item == 13:
        os._exit(7)
    if item % 10 == 5:
        raise ValueError(f"item {item}")
    state["seen"] += 1
    return item * item, state["slot"], state["seen"]


def test_every_item_comes_back_once_and_failures_stay_with_their_item() -> None:
    with LocalPool[int, tuple[int, int, int]](_setup, _work, per_device=2) as pool:
        done = {d.item: d for d in pool.run(range(20))}
        assert sorted(done) == list(range(20))
        assert {i: d.result[0] for i, d in done.items() if d.result} == {i: i * i for i in range(20) if i not in (5, 13, 15)}
        assert "ValueError: item 5" in done[5].error
        assert "exit code 7" in done[13].error
        assert max(d.result[2] for d in done.values() if d.result) > 1, "a slot keeps its state"
    assert not multiprocessing.active_children()


def _spends(state: dict[str, int], item: Path) -> int:
    if not item.exists():
        item.touch()
        raise ProcessSpent("no device any more")
    if item.suffix == ".always":
        raise ProcessSpent(f"{item.name}: no device any more")
    state["seen"] += 1
    return state["seen"]


def test_a_process_that_is_spent_is_replaced_and_its_item_done_once_more(tmp_path: Path) -> None:
    with LocalPool[Path, int](_setup, _spends) as pool:
        known = tmp_path / "known"
        known.touch()
        assert pool.call(known).result == 1
        assert pool.call(tmp_path / "item").result == 1, "by a new process"
        assert pool.call(known).result == 2
        assert "item.always: no device any more" in pool.call(tmp_path / "item.always").error
        assert pool.call(known).result == 1
    assert not multiprocessing.active_children()


def _threads(state: object, item: int) -> list[str]:
    return [os.environ[name] for name in ("OMP_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")]


def test_slots_share_the_cores_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "7")
    with LocalPool[int, list[str]](_setup, _threads, per_device=1000) as pool:
        assert pool.call(0).result == ["1", "7"]


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\nfrom kernelllm.pool.local import LocalPool\n"
        "with LocalPool(str, '{}{}'.format) as pool:\n    print(pool.call(3).result[-1])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["once", "3"], done.stderr


def _printing(state: object, item: int) -> int:
    print("no result")  # noqa: T201
    return item


def test_what_a_slot_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with LocalPool[int, int](_setup, _printing) as pool:
        assert pool.call(1).result == 1
    out, err = capfd.readouterr()
    assert (out, err) == ("", "no result\n")


def test_items_are_drawn_only_as_slots_free_up() -> None:
    drawn: list[int] = []

    def source() -> object:
        for i in range(6):
            drawn.append(i)
            yield i

    with LocalPool[int, tuple[int, int, int]](_setup, _work) as pool:
        for count, _ in enumerate(pool.run(source()), start=1):  # type: ignore[arg-type]
            assert len(drawn) <= count + 1


def _count_under_lock(file: Path, _: int) -> int:
    with DeviceLock("test-device") as lock:
        lock.acquire_shared()
        lock.acquire_exclusive()
        value = int(file.read_text())
        file.write_text(str(value + 1))
        return value


def test_the_device_lock_admits_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "counter"
    file.write_text("0")
    with LocalPool[int, int](_File(file), _count_under_lock, per_device=3) as pool:
        seen = sorted(d.result for d in pool.run(range(60)) if d.result is not None)
    assert seen == list(range(60))


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, slot: Slot) -> Path:
        return self.path


@pytest.mark.parametrize("count", [0, 1])
def test_small_inputs(count: int) -> None:
    with LocalPool[int, tuple[int, int, int]](_setup, _work) as pool:
        assert len(list(pool.run(range(count)))) == count


def _tell_and_stay(folder: Path, _: int) -> None:
    (folder / "child").write_text(str(os.getpid()))
    time.sleep(600)


def _own_a_pool(folder: Path) -> None:
    with LocalPool[int, None](_File(folder), _tell_and_stay) as pool:
        pool.call(0)


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_processes_end_with_a_parent_that_is_killed_whatever_they_are_doing(tmp_path: Path) -> None:
    owner = multiprocessing.get_context("spawn").Process(target=_own_a_pool, args=(tmp_path,))
    owner.start()
    told = tmp_path / "child"
    deadline = time.monotonic() + 60
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child = int(told.read_text())
    assert owner.pid is not None
    assert not _gone(child)
    os.kill(owner.pid, signal.SIGKILL)
    owner.join()
    deadline = time.monotonic() + 30
    while not _gone(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)
