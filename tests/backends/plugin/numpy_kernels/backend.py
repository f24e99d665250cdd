"""The language's backend: all that kernelllm has to know of it."""

from __future__ import annotations

import inspect
import re
from typing import Any

from kernelllm.backends.base import Availability, AvailabilityState, Backend, IllegalAccess, Launches, Mode, Observer


class NumpyKernels(Backend):
    """NumPy functions as kernels, for tests."""

    name = "numpy-kernels"
    title = "NumPy kernel"
    modes = frozenset({Mode.INTERPRET})
    kernel_decorators = ("numpy_kernels.kernel",)
    libraries = ("numpy_kernels",)
    fence = "python"
    rules = "Write the work as @numpy_kernels.kernel functions that ModelNew.forward launches.\n"
    usual_imports = {"numpy_kernels": "import numpy_kernels"}  # noqa: RUF012
    kernel_pattern = re.compile(r"@(?:numpy_kernels\.)?kernel\b")

    def availability(self) -> Availability:
        """Everywhere, on the CPU."""
        return Availability(state=AvailabilityState.CAN_BUILD, reason="kernels run on the CPU")

    def versions(self) -> dict[str, str]:
        """The language's own."""
        return {"numpy_kernels": "1.0"}

    def watch(self, mode: Mode, observer: Observer) -> Launches:
        """Replace what a launch does."""
        import torch

        from numpy_kernels import Kernel

        launches = _Suppressible()

        def launch(self: Kernel, *tensors: Any) -> None:
            observer.launch(self.function.__name__, lambda: inspect.getsource(self.function))
            if launches.suppressed:
                return
            observer.in_launch = True
            try:
                with torch._C.DisableTorchFunction():
                    self.function(*[tensor.numpy() for tensor in tensors])
            except IndexError as error:
                raise IllegalAccess(str(error)) from error
            finally:
                observer.in_launch = False

        Kernel.__call__ = launch  # type: ignore[method-assign]
        return launches


class _Suppressible(Launches):
    suppressed = False

    def suppress(self, on: bool) -> None:
        self.suppressed = on
