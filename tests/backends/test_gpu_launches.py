"""Launches on a GPU are seen whichever way they are made. Here with a driver that launches nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_launches_are_seen_suppressed_and_counted() -> None:
    script = Path(__file__).parent / "gpu_launches.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    registers = told.pop("registers")
    assert registers > 0
    assert told == {
        "warmup": {}, "watched": {"copy_kernel": 3}, "ran": 3, "suppressed": {"copy_kernel": 5}, "ran while suppressed": 0, "timed": 3,
        "noted while timed": {"copy_kernel": 5}, "disagreement": False, "disagreement of a replaced launcher": True,
    }  # fmt: skip
