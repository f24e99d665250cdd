"""Flags candidates that compute in less precision than the problem asks for.

What decides is the error against a float64 reference (the ``strict`` profile); this check says where the precision may
have gone.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from typing import Any

from kernelllm.backends.base import Backend, open_backend
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.operator_families import HEAVY, family
from kernelllm.judge.checks.syntax import Source, Use, analyse, as_imported, kernels
from kernelllm.judge.observation import Observation

_WIDE = ("float32", "float64", "complex64", "complex128")
_SETTINGS = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction", "fp32_precision")

_LOWERS = ("torch.set_float32_matmul_precision", "torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast")


class Precision:
    name = "precision"
    describe = "computes in less precision than the problem asks for (the error against float64 decides)"

    def observed(self, seen: Observation) -> list[Finding]:
        """Casts to types narrower than any of the problem's, TF32 dot products of wide tensors, and switches; reported, never failed."""
        known, backend = analyse(as_imported(seen.candidate.source)), open_backend(seen.candidate.backend)
        asked = _types(seen, backend.narrow_types)
        wide = not seen.sizes or any(kind in asked for kind in _WIDE)
        severity = Severity.INFO if _convolves_alone(seen) else Severity.WARN
        found = []
        for kernel in _launched(known, seen, backend.kernel_decorators):
            nodes = list(ast.walk(kernel))
            attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
            narrow = {node.attr: node.lineno for node in attributes if backend.narrow_types.get(node.attr, "") not in {"", *asked}}
            if narrow and not backend.keeps_remainder(kernel):
                found += [self._finding(f"{kernel.name} uses {name}.", line) for name, line in narrow.items()]
            for call in nodes:
                if wide and isinstance(call, ast.Call):
                    found += [self._finding(message, call.lineno, severity) for message in _lowered(known, call, backend)]
        for call, path in known.calls():
            if path in _LOWERS and not _harmless(call):
                found.append(self._finding(f"Uses {path}.", call.lineno))
        for use in known.stores():
            if use.path.rpartition(".")[2] in _SETTINGS and not _switched_off(known, use):
                found.append(self._finding(f"Sets {use.path}.", use.line))
        return found

    def _finding(self, message: str, line: int, severity: Severity = Severity.WARN) -> Finding:
        return Finding(check=self.name, message=message, severity=severity, line=line)


def _harmless(call: ast.Call) -> bool:
    """``autocast(enabled=False)``, or the precision that torch has anyway."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    told = [given.get("enabled"), given.get("precision"), *call.args[:1]]
    return any(isinstance(node, ast.Constant) and node.value in (False, "highest") for node in told)


def _switched_off(known: Source, use: Use) -> bool:
    assigned = known.parents.get(use.node)
    return isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.Constant) and assigned.value.value in (False, "ieee")


def _convolves_alone(seen: Observation) -> bool:
    """Whether all products of the reference are convolutions, which torch itself computes in TF32 unless it is told otherwise."""
    return {family(name) for name in seen.reference_ops} & HEAVY == {"convolution"}


def _constant(known: Source, value: ast.expr) -> Any:
    """The value of a constant, or of an expression whose text is known; ``...`` where it is not."""
    if isinstance(value, ast.Constant):
        return value.value
    text = known.text(value)
    return ... if text is None else text


def _types(seen: Observation, narrow: Mapping[str, str]) -> set[str]:
    """Torch's names of the types that the problem itself works in: of its inputs and outputs, and named in its source."""
    found = {text.partition("[")[0] for size in seen.sizes for text in size.inputs}
    found |= {output.dtype for run in seen.runs for output in run.reference}
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(syntax_tree(seen.problem.source)):
            if isinstance(node, ast.Attribute) and node.attr in narrow:
                found.add(narrow[node.attr])
    return found


def _launched(known: Source, seen: Observation, decorators: tuple[str, ...]) -> list[ast.FunctionDef]:
    """Kernels that were launched and the helpers that they call; all of them where no launches are known."""
    jitted = {function.name: function for function in kernels(known, decorators)}
    reached = {kernel.name for kernel in seen.kernels} & jitted.keys()
    if not reached:
        return list(jitted.values())
    new = reached
    while new:
        new = {node.id for name in new for node in ast.walk(jitted[name]) if isinstance(node, ast.Name) and node.id in jitted} - reached
        reached = reached | new
    return [function for name, function in jitted.items() if name in reached]


def _lowered(known: Source, call: ast.Call, backend: Backend) -> set[str]:
    options = {keyword.arg: _constant(known, keyword.value) for keyword in call.keywords if keyword.arg}
    return {backend.lowers_precision(path, options) for path in known.paths(call.func)} - {""}
