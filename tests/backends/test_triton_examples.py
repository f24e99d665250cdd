"""The worked examples that prompts show are right."""

from __future__ import annotations

from pathlib import Path

import interpreted

from kernelllm.backends.triton.prompt_rules import examples


def test_examples_are_right() -> None:
    """Each example's kernel against its reference in Triton's interpreter, at the example's own sizes."""
    assert interpreted.run(Path(__file__).parent / "triton_examples.py").count("ok") == len(examples())
