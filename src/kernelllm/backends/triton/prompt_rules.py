"""Rules for writing Triton that prompts contain, and hints for common mistakes."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from kernelllm.backends.base import Example

FENCE = "python"
FENCE_NAMES = frozenset({"triton"})
RULES = """\
The work is done in Triton kernels of your own. PyTorch may allocate, reshape and hold parameters; \
it does not do the heavy computing, and nothing falls back to it.
Keep the precision of the inputs: accumulate in float32, use `input_precision="tf32x3"` or `"ieee"` in `tl.dot` of float32 operands.
"""
USUAL_IMPORTS = {
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "libdevice": "from triton.language.extra import libdevice",
}
KERNEL = re.compile(r"@\s*(?:triton\.)?(?:jit|autotune|heuristics)\b|triton\.jit\(|load_inline\(")
_TITLES = {
    "add": "elementwise addition",
    "elementwise": "fused elementwise operators",
    "epilogue": "matrix product with a fused epilogue",
    "reduction": "reduction along rows",
    "matmul": "tiled matrix product",
    "softmax": "online softmax",
}


@cache
def examples() -> dict[str, Example]:
    """The worked examples, by operator family."""
    folder = files("kernelllm.backends.triton.examples")

    def text(name: str) -> str:
        return (folder / f"{name}.py").read_text(encoding="utf-8").strip()

    return {n: Example(title=title, reference=text(f"{n}_reference"), kernel=text(f"{n}_kernel")) for n, title in _TITLES.items()}
