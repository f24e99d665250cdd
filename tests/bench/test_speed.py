"""``benchmarks/speed.py`` without a GPU: what its table says of stored times, and how it ends early."""

import importlib.util
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "speed.py"


@pytest.fixture(scope="module")
def speed() -> ModuleType:
    spec = importlib.util.spec_from_file_location("speed", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_best_right_file_is_compared_with_the_faster_of_eager_and_compile(
    speed: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nan = float("nan")
    times = {"eager": (9.0, 8.0), "compile": (5.0, 4.0), "ours a": (4.0, 3.0), "ours b": (2.0, nan), "ours c": (1.0, 1.0)}
    errors = {"ours a": 1e-3, "ours b": 1e-3, "ours c": 0.7}
    seen = {"times": times, "errors": errors, "failed": {}, "ours": ["ours a", "ours b", "ours c"], "torch": 0.25}
    (tmp_path / "norm.json").write_text(json.dumps(seen))
    for i, text in enumerate("abc"):
        (tmp_path / f"norm_{i}.py").write_text(text)
    found = speed.shown("norm", SimpleNamespace(out=tmp_path, tolerance=0.05))
    assert (found["best"], found["source"]) == ("ours b", "b")
    assert found["ratios"] == pytest.approx({"gpu": 2.0, "wall": 2.5, "first": 4 / 3, "first of best": 2 / 3})
    capsys.readouterr()
    speed.table({"norm": found, "late": {}})
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["norm"] == ["8", "4", "2", "3", "2", "25%", "2.00", "1.33", "2.50", "1", "bad"]
    assert rows["late"] == ["not", "measured"]


def test_kernels_that_the_file_does_not_define_are_torchs(speed: ModuleType) -> None:
    source = "@triton.jit\ndef scale_kernel(x, n):\n    pass\n"
    assert speed.left_to_torch({"scale_kernel": (30.0, 1.0), "gemm_128x128": (10.0, 2.0)}, source) == pytest.approx(0.25)


def test_a_stopped_run_ends_its_writers_and_prints_the_table(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    command = [sys.executable, str(SCRIPT), str(tmp_path / "slow.py"), "--out", str(tmp_path / "out"), "--writers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ms by wall")
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "slow" in rest
    assert "not measured" in rest
