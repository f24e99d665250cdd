"""Ceilings: measured, kept, and used for floors in place of the datasheet's."""

from __future__ import annotations

from pathlib import Path

import pytest
from problems import MATMUL, SQUARE

from kernelllm.core import gpus
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
