"""Looks at what torch, NumPy and Python do for all code of a process, before and after candidate code.

Candidate code shares it with nobody here, and with everybody elsewhere.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import torch
from torch.nn.attention import SDPBackend

from kernelllm.judge.observation import AUTOGRAD, RANDOM_NUMBERS

SEED = "the random generator's seed"
_OF_THE_MOMENT = ("thread_name", "torch_function_state", "tracing_state", "graph_exec_group")
_GROUPS = {"tf32": "TF32", "float32_matmul_precision": "TF32", "sdp": "the kernels of attention"}
_PRECISIONS = (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))
_SDP = ("flash", "mem_efficient", "math", "cudnn", "overrideable")


def snapshot() -> dict[str, Any]:
    """Names of settings, as a reader is told of them, to their values."""
    found: dict[str, Any] = {
        "the default dtype": torch.get_default_dtype(), "the default device": torch.get_default_device(),
        AUTOGRAD: (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "autocast": (torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
        "torch's number of threads": getattr(torch._C, "get_num_threads")(),  # noqa: B009 - torch's own name is replaced
        SEED: torch.initial_seed(),
        RANDOM_NUMBERS: (torch.default_generator.get_state().numpy().tobytes(), hash(random.getstate())),
        "denormal numbers (flushed to zero or not)": float(_SMALLEST * 0.5) == 0.0, "NumPy's errors": numpy.geterr(),
        "the garbage collector": (gc.isenabled(), gc.get_threshold()), "Python's limit of recursion": sys.getrecursionlimit(),
    }  # fmt: skip
    for name, getter in _OF_TORCH:
        with contextlib.suppress(RuntimeError):  # set by torch's old and new names at once: neither is to be read
            found[name] = (*found.get(name, ()), getter())
    return found


_SMALLEST = torch.tensor(torch.finfo(torch.float32).tiny)


def _of_torch() -> list[tuple[str, Callable[[], Any]]]:
    """Whatever this version of torch lets one set and ask for."""
    names = [name.removeprefix("_set_") for name in dir(torch._C) if name.startswith("_set_")]
    names = [name for name in names if name not in _OF_THE_MOMENT] + [f"{name}_sdp_enabled" for name in _SDP]
    found = []
    for name in names:
        getter = getattr(torch._C, f"_get_{name}", None)
        with contextlib.suppress(TypeError):  # a function that takes arguments is no setting
            if getter is not None:
                getter()
                label = next((label for part, label in _GROUPS.items() if part in name), name.replace("_", " "))
                found.append((label, _without_cudnn(getter) if name == "sdp_priority_order" else getter))
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        found += [("TF32", partial(torch._C._get_fp32_precision_getter, *of)) for of in _PRECISIONS]
    return found


def _without_cudnn(order: Callable[[], list[int]]) -> Callable[[], list[int]]:
    """The order in which kernels of attention are tried. Torch itself puts cuDNN's first when attention is first called on some GPUs."""
    return lambda: [backend for backend in order() if backend != SDPBackend.CUDNN_ATTENTION.value]


_OF_TORCH = _of_torch()
