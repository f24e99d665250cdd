"""What a written file leaves to torch: operators that its forward calls, beside its kernels."""

from __future__ import annotations

import ast
import re

from kernelllm.backends.base import open_backend
from kernelllm.core.errors import CaptureError

_CALLED = re.compile(r"torch\.(?:ops\.aten\.|nn\.functional\.)(\w+)|torch\.(mm|bmm|addmm|baddbmm|lstm|gru|rnn_tanh|rnn_relu)")
_MOVING = {"nonzero", "view_as_complex", "view_as_real", "as_strided", "empty", "zeros", "full", "clone", "_to_copy", "copy_", "fill_"}
"""Operators that compute nothing: they find, view or place elements."""


def left_to_torch(source: str) -> list[str]:
    """The operators that the file's module has torch compute, each once."""
    found: dict[str, None] = {}
    classes = [s for s in ast.parse(source).body if isinstance(s, ast.ClassDef)]  # the module, and its backward
    for node in (node for cls in classes for node in ast.walk(cls)):
        if isinstance(node, ast.Call) and (match := _CALLED.match(ast.unparse(node.func))):
            name = (match[1] or match[2]).removesuffix("_default")
            if name not in _MOVING:
                found[name] = None
    return list(found)


def refuse_idle(source: str, name: str) -> None:
    """Raises CaptureError where torch does all that there is to compute: such a file is not compiled."""
    tree = ast.parse(source)
    kernels = [s for s in tree.body if isinstance(s, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in s.decorator_list)]
    left = left_to_torch(source)
    if kernels and not left:
        return
    computes = open_backend("triton").computes
    if not any(computes(ast.unparse(kernel)) for kernel in kernels):
        does = f" Torch does {', '.join(left)}." if left else ""
        raise CaptureError(f"{name!r} is not compiled: nothing is left for a kernel.{does}", fix="Use a language model (-m).")


__all__ = ["left_to_torch", "refuse_idle"]
