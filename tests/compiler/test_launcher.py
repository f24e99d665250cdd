"""Which launches of a file ask Triton what it compiles for, and which go straight to the driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernelllm.compiler.emit.launcher import TEXT


def body(x_ptr: Any, n: Any, constant: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """The arguments of a kernel."""


class Kernel:
    """Notes what Triton is asked (numbers), and what the driver runs (grid and numbers)."""

    arg_names = ("x_ptr", "n", "constant", "BLOCK")
    fn = staticmethod(body)

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.ran: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **named: Any) -> Any:
            self.asked.append(arguments[1:])
            return SimpleNamespace(function=0, packed_metadata=0, run=lambda *given: self.ran.append((given[:3], given[10:])))

        return launch


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(get_current_stream=lambda device: 0))
    scope: dict[str, Any] = {"torch": torch, "triton": triton, "tl": tl}
    exec(TEXT, scope)
    kernel = Kernel()
    tensor = SimpleNamespace(dtype=torch.float32, get_device=lambda: 0, data_ptr=lambda: 1024)

    def launch(*sizes: tuple[int, Any]) -> Kernel:
        launcher = scope["Launcher"](kernel)
        for n, constant in sizes:
            launcher[(n,)](tensor, n, constant, BLOCK=8)
        return kernel

    return launch


def test_a_new_size_for_which_triton_compiles_the_same_goes_to_the_driver(launched: Any) -> None:
    """Sizes that values decide are others in each call."""
    kernel = launched((5, 3), (7, 3), (5, 3), (16, 3), (32, 3), (9, 3))
    assert kernel.asked == [(5, 3), (16, 3)]
    assert kernel.ran == [((7, 1, 1), (7, 3, 8)), ((5, 1, 1), (5, 3, 8)), ((32, 1, 1), (32, 3, 8)), ((9, 1, 1), (9, 3, 8))]


def test_ones_constants_wide_numbers_and_other_types_are_compiled_for(launched: Any) -> None:
    kernel = launched((5, 3), (1, 3), (5, 4), (5, "relu"), (2**31 + 1, 3))
    assert kernel.asked == [(5, 3), (1, 3), (5, 4), (5, "relu"), (2**31 + 1, 3)]
