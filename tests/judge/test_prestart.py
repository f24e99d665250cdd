"""Servers that start before torch is imported here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelllm.backends.base import Mode
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.isolation import prestart
from kernelllm.judge.isolation.forkserver import ForkServer
from kernelllm.judge.isolation.limits import Limits
from kernelllm.judge.worker.server import children

pytestmark = pytest.mark.usefixtures("own_servers")


def test_a_judge_takes_over_what_was_begun() -> None:
    before = set(children(os.getpid()))
    prestart.begin("cpu", "sm_90")
    prestart.begin("cpu", "sm_90")  # there is one, however often it is asked for
    begun = set(children(os.getpid())) - before
    assert len(begun) == 1, "one process imports torch for all servers of a judge"
    with Judge(JudgeSettings(device="cpu")) as judge:
        assert set(children(os.getpid())) - before == begun
        assert len(judge.context.workers.servers()) == 2
    assert not set(children(os.getpid())) - before


def test_a_server_may_end_before_another_of_its_process() -> None:
    first, second = ForkServer.together((Mode.INTERPRET, Mode.COMPILE), "sm_90", light=True)
    with second:
        with first:
            first.spawn("", Limits()).close()
        assert not first.root.exists()
        second.spawn("", Limits()).close()
    assert not second.root.exists()


_KILLED = """
import os, sys
from kernelllm.judge.isolation.forkserver import ForkServer
from kernelllm.judge.isolation.owned_folders import OwnedFolder

if sys.argv[1] == "server":
    ForkServer("interpret", "sm_90")
print(OwnedFolder().path)
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("what", ["folder", "server"])
def test_what_a_killed_judge_leaves_is_removed(what: str, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def killed() -> Path:
        done = subprocess.run([sys.executable, "-c", _KILLED, what], env=environment, capture_output=True, text=True, timeout=60)
        return Path(done.stdout.strip())

    left = killed()
    assert left.parent == tmp_path
    if what == "folder":
        assert left.exists()
        again, young = tmp_path / "kernelllm-judge-again", tmp_path / "kernelllm-judge-young"
        for folder in (again, young):
            (folder / "server").mkdir(parents=True)
        os.utime(again, (time.time() - 100,) * 2)  # which a process of a killed judge made after its folder was removed
        code = "import time; from kernelllm.judge.isolation.owned_folders import OwnedFolder; print(OwnedFolder().path); time.sleep(1)"
        mine = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60).stdout.strip()
        assert Path(mine).exists(), "its own is not removed"
        assert (left.exists(), again.exists(), young.exists()) == (False, False, True)
    else:
        end = time.monotonic() + 60
        while list(tmp_path.iterdir()) != [left] and time.monotonic() < end:  # its server removes the other
            time.sleep(0.05)
        assert list(tmp_path.iterdir()) == [left]


def test_a_judge_for_another_target_has_its_own() -> None:
    before = set(children(os.getpid()))
    prestart.begin("cpu", "sm_80")
    begun = set(children(os.getpid())) - before
    with Judge(JudgeSettings(device="cpu", target="sm_90")):
        assert len(set(children(os.getpid())) - before - begun) == 1
    with Judge(JudgeSettings(device="cpu", target="sm_80")):
        pass


def test_what_nobody_takes_ends_with_the_process_and_torch_is_not_imported(tmp_path: Path) -> None:
    code = "import sys; from kernelllm.judge.isolation import prestart; prestart.begin('cpu', 'sm_90'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True,
                          timeout=60, check=True)  # fmt: skip
    assert done.stdout.strip() == "False"
    assert not list(tmp_path.iterdir())
