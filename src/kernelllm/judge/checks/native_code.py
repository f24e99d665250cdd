"""Flags candidates that leave Python: foreign functions, their own C or CUDA, raw memory."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding
from kernelllm.judge.checks.syntax import analyse, starts

_CERTAIN = (
    "ctypes", "_ctypes", "cffi", "_cffi_backend", "torch.utils.cpp_extension", "torch.ops.load_library", "torch.classes.load_library",
    "numba", "cupy", "pycuda", "cuda", "pybind11", "Cython", "pyximport", "tvm",
    "taichi", "cppyy", "llvmlite", "torch.cuda.cudart", "torch._C._cuda_cudaCachingAllocator_raw_alloc",
    "torch.cuda.caching_allocator_alloc", "torch.cuda.CUDAPluggableAllocator", "torch.cuda.memory.CUDAPluggableAllocator",
    "torch.cuda._compile_kernel", "torch.cuda._utils", "torch.cuda.change_current_allocator", "torch.cuda.memory.change_current_allocator",
    "torch.cuda.jiterator", "torch._C._construct_storage_from_data_pointer",
    "torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata",
)  # fmt: skip


class NativeCode:
    name = "native_code"
    describe = "leaves Python through ctypes, inline C or CUDA, or raw memory"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """What they do, nothing in Python can see; a language built on one of them says so."""
        return [
            Finding(check=self.name, message=f"Uses {use.path}.", line=use.line)
            for use in analyse(tree).uses()
            if starts(use.path, *_CERTAIN, *backend.forbidden.get(self.name, ())) and not starts(use.path, *backend.native_code)
        ]  # fmt: skip
