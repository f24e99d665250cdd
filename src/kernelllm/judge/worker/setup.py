"""What the forkserver does before its first fork: imports, and the shims of its mode."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings

from kernelllm.judge.isolation.limits import Ready

INTERPRET, COMPILE, CUDA = "interpret", "compile", "cuda"


def prepare(mode: str, target: str) -> Ready:
    """Import everything a worker needs and install the shims of ``mode``. CUDA is not initialised: a context does not survive a fork."""
    helper = threading.Thread(target=_build_helper)
    if mode == CUDA:
        helper.start()  # gcc at work while torch is imported
    import numpy
    import torch
    import torch.utils.flop_counter
    import triton
    import triton.language.extra.cuda.libdevice
    import triton.language.extra.libdevice

    warnings.filterwarnings("ignore", category=DeprecationWarning)
    numpy.seterr(all="ignore")
    if mode == COMPILE:
        import torch._dynamo  # fake tensors need it; the others can do without its long import

    if mode != CUDA:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        from kernelllm.judge.worker import devices

        devices.install(target)
    from kernelllm.judge.worker import main  # noqa: F401 (warm for the fork)

    if mode == INTERPRET:
        from kernelllm.judge.worker import interpreter

        interpreter.install()
    elif mode == COMPILE:
        from kernelllm.judge.worker import compilecheck  # noqa: F401
    else:
        from kernelllm.judge.worker import gpu, warm  # noqa: F401

        helper.join()  # a fork copies one thread only
    return Ready(str(torch.__version__), str(triton.__version__))


def _build_helper() -> None:
    """Triton's module of driver calls, compiled and loaded once for all workers instead of in each."""
    with contextlib.suppress(Exception):  # where it cannot be had, a worker's first launch says why
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()
        CudaUtils.__init__ = lambda self: None  # it is a singleton, complete by now
