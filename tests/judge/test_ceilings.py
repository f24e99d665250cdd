"""Ceilings: measured, kept, and used for floors in place of the datasheet's."""

from __future__ import annotations

from pathlib import Path

import pytest
from problems import MATMUL, SQUARE

from kernelllm.core import gpus
from kernelllm.core.types import Problem
from kernelllm.judge.timing import device_rates, roofline
from kernelllm.judge.timing.device_rates import Ceilings

MEASURED = Ceilings(bandwidth=4e12, fp32=50e12, tf32=400e12, fp16=800e12, fp64=60e12)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_every_rate_of_the_table_is_measured() -> None:
    found = device_rates.measure("cpu", bytes_moved=2**20, size=64)
    assert all(rate > 0 for rate in found.rates().values())
    assert set(found.rates()) <= set(gpus.Gpu.__struct_fields__)
    assert found.measured


def test_floors_use_what_was_measured_on_that_device_and_say_so() -> None:
    before = roofline.floor_of(SQUARE, "sm_90")
    assert before is not None
    assert before.source == "datasheet"
    device_rates.keep("NVIDIA H200", MEASURED)
    after = roofline.floor_of(SQUARE, "sm_90")
    assert after is not None
    assert after.source == "measured"
    assert after.ms == pytest.approx(before.ms * 4.8 / 4.0)
    product = roofline.floor_of(MATMUL, "sm_90")
    assert product is not None
    other = roofline.floor_of(SQUARE, "sm_80")
    assert other is not None
    assert other.source == "datasheet"


def test_a_damaged_file_is_as_good_as_none(folder: Path) -> None:
    device_rates.keep("NVIDIA L4", MEASURED)
    device_rates.keep("NVIDIA H200", MEASURED)
    assert device_rates.known("NVIDIA L4") == device_rates.known("NVIDIA H200") == MEASURED
    device_rates.file().write_text('{"NVIDIA H200": {"bandwidth": ')
    assert device_rates.known("NVIDIA H200") is None
    gpu = gpus.by_arch("sm_90")
    assert device_rates.applied(gpu) == (gpu, None)
    device_rates.keep("NVIDIA H200", MEASURED)
    assert device_rates.known("NVIDIA H200") == MEASURED


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelllm.app import probes

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (probe,) = probes.measure()
    assert "no GPU" in probe.detail
    assert probe.state == "limited"


@pytest.mark.parametrize(("computed", "given", "most"), [
    ("F.interpolate(x, size=(8, 8), mode='bilinear')", "torch.randn(2, 3, 64, 64)", 2 * 3 * 64 * (4 + 1) * 4),
    ("F.avg_pool2d(x, 2, stride=16)", "torch.randn(2, 3, 64, 64)", 2 * 3 * 16 * (4 + 1) * 4),
    ("F.conv2d(x, torch.ones(3, 3, 1, 1), stride=8)", "torch.randn(2, 3, 64, 64)", 2 * 3 * 64 * 2 * 4 + 36),
    ("x.index_copy_(0, torch.tensor([1, 3]), torch.ones(2, 64)).shape[0] * torch.ones(4)", "torch.randn(500, 64)", 2 * 64 * 4 + 16),
])  # fmt: skip
def test_of_what_is_read_in_part_only_that_part_counts(computed: str, given: str, most: int) -> None:
    source = f"""
import torch
import torch.nn.functional as F
class Model(torch.nn.Module):
    def forward(self, x):
        return {computed}
def get_inputs():
    return [{given}]
def get_init_inputs():
    return []
"""
    floor = roofline.floor_of(Problem(name="part", source=source), "sm_90")
    assert floor is not None
    assert 0 < floor.bytes <= most
