"""Lists what the program around a model may set or pass, on which no result may depend; runs of a worker ask for one by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from kernelllm.problems.nested import mapped, tensors

FLOAT64, DETERMINISTIC, FROZEN, RESULTS, PARAMETERS = "float64", "deterministic", "frozen", "results", "parameters"
BEHIND, UNALIGNED, INFERENCE = "behind", "unaligned", "inference"
ANOMALY, PRECISION, LAZY, THREAD, MULTIPROCESSORS = "anomaly", "precision", "lazy", "thread", "multiprocessors"
AROUND, TRACED, STRICT, CUDNN, MOVED = "around", "traced", "strict", "cudnn", "moved"
FUNCTIONAL, TRAINED, OWN = "functional", "trained", "own"
WHERE = {
    FLOAT64: "where torch's default dtype is float64 (torch.set_default_dtype)",
    DETERMINISTIC: "where torch is asked for deterministic algorithms (torch.use_deterministic_algorithms)",
    ANOMALY: "where autograd looks for anomalies (torch.autograd.set_detect_anomaly)",
    PRECISION: "where torch may compute products in TF32 (torch.set_float32_matmul_precision)",
    FROZEN: "where the parameters need no gradients (requires_grad_(False))",
    RESULTS: "where inputs are results of other operations, with gradients",
    OWN: "where inputs are results of an earlier call, as in a loop over layers",
    PARAMETERS: "where inputs are parameters (torch.nn.Parameter), with gradients of an earlier step",
    INFERENCE: "where inputs were made in inference mode",
    THREAD: "where another thread calls it than the one that built it (look at threading.local)",
    MULTIPROCESSORS: "on a GPU of another generation, with another number of multiprocessors, less memory and less cache",
    AROUND: "below torch.autocast, on another stream than the usual one, or while a CUDA graph is captured",
    TRACED: "while torch.compile or torch.export traces it (torch.compiler.is_compiling)",
    STRICT: "where torch is to raise an error for what is not deterministic (torch.use_deterministic_algorithms, without warn_only)",
    CUDNN: "where cuDNN is off, is to be deterministic or may not use TF32 (torch.backends.cudnn)",
    MOVED: "after the model was moved (to, cuda, float) and its mode was set and set back, as a loop of training does",
    FUNCTIONAL: "where other tensors take the place of the parameters for one call (torch.func.functional_call)",
    TRAINED: "where parameters have gradients of an earlier step",
    LAZY: "where complex inputs are conjugated lazily (x.conj(), whose imaginary part is negated in name alone: resolve_conj, resolve_neg)",
    BEHIND: "where inputs are contiguous and lie behind others in one memory (storage_offset)",
    UNALIGNED: "where inputs are contiguous and lie one element behind others in one memory, at no multiple of 16 bytes",
}
"""What a reader is told of each."""
_set_deterministic = torch._C._set_deterministic_algorithms  # torch's own function imports Inductor first, which takes seconds
_OTHER_GPUS = (
    {"multi_processor_count": 11, "major": 8, "minor": 6, "name": "NVIDIA GeForce RTX 3050", "total_memory": 2**33, "L2_cache_size": 2**20},
    {"multi_processor_count": 11, "major": 9, "minor": 0, "name": "NVIDIA H100 PCIe MIG 1g.10gb", "total_memory": 10 * 2**30},
)
"""What a small GPU says of itself: the first one of another generation is taken."""
_STREAM = 0x5A7E0
"""Where another stream would be."""
_OFTEN = 32
"""Times that a model's mode is set and set back."""
_BEFORE = {BEHIND: 20, UNALIGNED: 1}
"""Elements before a tensor."""


