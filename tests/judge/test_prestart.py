"""Servers that start before torch is imported here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.isolation import prestart
from kernelllm.judge.worker.server import descendants

pytestmark = pytest.mark.usefixtures("own_servers")


def test_a_judge_takes_over_what_was_begun() -> None:
    before = set(descendants(os.getpid()))
    prestart.begin("cpu", "sm_90")
    prestart.begin("cpu", "sm_90")  # there is one of each, however often it is asked for
    begun = set(descendants(os.getpid())) - before
    assert len(begun) == 2
    with Judge(JudgeSettings(device="cpu")):
        assert set(descendants(os.getpid())) - before >= begun
        assert len(set(descendants(os.getpid())) - before) <= len(begun)
    assert not set(descendants(os.getpid())) - before


def test_a_judge_for_another_target_has_its_own() -> None:
    before = set(descendants(os.getpid()))
    prestart.begin("cpu", "sm_80")
    begun = set(descendants(os.getpid())) - before
    with Judge(JudgeSettings(device="cpu", target="sm_90")):
        assert len(set(descendants(os.getpid())) - before - begun) == 2
    with Judge(JudgeSettings(device="cpu", target="sm_80")):
        pass


def test_what_nobody_takes_ends_with_the_process_and_torch_is_not_imported(tmp_path: Path) -> None:
    code = "import sys; from kernelllm.judge.isolation import prestart; prestart.begin('cpu', 'sm_90'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True,
                          timeout=60, check=True)  # fmt: skip
    assert done.stdout.strip() == "False"
    assert not list(tmp_path.iterdir())
