"""Which modules read their mode (training or evaluation) in the forward: the graph holds in that mode alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from kernelllm.compiler.capture.patching import patch


@contextmanager
def noted(model: torch.nn.Module, found: dict[str, bool]) -> Iterator[None]:
    """While open, the path of a module whose ``training`` is read goes into ``found``, with its mode."""
    paths = {module: path for path, module in model.named_modules()}
    found.clear()

    def read(module: torch.nn.Module) -> bool:
        training = bool(vars(module).get("training", True))
        if module in paths and not same_in_both(module):
            found[paths[module]] = training
        return training

    def write(module: torch.nn.Module, training: bool) -> None:
        vars(module)["training"] = training

    with ExitStack() as stack:
        patch(stack, torch.nn.Module, "training", property(read, write))
        yield


def same_in_both(module: torch.nn.Module) -> bool:
    """Whether one of torch's layers reads its mode and computes the same in both."""
    match module:
        case torch.nn.modules.dropout._DropoutNd():
            return module.p == 0
        case torch.nn.RNNBase() | torch.nn.MultiheadAttention():
            return module.dropout == 0
        case torch.nn.modules.batchnorm._BatchNorm():
            return module.running_mean is None
        case torch.nn.modules.instancenorm._InstanceNorm():
            return not module.track_running_stats
        case torch.nn.TransformerEncoder() | torch.nn.TransformerEncoderLayer():
            return True  # asked about a fast path alone
    return False
