"""Does what the forkserver needs before its first fork: imports, and the stand-ins of its mode."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from kernelllm.backends.base import Backend, Mode
from kernelllm.judge.isolation.limits import Ready


def preload(modes: Sequence[Mode], target: str, backend: Backend) -> None:
    """Import what workers of all these modes need. Changes nothing by which a mode differs from another."""
    with backend.preload(modes, target):
        import numpy.ma
        import numpy.random
        import torch

        warnings.filterwarnings("ignore", category=DeprecationWarning)
        numpy.seterr(all="ignore")
    # These import Triton, which the backend's thread was importing until here: two threads in one package are a deadlock.
    import torch._subclasses.schema_check_mode
    import torch.utils.flop_counter  # noqa: F401


def prepare(mode: Mode, target: str, backend: Backend, *, light: bool = False) -> Ready:
    """Import all that a worker needs, ``light``: without torch's compiler, and install the stand-ins of ``mode``.

    CUDA is not initialised: a context does not survive a fork."""
    preload((mode,), target, backend)
    import torch

    backend.prepare(mode, target)
    if mode is Mode.COMPILE and not light:
        import torch._dynamo  # fake tensors need it; the others can do without its long import
    if mode is not Mode.CUDA:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        from kernelllm.judge.worker import fake_cuda

        fake_cuda.install(target)
    from kernelllm.judge.worker import worker_main  # noqa: F401 (warm for the fork)

    if mode is Mode.CUDA:
        from kernelllm.judge.worker import gpu  # noqa: F401
    else:
        from kernelllm.judge.worker import fake_run, sampled_run  # noqa: F401
    return Ready({"torch": str(torch.__version__), **backend.versions()}, os.getpid())
