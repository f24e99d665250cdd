"""Candidates that crash, hang, flood or attack: the right status, nothing left behind, the next one unaffected."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from judge.problems import SQUARE, elementwise

from kernelllm.core.types import Candidate, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.isolation.limits import Limits
from kernelllm.judge.worker import server

GOOD = elementwise("v * v")


def _does(action: str) -> Candidate:
    head, tail = GOOD.source.split("        y = torch.empty_like(x)")
    return Candidate(
        source=f"import ctypes, os, signal, sys, threading, time\n{head}        {action}\n        y = torch.empty_like(x){tail}"
    )


def _all_gone(judge: Judge) -> bool:
    """Whether no process is left below the worker servers (a supervisor that has just ended may still wait to be reaped)."""
    servers = [server.ready.pid for server in judge.context.workers.servers() if server.ready]
    deadline = time.monotonic() + 5
    while any(server.descendants(pid) for pid in servers):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(
    ("action", "status", "words"),
    [
        ("ctypes.string_at(0)", Status.RUNTIME_ERROR, "SIGSEGV"),
        ("os._exit(3)", Status.RUNTIME_ERROR, "exit code 3"),
        ("sys.exit(0)", Status.RUNTIME_ERROR, "sys.exit"),
        ("os.abort()", Status.RUNTIME_ERROR, "SIGABRT"),
        ("os.close(3)", Status.RUNTIME_ERROR, ""),
        ("os.write(3, b'x' * 64)", Status.RUNTIME_ERROR, "worker"),
        ("hog = [bytearray(2**26) for _ in range(1000)]", Status.OUT_OF_MEMORY, "memory"),
        ("raise KeyboardInterrupt", Status.RUNTIME_ERROR, "KeyboardInterrupt"),
        ("raise MemoryError", Status.OUT_OF_MEMORY, "memory"),
        ("raise ValueError('a\\x1b]0;owned\\x07b\\x9bc')", Status.RUNTIME_ERROR, "ValueError: a]0;ownedbc"),
        ("print('\\x1b[31mred'); sys.stdout.flush(); os._exit(3)", Status.RUNTIME_ERROR, "[31mred"),
        ("raise ValueError('half \\udc80')", Status.RUNTIME_ERROR, "half \ufffd"),
        ("[f() for f in [lambda: f()]]", Status.RUNTIME_ERROR, "Error"),
    ],
)  # fmt: skip
def test_ends(lenient: Judge, action: str, status: Status, words: str) -> None:
    verdict = lenient.judge(SQUARE, _does(action))
    assert verdict.status is status, verdict.message
    assert words in verdict.message
    assert "\x1b" not in verdict.message


def test_a_nest_of_folders_ends_in_a_verdict_and_is_removed() -> None:
    nest = "[(os.mkdir('d'), open('d/file', 'w').close(), os.chdir('d')) for _ in range(3000)]"
    with Judge(JudgeSettings(device="cpu", checks=("no_kernel",), sizes=1, cache=False)) as judge:
        verdict = judge.judge(SQUARE, _does(nest))
        assert verdict.status in (Status.CORRECT, Status.RUNTIME_ERROR), verdict.message
        assert judge.judge(SQUARE, GOOD).status is Status.CORRECT
        roots = [server.root for server in judge.context.workers.servers()]
        assert not any(list(root.glob("w*")) for root in roots)


def test_too_many_files_end_the_worker(lenient: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelllm.judge.worker_pool.Limits", partial(Limits, files=2_000))
    verdict = lenient.judge(SQUARE, _does("[os.close(os.open(f'f{n}', os.O_CREAT)) for n in range(10**9)]"))
    assert verdict.status is Status.RUNTIME_ERROR
    assert "filled its folder" in verdict.message
    assert not any(list(server.root.glob("w*")) for server in lenient.context.workers.servers())


@pytest.mark.parametrize(
    "action",
    [
        "return torch.zeros(1).expand(5 * 2**29)", "return [torch.zeros(1).expand(2**28 + n) for n in range(4000)]",
        "return torch.empty(2**26, device='meta')", "return [[torch.zeros(1)] * 1000] * 1000",
    ],
)  # fmt: skip
def test_outputs_of_any_size_cost_the_judge_no_memory(lenient: Judge, action: str) -> None:
    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    lenient.judge(SQUARE, GOOD)
    before = peak()
    verdict = lenient.judge(SQUARE, _does(action))
    assert verdict.status in (Status.INCORRECT, Status.CHEATING, Status.RUNTIME_ERROR), verdict.message
    assert peak() - before < 2**19  # KiB


def test_what_torch_imports_late_works_with_the_stand_in_for_the_gpu() -> None:
    with Judge(JudgeSettings(device="cpu", checks=("no_kernel",), sizes=1, cache=False)) as judge:
        verdict = judge.judge(SQUARE, _does("__import__('torch._dynamo')"))  # takes seconds
    assert verdict.correct, verdict.message


@pytest.mark.usefixtures("own_servers")
def test_hanging_with_children_that_ignore_signals() -> None:
    action = (
        "[os.fork() for _ in range(2)]; [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]; "
        "time.sleep(600)"
    )
    with Judge(JudgeSettings(device="cpu", time_limit_s=1, checks=("no_kernel",), sizes=1)) as judge:
        verdict = judge.judge(SQUARE, _does(action))
        assert verdict.status in (Status.TIMEOUT, Status.RUNTIME_ERROR), verdict.message
        assert _all_gone(judge)
        assert judge.judge(SQUARE, GOOD).status is Status.CORRECT
        roots = [server.root for server in judge.context.workers.servers()]
    assert not any(root.exists() for root in roots)


def test_printing_does_not_fill_anything(lenient: Judge) -> None:
    verdict = lenient.judge(SQUARE, _does("print('x' * 20_000_000)"))
    assert verdict.status is Status.CORRECT, verdict.message


def test_nothing_is_left_behind() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with Judge(JudgeSettings(device="cpu", time_limit_s=5, checks=("no_kernel",), sizes=1, cache=False)) as judge:
        judge.judge(SQUARE, GOOD)
        before, threads = descriptors(), threading.active_count()
        for action in ("os._exit(1)", "ctypes.string_at(0)", "pass", "open('litter', 'w').write('x')"):
            judge.judge(SQUARE, _does(action))
        assert descriptors() == before
        assert threading.active_count() <= threads + 1
        for server in judge.context.workers.servers():
            assert list(server.root.glob("w*")) == []
        assert _all_gone(judge)
    assert not list(Path("/dev/shm").glob("kernelllm*"))


def _state(pid: int) -> str:
    """A process's state: X, for dead, where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@pytest.mark.usefixtures("own_servers")
@pytest.mark.parametrize("whole", [False, True])
def test_a_worker_server_that_was_killed_is_replaced(whole: bool) -> None:
    with Judge(JudgeSettings(device="cpu", checks=("no_kernel",), sizes=1, cache=False)) as judge:
        assert judge.judge(SQUARE, GOOD).status is Status.CORRECT
        servers = judge.context.workers.servers()
        pids = [one.ready.pid for one in servers if one.ready]
        for pid in {one._process.pid for one in servers if one._process} if whole else pids:
            os.kill(pid, signal.SIGKILL)
        while any(_state(pid) not in "ZX" for pid in pids):
            time.sleep(0.01)
        assert judge.judge(SQUARE, GOOD).status is Status.CORRECT


def test_several_threads_at_once(lenient: Judge) -> None:
    wrong = elementwise("v * v + 1")
    found: dict[int, Status] = {}

    def one(number: int) -> None:
        found[number] = lenient.judge(SQUARE, GOOD if number % 2 else wrong).status

    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: Status.CORRECT if n % 2 else Status.INCORRECT for n in range(4)}
