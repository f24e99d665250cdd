"""The six examples through the compiler, once a session, and their golden files.

``python tests/generate/compiler/emitted.py`` writes the golden files anew.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from kernelllm.core.types import Problem
from kernelllm.generate.compiler.capture import capture
from kernelllm.generate.compiler.emit import emit
from kernelllm.generate.compiler.emit.embed import copied
from kernelllm.generate.compiler.lower import lower
from kernelllm.generate.compiler.options import Options

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).parent / "golden"
NAMES = ("hinge_loss", "softmax", "rms_norm", "linear_gelu", "conv_relu_bias", "attention")


def example(name: str) -> Problem:
    """An example as a problem."""
    path = ROOT / "examples" / f"{name}.py"
    return Problem(name=name, source=path.read_text(encoding="utf-8"), path=str(path))


@cache
def written(name: str, **options: object) -> str:
    """The file that the compiler writes for an example."""
    chosen = Options(**options)  # type: ignore[arg-type]
    problem = example(name)
    return emit(problem, lower(capture(problem, chosen), chosen), chosen)


def without_templates(text: str) -> str:
    """The part that emission decides, without the definitions copied from the templates."""
    for name in ("matmul", "batched_matmul", "addmm", "conv", "conv_transpose", "attention"):
        for piece in copied({name}):
            text = text.replace(f"\n\n\n{piece.text}\n", "\n")
    return re.sub(r"\n{4,}", "\n\n\n", text.removeprefix("import math\n\n"))


if __name__ == "__main__":
    for each in NAMES:
        (GOLDEN / f"{each}.py.txt").write_text(without_templates(written(each)), encoding="utf-8")
