"""Triton: ``@triton.jit`` kernels called from a ModelNew."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from kernelllm.backends.base import Availability, State, import_source

RULES = """\
Define a class ModelNew(nn.Module) with the same constructor arguments, parameter names, buffer names and forward arguments as Model.
Write the work as @triton.jit kernels that ModelNew.forward launches; torch may allocate, view and reshape tensors.
Import only torch, triton and triton.language (as tl).
Mask every load and store whose index can pass the end of a tensor.
Block sizes are tl.constexpr and powers of two; sizes and strides are kernel arguments.
Accumulate sums and dot products in float32.
Keep the precision that the reference computes in: no float16 or TF32 shortcuts in a float32 problem.
Do not cache results between calls, do not write into the inputs, and leave no work on another stream or thread.
"""


class Triton:
    """The Triton backend."""

    name = "triton"
    title = "Triton"
    fence = "python"
    suffix = ".py"
    rules = RULES

    def availability(self) -> Availability:
        """Available with a CUDA GPU; without one kernels are compiled for a target and run by Triton's interpreter."""
        for package in ("torch", "triton"):
            if importlib.util.find_spec(package) is None:
                return Availability(
                    state=State.MISSING,
                    reason=f"the package {package} is not installed",
                    fix=f"pip install {package}" if package == "torch" else "pip install triton (Linux only)",
                )
        import torch
        import triton

        if torch.cuda.is_available():
            return Availability(state=State.AVAILABLE, reason=f"triton {triton.__version__} on {torch.cuda.get_device_name(0)}")
        return Availability(
            state=State.CAN_BUILD,
            reason=f"triton {triton.__version__} with no GPU: kernels are compiled for a target and run by Triton's interpreter",
            fix="A CUDA GPU and a CUDA build of torch would run them and measure their time.",
        )

    def load(self, source: str, folder: Path, name: str = "candidate") -> ModuleType:
        """Import ``source`` from ``folder/name.py``. Raises whatever the source raises."""
        return import_source(source, folder / f"{name}{self.suffix}")
