"""What is asked of a GPU that is not there, by a torch that was built for one."""

from __future__ import annotations

import math

import pytest
import torch

from kernelllm.judge.worker import cuda_questions


def test_a_function_that_only_a_build_with_cuda_has_is_noted_where_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function in list(vars(torch._C).items()):
        if name.startswith("_cuda_"):
            monkeypatch.setattr(torch._C, name, function)  # put back at the end
    monkeypatch.setattr(torch._C, "_cuda_canDeviceAccessPeer", math.sqrt, raising=False)
    monkeypatch.setattr(cuda_questions, "asked", [])
    cuda_questions.watch(built=True)
    assert torch._C._cuda_canDeviceAccessPeer(4) == 2
    assert not cuda_questions.asked
    with pytest.raises(TypeError):
        torch._C._cuda_canDeviceAccessPeer(0, 0)
    assert cuda_questions.asked == ["torch._C._cuda_canDeviceAccessPeer"]
