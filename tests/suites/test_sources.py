"""Suites from folders, KernelBench checkouts and data sets, by what a person writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.problems.instance import Instance
from kernelllm.suites import open_suite
from kernelllm.suites.hf_datasets import HFSuite
from kernelllm.suites.kernelbench import KernelBench

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + {N}
def get_inputs():
    return [torch.rand(4)]
"""


def problem(number: int) -> str:
    """The source of a small problem."""
    return PROBLEM.replace("{N}", str(number))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder laid out as KernelBench's repository."""
    for level, numbers in ((1, (1, 2, 9, 10)), (2, (1, 5)), (3, (7,))):
        folder = tmp_path / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for number in numbers:
            (folder / f"{number}_Name.py").write_text(problem(number))
    return tmp_path


def names(suite: KernelBench) -> list[str]:
    """The problems' names without what follows the number."""
    return [p.name.removesuffix("_Name") for p in suite.problems()]


def test_folders_in_natural_order_without_helpers(tmp_path: Path) -> None:
    for name in ("b/10_x.py", "b/9_x.py", "a.py", "b/__pycache__/z.py", ".venv/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(problem(1))
    (tmp_path / "helper.py").write_text("VALUE = 1\n")
    (tmp_path / "b" / "broken.py").write_text("def (\n")
    suite = open_suite(str(tmp_path))
    assert [p.name for p in suite.problems()] == ["a", "b/9_x", "b/10_x"]
    assert set(suite.skipped) == {"helper", "b/broken"}  # type: ignore[attr-defined]
    before = suite.digest
    assert open_suite(f"folder/{tmp_path}").digest == before
    (tmp_path / "a.py").write_text(problem(2))
    assert open_suite(str(tmp_path)).digest != before
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match="no problem in the folder"):
        list(open_suite(str(tmp_path / "none")).problems())


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("", ["level1/1", "level1/2", "level1/9", "level1/10", "level2/1", "level2/5", "level3/7"]),
        ("level1", ["level1/1", "level1/2", "level1/9", "level1/10"]),
        ("level1/9", ["level1/9"]),
        ("level1/9_Name", ["level1/9"]),
        ("level1/2-9", ["level1/2", "level1/9"]),
        ("level3,level2/5", ["level3/7", "level2/5"]),
        ("level1/1,10,level2/1", ["level1/1", "level1/10", "level2/1"]),
    ],
)
def test_kernelbench_selections(checkout: Path, selection: str, expected: list[str]) -> None:
    suite = KernelBench(selection, str(checkout))
    assert names(suite) == expected
    assert names(KernelBench(selection, str(checkout / "KernelBench"))) == expected


def test_kernelbench_from_settings_with_its_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLLM_KERNELBENCH", str(checkout))
    suite = open_suite("kernelbench/level1/2")
    (one,) = suite.problems()
    assert (one.name, one.origin, one.tags) == ("level1/2_Name", "kernelbench:level1/2", ("kernelbench", "level1"))
    assert suite.version == ""
    for command in (["init", "-q"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-C", str(checkout), *command], check=True)
    head = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert open_suite("kernelbench").version == f"git:{head}"


@pytest.mark.parametrize(
    ("selection", "words"),
    [("level5", "levels 1 to 4"), ("relu", "look like"), ("level1/3", "no problem 3"), ("level4", "no level4"), ("level1/x", "look like")],
)
def test_wrong_kernelbench_selections(checkout: Path, selection: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        list(KernelBench(selection, str(checkout)).problems())


def test_no_kernelbench(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no KernelBench checkout"):
        KernelBench("", str(tmp_path))


def test_rows_of_a_data_set(tmp_path: Path) -> None:
    renamed = problem(3).replace("class Model", "class Adder")
    rows = [
        {"python_code": problem(1), "uuid": 7},
        {"python_code": renamed, "entry_point": "Adder", "uuid": 8, "licenses": ["MIT"]},
        {"python_code": "nothing = 1", "uuid": 9},
        {"python_code": renamed, "uuid": 10},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    suite = HFSuite(str(path))
    found = list(suite.problems())
    assert [p.name for p in found] == ["0_7", "1_8", "3_10"]
    assert found[1].tags == ("license:MIT",)
    assert list(suite.skipped) == ["2_9"]
    assert Instance(found[1]).model(0)(1) == 4
    assert len(list(HFSuite(f"{path}?limit=1").problems())) == 1
    with pytest.raises(UsageError, match="no column 'code'"):
        list(HFSuite(f"{path}?column=code").problems())
    with pytest.raises(UsageError, match="Unknown option"):
        HFSuite(f"{path}?colum=code")


def test_an_unknown_suite_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'kernelbench'.*builtin"):
        open_suite("kernelbenc/level1")
