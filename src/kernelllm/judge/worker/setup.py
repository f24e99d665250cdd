"""What the forkserver does before its first fork: imports, and the shims of its mode."""

from __future__ import annotations

import os
import warnings

from kernelllm.judge.limits import Ready

INTERPRET, COMPILE, CUDA = "interpret", "compile", "cuda"


def prepare(mode: str, target: str) -> Ready:
    """Import everything a worker needs and install the shims of ``mode``. CUDA is not initialised: a context does not survive a fork."""
    import numpy
    import torch
    import torch._dynamo
    import torch.utils.flop_counter
    import triton
    import triton.language.extra.cuda.libdevice
    import triton.language.extra.libdevice

    warnings.filterwarnings("ignore", category=DeprecationWarning)
    numpy.seterr(all="ignore")
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
    return Ready(str(torch.__version__), str(triton.__version__))
