"""Flags candidates that let another library's kernels do the work."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse, starts
from kernelllm.judge.observation import Observation

_KERNELS = {
    "flash_attn", "xformers", "apex", "transformer_engine", "liger_kernel", "flashinfer", "vllm", "sglang", "bitsandbytes",
    "triton_kernels", "deep_gemm", "jax", "tensorflow", "cutlass", "scipy", "sklearn", "torchvision", "torchaudio", "transformers",
    "einops_exts", "causal_conv1d", "mamba_ssm", "fla", "unsloth", "onnxruntime", "tensorrt", "torch_tensorrt", "tilelang", "helion",
    "opt_einsum", "mlx", "cudnn", "nvmath", "kernels", "xgboost",
}  # fmt: skip
_WITHIN_OPERATORS = "torch._native"
"""Where torch has kernels that it launches within operators: those are counted as operators."""
_OF_TORCH = (_WITHIN_OPERATORS, "torch.sparse._triton_ops")
_USUAL = {
    "torch", "math", "typing", "typing_extensions", "dataclasses", "functools", "itertools", "collections", "enum", "abc",
    "contextlib", "operator", "warnings", "os", "sys", "logging", "__future__", "numpy", "packaging", "random", "time", "copy",
    "string", "re", "numbers", "types", "threading", "weakref", "inspect", "einops", "gc", "textwrap", "builtins", "importlib",
}  # fmt: skip


class OtherLibraries:
    name = "other_libraries"
    describe = "lets another library's kernels do the work"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Libraries of ready-made kernels are certain; others that are unusual are reported."""
        found = []
        for use in analyse(tree).uses():
            if not isinstance(use.node, ast.Import | ast.ImportFrom | ast.Call):
                continue
            top = use.path.partition(".")[0]
            if top in backend.libraries:
                continue
            if starts(use.path, *_OF_TORCH):
                found.append(Finding(check=self.name, message=f"Uses {use.path}: kernels of torch's own.", line=use.line))
            elif top in _KERNELS:
                found.append(Finding(check=self.name, message=f"Uses {top}, a library of kernels.", line=use.line))
            elif isinstance(use.node, ast.Import | ast.ImportFrom) and top not in _USUAL:
                found.append(Finding(check=self.name, message=f"Imports {top}.", severity=Severity.INFO, line=use.line))
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """Kernels that were launched and are not in the file: torch has some of its own, behind operators and in private modules."""
        text = _squeezed(seen.candidate.source)
        launched = {kernel.name for kernel in seen.kernels if kernel.launches}
        texts = {name: body for name, body in seen.kernel_bodies.items() if name in launched and not starts(name, _WITHIN_OPERATORS)}
        others = [name for name, body in texts.items() if "." in name or (body and _squeezed(body) not in text)]
        message = "Launched kernels that are not in the file: {}. Write them there."
        return [Finding(check=self.name, message=message.format(", ".join(sorted(others)[:4])))] if others else []


def _squeezed(text: str) -> str:
    return "".join(text.split())
