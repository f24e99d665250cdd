"""Which launches of a file ask Triton what it compiles for, and which go straight to the driver."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernelllm.compiler.emit.launcher import TEXT, TEXT_ALIKE, TEXT_STRAIGHT


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
    exec(TEXT_STRAIGHT + TEXT, scope)
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


class CudaLauncher:
    """As Triton 3.6 has it: arguments one after the other. With ``packed`` as 3.7: in a tuple, with more before it."""

    global_scratch_size = profile_scratch_size = 0

    def __init__(self, packed: bool) -> None:
        self.packed, self.ran = packed, []
        self.launch = lambda *given: self.ran.append(given)

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *more: Any) -> None:
        known, arguments = more[:4], more[4:]
        if self.packed:
            self.launch(x, y, z, stream, function, False, False, *known, None, None, "notes", "kinds", arguments)
        else:
            self.launch(x, y, z, stream, function, False, False, None, None, *known, *arguments)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["Launcher", "AlikeLauncher"])
def test_the_driver_gets_addresses_in_the_order_of_its_version(name: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(triton.runtime.driver, "_active", SimpleNamespace(get_current_stream=lambda device: 70))
    scope: dict[str, Any] = {"torch": torch, "triton": triton, "tl": tl}
    exec(TEXT_STRAIGHT + TEXT + TEXT_ALIKE, scope)
    run = CudaLauncher(packed)

    class Asked(Kernel):
        def __getitem__(self, grid: Any) -> Any:
            return lambda *arguments, **named: SimpleNamespace(function=11, packed_metadata=12, run=run)

    launcher = scope[name](Asked())
    for address in (1024, 2048):
        tensor = SimpleNamespace(dtype=torch.float32, get_device=lambda: 0, data_ptr=lambda address=address: address)
        launcher[(5, 2)](tensor, 3, 4, BLOCK=8)
    around = (5, 2, 1, 70, 11, False, False)
    one = (*around, 12, None, None, None, None, None, "notes", "kinds", (2048, 3, 4, 8))
    assert run.ran == [one if packed else (*around, None, None, 12, None, None, None, 2048, 3, 4, 8)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["Launcher", "AlikeLauncher"])
def test_launches_by_addresses_write_what_triton_s_do(name: str, tmp_path: Any) -> None:
    file = tmp_path / "file.py"
    kernel = """
import torch
import triton
import triton.language as tl
{}
@{}
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)
"""
    file.write_text(kernel.format(TEXT_STRAIGHT + TEXT + TEXT_ALIKE, name))
    spec = importlib.util.spec_from_file_location("file", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for _ in range(4):
        x, out = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
        module.scale_kernel[(4,)](x, out, 1000, 2.5, BLOCK=256)
        assert torch.equal(out, x * 2.5)
