"""Computes in less precision than the problem asks for.

What decides is the error against a float64 reference (the ``strict`` profile); this check says where the precision may
have gone.
"""

from __future__ import annotations

import ast

from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, kernels

_NARROW = ("float16", "bfloat16", "half", "float8e4nv", "float8e5", "float8e4b15", "float8_e4m3fn", "float8_e5m2")
_MODES = ("tf32", "bf16", "bf16x1")
_SETTINGS = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction", "fp32_precision")


class Precision:
    """See the module."""

    name = "precision"
    describe = "computes in less precision than the problem asks for (the error against float64 decides)"

    def source(self, tree: ast.Module, text: str) -> list[Finding]:
        """Casts to narrow types in kernels, TF32 dot products and switches; reported, never failed."""
        known = analyse(tree)
        found = []
        for kernel in kernels(known):
            narrow = {node.attr: node.lineno for node in ast.walk(kernel) if isinstance(node, ast.Attribute) and node.attr in _NARROW}
            found += [self._finding(f"{kernel.name} uses {name}.", line) for name, line in narrow.items()]
        for call, path in known.calls():
            if path.endswith(".dot") and path.startswith("triton"):
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
