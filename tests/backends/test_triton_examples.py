"""The worked examples that prompts show are right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kernelllm.backends.triton.prompt_rules import examples


def test_examples_are_right() -> None:
    """Each example's kernel against its reference in Triton's interpreter, at the example's own sizes."""
    script = Path(__file__).parent / "triton_examples.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok") == len(examples())