@contextlib.contextmanager
def setting(name: str, model: Any) -> Iterator[None]:
    """A context manager for the call; nothing where there is no name."""
    default, strict = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    anomaly, precision = torch.is_anomaly_enabled(), torch.get_float32_matmul_precision()
    # What stands for a GPU and its stream here may be written into.
    gpu: Any = torch.cuda.get_device_properties(0) if name in (MULTIPROCESSORS, AROUND) else None
    stream: Any = torch.cuda.current_stream() if name == AROUND else None
    own = dict(vars(gpu)) if gpu else {}
    traced, cudnn = torch.compiler.is_compiling(), torch.backends.cudnn.flags(enabled=False, deterministic=True, allow_tf32=False)
    frozen = [p for p in torch.nn.Module.parameters(model) if p.requires_grad] if name == FROZEN else []
    trained = [p for p in torch.nn.Module.parameters(model) if p.requires_grad and p.grad is None] if name == TRAINED else []
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    try:
        if name == FLOAT64:
            torch.set_default_dtype(torch.float64)
        elif name in (DETERMINISTIC, STRICT):
            _set_deterministic(True, warn_only=name == DETERMINISTIC)
        elif name == TRACED:
            torch.compiler._is_compiling_flag = True
        elif name == ANOMALY:
            torch.autograd.set_detect_anomaly(True)
        elif name == PRECISION:
            torch.set_float32_matmul_precision("high")
        elif stream:
            stream.cuda_stream, gpu.capturing = _STREAM, True
            torch.set_autocast_enabled("cuda", True)
        elif gpu:
            vars(gpu).update(next(other for other in _OTHER_GPUS if other["major"] != gpu.major))
        for parameter in frozen:
            parameter.requires_grad_(False)
        with cudnn if name == CUDNN else contextlib.nullcontext():
            yield
    finally:
        if name == FLOAT64:
            torch.set_default_dtype(default)
        elif name == TRACED:
            torch.compiler._is_compiling_flag = traced
        elif name in (DETERMINISTIC, STRICT):
            _set_deterministic(strict, warn_only=warn_only)
        elif name == ANOMALY:
            torch.autograd.set_detect_anomaly(anomaly)
        elif name == PRECISION:
            torch.set_float32_matmul_precision(precision)
        elif gpu:
            vars(gpu).clear()
            vars(gpu).update(own)
        if stream:
            torch.set_autocast_enabled("cuda", False)
            del stream.cuda_stream
        for parameter in trained:
            parameter.grad = None
        for parameter in frozen:
            parameter.requires_grad_(True)


def move(model: Any) -> None:
    """What changes nothing: a move to where it is, and another mode for a moment."""
    for _ in range(_OFTEN if isinstance(model, torch.nn.Module) else 0):
        mode = model.training
        model.train(not mode)
        model.train(mode)
    if isinstance(model, torch.nn.Module):
        model._apply(lambda tensor: tensor)


def own_results(model: Any, inputs: Any) -> Any:
    """The inputs, each in the memory of a result of the model that has its shape, where there is one: the tensor that it returned."""
    copies = mapped(inputs, torch.Tensor.clone)  # a model may write into them
    known = {tensor.untyped_storage().data_ptr() for tensor in tensors(copies)}
    results = [t for t in tensors(model(*copies)) if t.is_contiguous() and t.untyped_storage().data_ptr() not in known]

    def instead(tensor: torch.Tensor) -> torch.Tensor:
        fits = (n for n, result in enumerate(results) if (result.shape, result.dtype) == (tensor.shape, tensor.dtype))
        place = next(fits, None)
        return tensor if place is None or not tensor.is_contiguous() else results.pop(place).copy_(tensor)

    return mapped(inputs, instead)


def functional(model: Any) -> Any:
    """The model, called with copies of its parameters that are none."""
    own = {name: parameter.detach().clone() for name, parameter in torch.nn.Module.named_parameters(model)}
    return lambda *inputs, **named: torch.func.functional_call(model, own, inputs, named)


def given(name: str, inputs: Any) -> Any:
    """The inputs as the setting has them."""
    if name not in (RESULTS, PARAMETERS, INFERENCE, LAZY, *_BEFORE):
        return inputs

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if name in _BEFORE:
            return _behind_others(tensor, _BEFORE[name])
        if name == LAZY:
            return tensor.conj().resolve_conj().conj() if tensor.is_complex() else tensor
        if name == INFERENCE:
            return tensor.clone()  # the call is made in inference mode
        if not tensor.is_floating_point():
            return tensor
        if name == RESULTS:
            return tensor.detach().requires_grad_(True).view_as(tensor)
        parameter = torch.nn.Parameter(tensor.detach())
        parameter.grad = torch.ones_like(parameter) if not parameter.is_complex() else None
        return parameter

    return mapped(inputs, changed)


def _behind_others(tensor: torch.Tensor, before: int) -> torch.Tensor:
    """A copy, contiguous, behind some of its own values."""
    if not tensor.numel() or not tensor.is_contiguous():
        return tensor
    flat = tensor.reshape(-1)
    return torch.cat([flat[-1:].expand(before), flat])[before:].view(tensor.shape)
