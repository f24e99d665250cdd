"""What is prepared of a written file for sizes that never change launches what the file launches."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from kernelllm.app.dynamo import host_code

FILE = '''
from types import SimpleNamespace

import torch


class Kernel:
    """Adds a number, as a kernel of Triton would; the driver gets addresses."""

    arg_names = ["x_ptr", "out_ptr", "count", "BLOCK"]

    def __init__(self):
        self.launches, self.to_driver = [], []

    def __getitem__(self, grid):
        def launch(x, out, count, *, BLOCK, num_warps=4):
            self.launches.append((tuple(grid), count, BLOCK, num_warps))
            out.copy_(x + count)
            return Compiled(self)
        return launch


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self, kernel):
        self.kernel = kernel

    def run(self, *arguments):
        self.kernel.to_driver.append(arguments)


class Launcher:
    pointers, tuned = 2, False

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return self.kernel[grid]


add_kernel = Launcher(Kernel())


class Tuned(Kernel):
    best_config = SimpleNamespace(kwargs={"BLOCK": 32})

    def __getitem__(self, grid):
        return lambda x, out, count: Kernel.__getitem__(self, grid({"BLOCK": 32}))(x, out, count, BLOCK=32)


tuned_kernel = Launcher(Tuned())
tuned_kernel.tuned = True


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return self.forward_at_known_sizes(x)

    def forward_at_known_sizes(self, x):
        out = torch.empty((4, 8), device=x.device, dtype=torch.float32)
        add_kernel[((32 + 15) // 16,)](x, out, 3, BLOCK=16, num_warps=2)
        grid = (2 * -(-8 // 3), min(4, 7))
        add_kernel[grid](out, out, 5, BLOCK=8)
        grid = (x.shape[0],)
        add_kernel[grid](out, out, 1, BLOCK=8)
        grid = lambda meta: (-(-64 // meta["BLOCK"]), min(4, 7))
        tuned_kernel[grid](out, out, 2)
        return (out.view(-1),)
'''


def made(folder: Path) -> tuple[ModuleType, Any]:
    file = folder / "written.py"
    file.write_text(FILE)
    spec = importlib.util.spec_from_file_location("written", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, module.ModelNew()


def test_what_is_prepared_launches_and_computes_what_the_file_does(tmp_path: Path) -> None:
    module, model = made(tmp_path)
    kernel = module.add_kernel.kernel
    x = torch.arange(32.0).view(4, 8)
    (expected,) = model(x)
    of_the_file = list(kernel.launches)
    kernel.launches.clear()
    run = host_code.prepared(module, model, torch.device("cpu"))
    assert run is not None
    (found,) = run(x)
    assert torch.equal(found, expected)
    assert kernel.launches == of_the_file == [((2,), 3, 16, 2), ((6, 4), 5, 8, 4), ((4,), 1, 8, 4)]


def test_later_launches_go_to_the_driver_unless_an_address_is_not_aligned(tmp_path: Path) -> None:
    module, _ = made(tmp_path)
    launch = host_code.launch_of(module.add_kernel, (2,), (3,), {"BLOCK": 16, "num_warps": 2}, torch.device("cpu"))
    kernel = module.add_kernel.kernel
    x, out = torch.zeros(64), torch.zeros(64)
    assert not (x.data_ptr() | out.data_ptr()) & 15
    launch(x, out)
    assert kernel.to_driver == []
    launch(x, out)
    assert kernel.to_driver == [(2, 1, 1, 0, "function", "metadata", None, None, None, x.data_ptr(), out.data_ptr(), 3, 16)]
    launch(x[1:], out[1:])
    assert len(kernel.to_driver) == 1
    assert len(kernel.launches) == 2


def test_of_a_file_for_one_set_of_sizes_the_forward_is_prepared(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text("class ModelNew:\n    def forward(self, x):\n        rows = 2\n        return (x, rows)\n")
    module: Any = SimpleNamespace(__file__=str(file))
    model: Any = type("ModelNew", (), {})()
    run = host_code.prepared(module, model, torch.device("cpu"))
    assert run is not None
    assert run("x") == ("x", 2)
    assert host_code.prepared(module, torch.nn.Module(), torch.device("cpu")) is None  # of another class


def test_a_tuned_kernel_is_launched_with_the_blocks_that_won(tmp_path: Path) -> None:
    module, model = made(tmp_path)
    run = host_code.prepared(module, model, torch.device("cpu"))
    assert run is not None
    x, kernel = torch.zeros(4, 8), module.tuned_kernel.kernel
    for _ in range(2):
        run(x)
    assert kernel.launches == [((2, 4), 2, 32, 4)]
    ((*extents, _, function, metadata, _, _, _, _, _, count, block),) = kernel.to_driver
    assert (extents, function, metadata, count, block) == ([2, 4, 1], "function", "metadata", 2, 32)
