"""A second writer that needs no model is one file and one entry point: every verb takes it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernelllm.app.main import cli
from kernelllm.core import registry
from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.core.writer import find, open_writer

PLUGIN = '''"""Writes a kernel for one kind of module."""

from kernelllm.core.types import Candidate
from kernelllm.core.writer import Writer

SOURCE = """import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, FACTOR * tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
"""


class Doubler(Writer):
    """Doubles its input."""

    name = "doubler"

    def write(self, problem, n, feedback=()):
        for factor in ("3", "2")[:n]:
            yield Candidate(source=SOURCE.replace("FACTOR", factor))
'''

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the plugin, as pip would have installed it, and a suite of one problem."""
    (tmp_path / "doubler.py").write_text(PLUGIN)
    about = tmp_path / "doubler-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: doubler\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[kernelllm.writers]\ndoubler = doubler:Doubler\n")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "twice.py").write_text(PROBLEM)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    registry._plugins.cache_clear()
    yield tmp_path
    registry._plugins.cache_clear()


def kernelllm(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_every_verb_takes_a_writer_of_one_file(folder: Path) -> None:
    rows = json.loads(kernelllm("list", "writers", "--json").stdout)
    assert {"name": "doubler", "state": "ok", "what": "Doubles its input.", "fix": ""} in rows

    done = kernelllm("optimize", "suite/twice.py", "-m", "doubler", "-n", "2", "--json", "--device", "cpu")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert [a["verdict"]["status"] for a in result["attempts"]] == ["incorrect", "correct"]
    assert {a["candidate"]["model"] for a in result["attempts"]} == {"doubler"}
    assert "2 * tl.load" in (folder / "twice_triton.py").read_text()

    benched = kernelllm("bench", "suite", "-m", "doubler", "-n", "2", "--json", "--device", "cpu", "--workers", "1")
    assert benched.exit_code == 0, benched.stderr
    (run,) = json.loads(benched.stdout)
    assert (run["scores"][0]["samples"], run["scores"][0]["correct_samples"]) == (2, 1)

    wrong = kernelllm("optimize", "suite/twice.py", "-m", "doubler", "--temperature", "0.5")
    assert wrong.exit_code == 2
    assert "--temperature: for language models only" in wrong.stderr


def test_a_name_finds_its_writer_and_what_is_its_own() -> None:
    assert find("compiler")[0].name == "compiler"
    assert find("mock")[1] == "mock"
    assert find("hf/some/repository") == (find("mock")[0], "hf/some/repository")
    with pytest.raises(UnknownName, match=r"Did you mean 'compiler'.*hf.*lm"):
        find("compilr")


def test_a_writer_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UsageError, match=r"no option 'temprature'.*extern"):
        open_writer("compiler", temprature=1)
    with pytest.raises(UsageError, match="nothing after its name"):
        open_writer("compiler/fast")
    with pytest.raises(UsageError, match="lm needs a model's name"):
        open_writer("lm")


def test_no_code_asks_which_writer_it_has() -> None:
    """What distinguishes writers is said by their attributes: their names stand in the registry and nowhere in a comparison."""
    package = Path(registry.__file__).parents[1]
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare):
                texts = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                assert not texts & set(registry.BUILTIN["writers"]), f"{file.relative_to(package)}:{node.lineno}"
