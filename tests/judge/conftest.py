"""One warm judge for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kernelllm.judge import Judge, JudgeSettings


@pytest.fixture(scope="session")
def warm() -> Iterator[Judge]:
    """A judge on the CPU with all checks."""
    torch.set_num_threads(1)
    with Judge(JudgeSettings(device="cpu", time_limit_s=20)) as judge:
        yield judge


@pytest.fixture(scope="session")
def warm_gpu() -> Iterator[Judge]:
    """The same on a GPU."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with Judge(JudgeSettings(device="cuda", measure=False, memory_limit_bytes=2**33)) as judge:
        yield judge


@pytest.fixture(scope="session")
def lenient() -> Iterator[Judge]:
    """A judge with hardly any check, so that hostile code does run, and with little memory."""
    settings = JudgeSettings(device="cpu", time_limit_s=60, memory_limit_bytes=2**30, checks=("no_kernel",), sizes=1, cache=False)
    with Judge(settings) as judge:
        yield judge
