"""Computes in less precision than the problem asks for.

What decides is the error against a float64 reference (the ``strict`` profile); this check says where the precision may
have gone.
"""

from __future__ import annotations

import ast
import contextlib

from kernelllm.core.source import parse
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, kernels
from kernelllm.judge.observation import Observation

_NARROW = {
    "float16": "float16", "half": "float16", "bfloat16": "bfloat16", "float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2",
    "float8e4b15": "float8_e4m3b15", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""What a kernel may call a type narrower than float32, and torch's name of it."""
_MODES = ("tf32", "bf16", "bf16x1")
_WIDE = ("float32", "float64", "complex64", "complex128")
_SETTINGS = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction", "fp32_precision")


class Precision:
    """See the module."""

    name = "precision"
    describe = "computes in less precision than the problem asks for (the error against float64 decides)"

    def observed(self, seen: Observation) -> list[Finding]:
        """Casts to types narrower than any of the problem's, TF32 dot products of wide tensors, and switches; reported, never failed."""
        known = analyse(parse(seen.candidate.source))
        asked = _types(seen)
        found = []
        for kernel in kernels(known):
            attributes = [node for node in ast.walk(kernel) if isinstance(node, ast.Attribute)]
            narrow = {node.attr: node.lineno for node in attributes if node.attr in _NARROW and _NARROW[node.attr] not in asked}
            found += [self._finding(f"{kernel.name} uses {name}.", line) for name, line in narrow.items()]
        wide = not seen.sizes or any(kind in asked for kind in _WIDE)
        for call, path in known.calls():
            if wide and path.endswith(".dot") and path.startswith("triton"):
                for keyword in call.keywords:
                    if keyword.arg == "input_precision" and known.text(keyword.value) in _MODES:
                        found.append(self._finding(f"A dot product with input_precision={known.text(keyword.value)!r}.", call.lineno))
                    if keyword.arg == "allow_tf32" and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
                        found.append(self._finding("A dot product that may use TF32.", call.lineno))
            elif path in ("torch.set_float32_matmul_precision", "torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast"):
                found.append(self._finding(f"Uses {path}.", call.lineno))
        for use in known.stores():
            if use.path.rpartition(".")[2] in _SETTINGS:
                found.append(self._finding(f"Sets {use.path}.", use.line))
        return found

    def _finding(self, message: str, line: int) -> Finding:
        return Finding(check=self.name, message=message, severity=Severity.WARN, line=line)


def _types(seen: Observation) -> set[str]:
    """Torch's names of the types that the problem itself works in: of its inputs and outputs, and named in its source."""
    found = {text.partition("[")[0] for size in seen.sizes for text in size.inputs}
    found |= {output.dtype for run in seen.runs for output in run.reference}
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(parse(seen.problem.source)):
            if isinstance(node, ast.Attribute) and node.attr in _NARROW:
                found.add(_NARROW[node.attr])
    return found
