"""The kernels' results beside the original's, on a person's own inputs."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelllm.app.live.call_arguments import apart
from kernelllm.app.live.module_capture import kept_state
from kernelllm.judge.trials.compare import Expected, Rules, compare
from kernelllm.judge.trials.tf32_allowance import Tf32Convolutions

log = logging.getLogger(__name__)


def difference(
    kernels: Callable[[Sequence[torch.Tensor]], Any],
    torchs: Callable[[torch.nn.Module, Sequence[torch.Tensor]], Any],
    original: torch.nn.Module,
    tensors: Sequence[torch.Tensor],
) -> str:
    """Run both on copies of the same tensors. What differs in results or written inputs, empty where nothing does. Raises what they raise.

    ``torchs`` runs the original, or a copy of it in float64, which decides between the two where they differ. fp32 convolutions may round
    to TF32 where torch lets them.
    """
    rules = Rules(precise=False)
    mine, theirs = _copies(tensors), _copies(tensors)
    with torch.no_grad():
        with kept_state(original):
            results = [*_tensors(kernels(mine)), *mine]
        with kept_state(original):
            expected = [*_tensors(torchs(original, theirs)), *theirs]
        compared = compare(results, Expected(expected), rules)
        if not compared.ok:
            inputs = [t.double() if t.is_floating_point() else t for t in _copies(tensors)]
            try:
                in_float64 = copy.deepcopy(original).double()
                exact = [*_tensors(torchs(in_float64, inputs)), *inputs]
                rounded = _copies(tensors)
                convolved: Any = Tf32Convolutions if torch.backends.cudnn.allow_tf32 else contextlib.nullcontext
                with convolved(), kept_state(original):
                    as_right = ([*_tensors(torchs(original, rounded)), *rounded],)
            except Exception as error:  # noqa: BLE001 - code of others: what cannot run in float64 is compared as it is
                log.debug("no float64 result of %s: %s", type(original).__name__, error)
                return compared.message
            compared = compare(results, Expected(expected, exact, True, as_right), rules)
    return "" if compared.ok else compared.message


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().clone() for t in tensors]


def _tensors(result: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    apart(result, found, "The result of the module")
    return found
