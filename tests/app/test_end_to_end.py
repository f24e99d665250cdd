"""The whole path on a real problem, as a person runs it: a fresh process, a real compile, the interpreter, a file."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pages import blocks, compare

from kernelllm.app.main import cli
from kernelllm.app.result import Result
from kernelllm.app.verdict_view import show
from kernelllm.core.types import from_json


def kernelllm(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelllm", *arguments], capture_output=True, text=True, cwd=cwd, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def hinge(tmp_path_factory: pytest.TempPathFactory, examples: Path) -> tuple[Path, dict[str, Any]]:
    """The file that ``optimize examples/hinge_loss.py`` wrote, and its JSON."""
    folder = tmp_path_factory.mktemp("hinge")
    done = kernelllm("optimize", str(examples / "hinge_loss.py"), "--device", "cpu", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "hinge_loss_triton.py", json.loads(done.stdout)


def test_it_is_verified(hinge: tuple[Path, dict[str, Any]]) -> None:
    verdict = hinge[1]["best"]["verdict"]
    assert verdict["status"] == "correct"
    assert len({tuple(sizes["inputs"]) for sizes in verdict["shapes"]}) >= 2
    assert len({trial["seed"] for trial in verdict["trials"]}) >= 3
    assert all(trial["error"] <= trial["allowed"] for trial in verdict["trials"] if trial["error"] is not None)


def test_it_was_compiled_for_the_target(hinge: tuple[Path, dict[str, Any]]) -> None:
    kernels = hinge[1]["best"]["verdict"]["kernels"]
    assert kernels
    for kernel in kernels:
        assert kernel["launches"] > 0
        assert kernel["target"] == "sm_90"
        assert kernel["registers"] > 0
        assert kernel["spills"] == 0


def test_speed_is_an_estimate_without_a_gpu(hinge: tuple[Path, dict[str, Any]]) -> None:
    verdict = hinge[1]["best"]["verdict"]
    assert verdict["timing"] is None
    assert verdict["floor"]["ms"] > 0


def test_the_file_stands_alone(hinge: tuple[Path, dict[str, Any]]) -> None:
    text = hinge[0].read_text()
    assert text.startswith("# Written by kernelllm")
    tree = ast.parse(text)
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"torch", "triton", "__future__"}
    assert "_inductor" not in text
    runs = [node for node in tree.body if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try)]
    runs += [node for node in tree.body if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)]
    assert not runs


def test_check_agrees(hinge: tuple[Path, dict[str, Any]], examples: Path) -> None:
    arguments = ["check", str(hinge[0]), "--against", str(examples / "hinge_loss.py"), "--device", "cpu", "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.stderr
    verdict = json.loads(done.stdout)
    wanted = {"status", "message", "findings", "max_error", "tolerance", "trials", "shapes", "kernels", "coverage", "timing", "environment"}
    assert wanted <= verdict.keys()
    assert verdict["status"] == "correct"


def test_check_refuses_a_wrong_kernel(hinge: tuple[Path, dict[str, Any]], examples: Path) -> None:
    wrong = hinge[0].with_name("wrong.py")
    lines = (
        "import torch",
        "class ModelNew(torch.nn.Module):",
        "    def forward(self, predictions, targets):",
        "        return targets.sum()",
    )
    wrong.write_text("\n".join(lines) + "\n")  # no kernel, and the wrong answer
    done = CliRunner().invoke(cli, ["check", str(wrong), "--against", str(examples / "hinge_loss.py"), "--device", "cpu"])
    assert done.exit_code == 1
    assert "status" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_readme_shows_what_make_demo_prints(hinge: tuple[Path, dict[str, Any]], root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\t@$(BIN)/kernelllm optimize examples/hinge_loss.py\n" in (root / "Makefile").read_text()
    (block,) = [b for b in blocks(root / "README.md") if b.mark == "what make demo prints"]
    result = from_json(json.dumps(hinge[1]), Result)
    show(result.title, result.rows(), result.verdict)
    printed = re.sub(r" \[(\d+)\]", r" (\1,)", capsys.readouterr().out)  # JSON has no tuples
    compare(root / "README.md", "make demo", block.text, printed)


def test_interrupt_leaves_nothing_behind(tmp_path: Path, examples: Path) -> None:
    """Ctrl-C at any moment: a clear line, code 130, no process left."""
    running = subprocess.Popen(
        [sys.executable, "-m", "kernelllm", "optimize", str(examples / "softmax.py"), "--device", "cpu", "-n", "50"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert running.stderr is not None
    said = running.stderr.readline()
    assert "Writing" in said or "Starting" in said
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in out + err
    assert "nterrupted" in out + err
    deadline = time.monotonic() + 20
    while _group_alive(running.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _group_alive(running.pid)


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_python_s_remarks_about_a_candidate_s_text_are_not_shown(tmp_path: Path, examples: Path) -> None:
    (tmp_path / "odd.py").write_text("class ModelNew:\n    def forward(self, x):\n        return x if 1is 1 else -x\n", encoding="utf-8")
    done = kernelllm("check", "odd.py", "--against", str(examples / "softmax.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert "SyntaxWarning" not in done.stderr + done.stdout
