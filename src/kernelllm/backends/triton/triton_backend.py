"""Triton: ``@triton.jit`` kernels called from a ModelNew."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from kernelllm.backends import base
from kernelllm.backends.base import Availability, AvailabilityState, Example, Launches, Mode, Observer
from kernelllm.backends.triton import kernel_syntax, prompt_rules

_LOG = logging.getLogger(__name__)


class Triton(base.Backend):
    name = "triton"
    title = "Triton"
    modes = frozenset(Mode)

    kernel_decorators = kernel_syntax.DECORATORS
    libraries = ("triton",)
    settings = ("triton.knobs",)
    tools = ("ptxas", "cuobjdump", "nvdisasm")
    forbidden = kernel_syntax.FORBIDDEN
    variables = ("TRITON",)
    hidden_variables = (
        "TRITON_INTERPRET", "TRITON_KERNEL_OVERRIDE", "TRITON_OVERRIDE_DIR", "TRITON_CACHE_MANAGER", "TRITON_PTXAS_PATH",
        "TRITON_LIBCUDA_PATH",
    )  # fmt: skip
    narrow_types = kernel_syntax.NARROW_TYPES
    names = kernel_syntax.NAMES
    compile_errors = frozenset(
        {"CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure", "OutOfResources", "PTXASError", "TritonError",
         "NotInAKernel"}
    )
    wrapping_errors = frozenset({"InterpreterError", "CompilationError"})

    fence = prompt_rules.FENCE
    fence_names = prompt_rules.FENCE_NAMES
    rules = prompt_rules.RULES
    usual_imports = prompt_rules.USUAL_IMPORTS
    kernel_pattern = prompt_rules.KERNEL

    def availability(self) -> Availability:
        """Available with a CUDA GPU; without one kernels are compiled for a target and run by Triton's interpreter."""
        absent = self.missing()
        if absent is not None:
            return absent
        import torch
        import triton

        if torch.cuda.is_available():
            return Availability(state=AvailabilityState.AVAILABLE, reason=f"triton {triton.__version__} on {torch.cuda.get_device_name(0)}")
        return Availability(
            state=AvailabilityState.CAN_BUILD,
            reason=f"triton {triton.__version__} with no GPU: kernels are compiled for a target and run by Triton's interpreter",
            fix="A CUDA GPU and a CUDA build of torch would run them and measure their time.",
        )

    def missing(self) -> Availability | None:
        """The package torch or triton."""
        for package, fix in (("torch", "pip install torch"), ("triton", "pip install triton (Linux only)")):
            if importlib.util.find_spec(package) is None:
                return Availability(state=AvailabilityState.MISSING, reason=f"the package {package} is not installed", fix=fix)
        return None

    def computes(self, body: str) -> bool:
        return kernel_syntax.computes(body)

    def lowers_precision(self, path: str, options: Mapping[str, Any]) -> str:
        return kernel_syntax.lowers_precision(path, options)

    def keeps_remainder(self, kernel: ast.FunctionDef) -> bool:
        return kernel_syntax.keeps_remainder(kernel)

    def undefined_results(self, kernel: ast.FunctionDef) -> Iterator[tuple[int, str]]:
        return kernel_syntax.undefined_results(kernel)

    def examples(self) -> Mapping[str, Example]:
        """One worked example for each operator family."""
        return prompt_rules.examples()

    def environment(self, mode: Mode, folder: str) -> dict[str, str]:
        """Its cache below ``folder``, its own ptxas if one was chosen, and its interpreter where that is wanted."""
        chosen = {"TRITON_CACHE_DIR": f"{folder}/triton", "TRITON_HOME": folder}
        if "TRITON_PTXAS_PATH" in os.environ:
            chosen["TRITON_PTXAS_PATH"] = os.environ["TRITON_PTXAS_PATH"]
        return chosen

    @contextlib.contextmanager
    def preload(self, modes: Sequence[Mode], target: str) -> Iterator[None]:
        """Import Triton beside torch."""
        helper = threading.Thread(target=_warm, args=(modes, target))
        helper.start()  # at work while torch is imported
        yield
        helper.join()  # a fork copies one thread only
        import triton.language.extra.cuda.libdevice
        import triton.language.extra.libdevice  # noqa: F401 (warm for the fork)

    def prepare(self, mode: Mode, target: str) -> None:
        """Install the interpreter, or the stand-in driver of ``target``, where there is no GPU."""
        if mode is not Mode.CUDA:
            from kernelllm.backends.triton.emulator import driver

            driver.install(target)
        if mode is Mode.INTERPRET:
            from kernelllm.backends.triton.emulator import interpreter

            interpreter.install()
        elif mode is Mode.COMPILE:
            from kernelllm.backends.triton import compile  # noqa: F401 (warm for the fork)
        else:
            from kernelllm.backends.triton import launches  # noqa: F401

    def versions(self) -> dict[str, str]:
        """As the package says without being imported, where it can: that takes a fifth of a second, and the judge needs no more of it."""
        from importlib import metadata

        with contextlib.suppress(metadata.PackageNotFoundError):
            return {"triton": metadata.version("triton")}
        import triton

        return {"triton": str(triton.__version__)}

    def runs_here(self) -> bool:
        """With ``TRITON_INTERPRET=1``; the interpreter is then made to run what written files contain."""
        if os.environ.get("TRITON_INTERPRET") != "1":
            return False
        from kernelllm.backends.triton.emulator import driver, interpreter

        driver.install("sm_90")
        interpreter.install()
        return True

    def watched_calls(
        self, launched: Callable[[], None], set_up: Callable[[Callable[[], None]], None]
    ) -> AbstractContextManager[None]:  # fmt: skip
        """Of JIT functions, and the allocator of scratch memory."""
        from kernelllm.backends.triton import host_calls

        return host_calls.watched(launched, set_up)

    def watch(self, mode: Mode, observer: Observer) -> Launches:
        """Launches of the interpreter, of the compiler, or of the GPU."""
        if mode is Mode.INTERPRET:
            from kernelllm.backends.triton.emulator.emulated_launches import InterpretedLaunches

            return InterpretedLaunches(observer)
        if mode is Mode.COMPILE:
            from kernelllm.backends.triton import compile

            return compile.CompiledLaunches(observer)
        from kernelllm.backends.triton import device_sharing
        from kernelllm.backends.triton.launches import GpuLaunches

        launches = GpuLaunches(observer)
        device_sharing.install(observer)
        return launches


def _warm(modes: Sequence[Mode], target: str) -> None:
    """What Triton does before a process's first compile, done once for all workers instead of in each."""
    if Mode.CUDA in modes:
        try:
            from triton.backends.nvidia.driver import CudaUtils

            CudaUtils()  # compiled and loaded
            CudaUtils.__init__ = lambda self: None  # it is a singleton, complete by now
        except Exception as error:  # noqa: BLE001 - it compiles with a compiler of the machine's; a worker's first launch says why
            _LOG.info("Triton's driver module cannot be had: %s", error)
    with contextlib.suppress(ImportError):  # another release's names: a worker does it again then
        import triton.compiler.code_generator
        import triton.experimental.gluon.nvidia.hopper  # noqa: F401 (the first launch imports both)

        if Mode.CUDA in modes or tuple(modes) == (Mode.COMPILE,):  # of several, who needs it is forked soon
            from triton.backends.nvidia.compiler import get_ptxas_version
            from triton.runtime.cache import triton_key

            triton_key()  # reads all of Triton's library once, and remembers what it found
            get_ptxas_version(int(target.removeprefix("sm_")))  # starts ptxas to ask, and remembers
