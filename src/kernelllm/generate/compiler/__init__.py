"""The model that needs no weights: torch.export and Inductor's code generation, turned into readable Triton."""

from kernelllm.generate.compiler.writer import Compiler

__all__ = ["Compiler"]
