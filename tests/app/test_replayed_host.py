"""What is recorded of a file's host code does for other tensors what the file does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kernelllm.app.dynamo import replayed_host

FILE = '''
import torch
import triton


class Kernel:
    """Adds a number to all of out's elements from there on, as a kernel of Triton would."""

    arg_names = ["x_ptr", "out_ptr", "count", "BLOCK"]

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        def launch(x, out, count, *, BLOCK):
            self.launches.append((grid, count, BLOCK))
            out.as_strided((count,), (1,)).copy_(x.as_strided((count,), (1,)) + count)
        return launch


class Launcher:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return self.kernel[grid]


add_kernel = Launcher(Kernel())
table = torch.arange(8.0)


def template(x, shift):
    rows = x.shape[0]
    out = torch.empty((rows, 8), dtype=x.dtype)
    add_kernel[(-(-rows // 3),)](x, out, 8 * (rows - 1), BLOCK=rows)
    add_kernel[(2,)](x[-1], out[-1], 8, BLOCK=2 + shift)
    return out


class ModelNew(torch.nn.Module):
    def forward_at_known_sizes(self, x, y, z):
        out = template(x, 1)
        product = torch.mm(out, y.t())
        values, places = torch.max(product, 1)
        z[1:3].add_(values[:2])
        LINES
        return (product[:, 1:], places, z, values * table[:4])
'''


def made(folder: Path, lines: str = "") -> tuple[ModuleType, Any]:
    file = folder / "written.py"
    file.write_text(FILE.replace("LINES", lines))
    spec = importlib.util.spec_from_file_location("written", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, module.ModelNew()


def inputs(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(4, 8), torch.randn(5, 8), torch.randn(6)]


def test_later_calls_do_the_same_for_their_own_tensors(tmp_path: Path) -> None:
    module, model = made(tmp_path)
    kernel, method = module.add_kernel.kernel, model.forward_at_known_sizes
    run = replayed_host.replayed(module, model, method, inputs(0))
    assert run is not None
    assert kernel.launches == [((2,), 24, 4), ((2,), 8, 3)]
    kept = []
    for seed in range(3):
        given, same = inputs(seed), inputs(seed)
        found, expected = run(*given), method(*same)
        kept.append(found)
        assert [t.stride() for t in found] == [t.stride() for t in expected]
        assert found[2] is given[2]
        torch.testing.assert_close([*found, *given], [*expected, *same], rtol=0, atol=0)
    assert len({t.data_ptr() for found in kept for t in found}) == 12  # nothing is given out twice
    assert kernel.launches == 7 * [((2,), 24, 4), ((2,), 8, 3)]


def test_another_layout_and_another_alignment_run_the_file(tmp_path: Path) -> None:
    module, model = made(tmp_path)
    seen: list[Any] = []

    def method(*given: torch.Tensor) -> Any:
        seen.append(given)
        return model.forward_at_known_sizes(*given)

    run = replayed_host.replayed(module, model, method, inputs(0))
    assert run is not None
    x, y, z = inputs(1)
    run(x, y, z)
    assert len(seen) == 1
    run(x, y.t().contiguous().t(), z)
    run(torch.randn(33)[1:].view(4, 8), y, z)
    assert len(seen) == 3


def test_what_nothing_writes_does_not_hold_what_the_run_before_left_there(tmp_path: Path) -> None:
    module, model = made(tmp_path, "import numpy; hidden = torch.empty(40); hidden.numpy()[:] = 7.0; values = values + hidden[:4]")
    run = replayed_host.replayed(module, model, model.forward_at_known_sizes, inputs(0))
    assert run is not None
    assert run(*inputs(0))[3].isnan().any()  # so a comparison with the file's results fails


@pytest.mark.parametrize(
    "lines",
    [
        "values = values * float(values[0])", "values = values[values > 0]", "values = values.double()[:4].view(torch.int64)",
        "self.kept = torch.ones(4) if not hasattr(self, 'kept') else self.kept.add_(1); return (self.kept, [values])",
        "torch.backends.cudnn.allow_tf32",
    ],
)  # fmt: skip
def test_what_depends_on_values_and_settings_is_not_replayed(tmp_path: Path, lines: str) -> None:
    module, model = made(tmp_path, lines)
    assert replayed_host.replayed(module, model, model.forward_at_known_sizes, inputs(0)) is None
    assert type(module.add_kernel).__name__ == "Launcher"  # the file is as it was


def test_inputs_that_share_memory_are_not_told_apart(tmp_path: Path) -> None:
    module, model = made(tmp_path)
    x, y, _ = inputs(0)
    assert replayed_host.replayed(module, model, model.forward_at_known_sizes, [x, y, x.view(-1)[:6]]) is None
