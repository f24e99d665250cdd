"""``hf/``: the real package datasets, on local data sets and with no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelllm.core.errors import UsageError
from kernelllm.suites import open_suite

SOURCE = """import torch
import torch.nn as nn

class {name}(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}

def get_inputs():
    return [torch.randn(64, 32)]

def get_init_inputs():
    return []
"""
ROWS: list[dict[str, Any]] = [
    {"uuid": 7, "python_code": SOURCE.format(name="Model", factor=1), "entry_point": "Model", "licenses": ["mit"]},
    {"uuid": 8, "python_code": SOURCE.format(name="Relu", factor=2), "entry_point": "Relu", "licenses": ["mit", "bsd"]},
    {"uuid": 9, "python_code": "x = (", "entry_point": "X", "licenses": []},
]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, its cache in the test's own folder and the hub out of reach."""
    found = pytest.importorskip("datasets")
    monkeypatch.setattr(found.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(found.config, "HF_HUB_OFFLINE", True)
    return found


def lay_out(datasets: Any, kind: str, folder: Path) -> str:
    """The rows in one of the forms that the package reads."""
    folder.mkdir()
    table = datasets.Dataset.from_list(ROWS)
    if kind == "json":
        (folder / "train.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    elif kind == "parquet":
        table.to_parquet(folder / "train-00000-of-00001.parquet")
    elif kind == "file":
        table.to_parquet(folder / "rows.parquet")
        return str(folder / "rows.parquet")
    elif kind == "saved":
        table.save_to_disk(folder / "set")
        return str(folder / "set")
    else:
        datasets.DatasetDict({"train": table, "test": table}).save_to_disk(folder / "set")
        return str(folder / "set")
    return str(folder)


@pytest.mark.parametrize("kind", ["json", "parquet", "file", "saved", "saved with splits"])
def test_local_data_sets(offline: Any, tmp_path: Path, kind: str) -> None:
    where = lay_out(offline, kind, tmp_path / "rows")
    suite = open_suite(f"hf/{where}")
    found = list(suite.problems())
    assert [(p.name, p.tags) for p in found] == [("0_7", ("license:mit",)), ("1_8", ("license:mit,bsd",))]
    assert found[0].source == ROWS[0]["python_code"]
    assert "Model = Relu" in found[1].source
    assert list(suite.skipped) == ["2_9"]  # type: ignore[attr-defined]
    assert [p.name for p in open_suite(f"hf/{where}?limit=1").problems()] == ["0_7"]
    assert suite.digest == open_suite(f"hf/{where}").digest


def test_what_cannot_be_read_is_said(offline: Any, tmp_path: Path) -> None:
    where = lay_out(offline, "saved with splits", tmp_path / "rows")
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet")
    for spec, said in (
        (f"hf/{where}?split=val", "val.*train, test"),
        (f"hf/{where}?column=nothing", "no column 'nothing'"),
        (f"hf/{broken}", "broken.parquet cannot be read"),
        (f"hf/{tmp_path / 'nothing'}", "cannot be read"),
    ):
        with pytest.raises(UsageError, match=said):
            list(open_suite(spec).problems())


def test_without_a_network_the_cause_is_said_at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    datasets, hub = pytest.importorskip("datasets"), pytest.importorskip("huggingface_hub")

    def unanswered(*args: Any, **kwargs: Any) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(hub.HfApi, "dataset_info", unanswered)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    with pytest.raises(UsageError, match=r"the hub gives no answer \(Name or service not known\)"):
        list(open_suite("hf/owner/rows").problems())
    assert not any("Retry" in line for line in caplog.messages)
    assert not datasets.config.HF_HUB_OFFLINE
