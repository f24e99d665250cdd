"""Fake tensors in threads that come and go."""

from __future__ import annotations

import threading

import torch

from kernelllm.problems.fake_mode import fake_mode


def test_a_thread_may_end_between_two_modes() -> None:
    shapes = []

    def work() -> None:
        with fake_mode():
            shapes.append((torch.empty(3, 1) + torch.empty(4)).shape)

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert shapes == [(3, 4)] * 3
