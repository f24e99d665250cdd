"""One Triton kernel as Inductor wrote it: its function, and Inductor's metadata."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from kernelllm.core.errors import CaptureError
from kernelllm.core.text import syntax_tree

_ORIGINAL = re.compile(r"Original ATen: \[([^\]]*)\]")


@dataclass
class Kernel:
    """One Triton kernel as Inductor wrote it, parsed."""

    name: str
    """Inductor's own name, e.g. ``triton_poi_fused_add_0``."""
    ops: list[str]
    """The fused operators in order, without overload: ``aten.mul`` ..."""
    function: ast.FunctionDef
    combines: dict[str, ast.FunctionDef]
    """Helper functions that the source defines (combine functions of scans)."""
    hints: dict[str, int]
    """Size hints by axis: ``x``, ``y``, ``z``, ``r0_``, ``r1_``."""
    reduction_hint: str
    signature: dict[str, str]
    """Argument name to Triton type: ``*fp32``, ``i32``, ``constexpr`` ..."""
    meta: dict[str, Any]
    """The entries of ``inductor_meta`` that are literals."""
    heuristic: ast.Call
    """The decorator with which Inductor chooses block sizes."""
    text: str
    """All that Inductor wrote about it, its comment included."""

    @property
    def params(self) -> list[str]:
        """Argument names, in order."""
        return [a.arg for a in self.function.args.args]

    @property
    def blocks(self) -> list[str]:
        """The block-size arguments, in order."""
        return [p for p in self.params if p.endswith("BLOCK")]

    @property
    def runtime(self) -> list[str]:
        """The arguments that a launch passes, in order."""
        return [p for p in self.params if not p.endswith("BLOCK")]


def parse(name: str, definition: str, comment: str) -> Kernel:
    """A kernel from its definition, a call of ``async_compile.triton`` with its name and text, and the comment above it."""
    call = syntax_tree(definition, mode="eval").body
    assert isinstance(call, ast.Call)
    tree = syntax_tree(ast.literal_eval(call.args[1]))
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    # unique_kernel_names=False calls every kernel triton_; it is the last function then.
    function = functions.pop(name if name in functions else list(functions)[-1])
    heuristic = next((d for d in function.decorator_list if isinstance(d, ast.Call)), None)
    if heuristic is None:
        raise CaptureError(f"Kernel {name} has no heuristic.", where="inductor")
    keywords = {k.arg: k.value for k in heuristic.keywords if k.arg}
    hints = ast.literal_eval(keywords["size_hints"]) if "size_hints" in keywords else {}
    if not isinstance(hints, dict):
        hints = dict(zip(("x", "y", "z"), hints, strict=False))
    signature: dict[str, str] = {}
    triton_meta = keywords.get("triton_meta")
    if isinstance(triton_meta, ast.Dict):
        for key, value in zip(triton_meta.keys, triton_meta.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "signature":
                signature = {str(k): str(v) for k, v in ast.literal_eval(value).items()}
    hint = keywords.get("reduction_hint")
    return Kernel(
        name=name,
        ops=_ops(comment),
        function=function,
        combines=functions,
        hints=hints,
        reduction_hint=ast.unparse(hint).rsplit(".", 1)[-1] if hint is not None else "",
        signature=signature,
        meta=_literals(keywords.get("inductor_meta")),
        heuristic=heuristic,
        text=f"{comment}\n{definition}",
    )


def _ops(comment: str) -> list[str]:
    found = _ORIGINAL.findall(comment)
    return [op.strip() for op in found[-1].split(",") if op.strip()] if found else []


def _literals(node: ast.expr | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                try:
                    found[str(key.value)] = ast.literal_eval(value)
                except ValueError:
                    continue
    return found
