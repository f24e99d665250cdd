"""Everything that can be handed in wrongly: one paragraph that names the cause and the next step, no traceback, the right exit code."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernelllm.app.main import cli

GOOD = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(8, 16)]


def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kernelllm(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def refused(result: Result, *words: str, code: int = 2) -> None:
    """Refused with this code and one error that holds the words, nothing on standard output."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    said = [line for line in result.stderr.splitlines() if line.startswith("Error:")]
    assert len(said) == 1, result.stderr
    for word in words:
        assert word in result.stderr[result.stderr.index("Error:") :]


def problem(text: str, name: str = "problem.py") -> str:
    Path(name).write_text(text)
    return name


def test_missing_file() -> None:
    refused(kernelllm("optimize", "nowhere.py"), "nowhere.py")


def test_misspelt_file_suggests_the_nearest() -> None:
    problem(GOOD, "hinge_loss.py")
    refused(kernelllm("optimize", "hing_loss.py"), "Did you mean", "hinge_loss.py")


def test_folder_instead_of_file() -> None:
    Path("folder").mkdir()
    refused(kernelllm("optimize", "folder"), "folder")


def test_empty_file() -> None:
    refused(kernelllm("optimize", problem("")), "empty")


def test_a_folder_that_cannot_be_made() -> None:
    refused_by_click = kernelllm("pairs", "build", "synth/1", "-o", "/dev/null/pairs")
    assert refused_by_click.exit_code == 2
    assert "/dev/null is no folder that can be written to" in refused_by_click.stderr


@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_a_package_that_everything_needs_is_missing(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    refused(kernelllm("optimize", problem(GOOD.replace("relu", "tan"))), f"pip install {missing}", "kernelllm doctor")


def test_not_text() -> None:
    Path("binary.py").write_bytes(b"\x80\x81\xff\x00")
    refused(kernelllm("optimize", "binary.py"), "UTF-8")


def test_syntax_error_names_the_line() -> None:
    refused(kernelllm("optimize", problem("import torch\nclass Model(:\n")), "line 2")


def test_no_model() -> None:
    refused(kernelllm("optimize", problem(GOOD.replace("class Model", "class Net"))), "Model", "problem.py:Net")


def test_no_inputs() -> None:
    refused(kernelllm("optimize", problem(GOOD.replace("def get_inputs", "def inputs"))), "get_inputs")


def test_class_that_is_not_there() -> None:
    refused(kernelllm("optimize", problem(GOOD) + ":Nett", "--shape", "8,16"), "Nett")


def test_unknown_model_suggests_the_nearest() -> None:
    refused(kernelllm("optimize", problem(GOOD), "-m", "compilr"), "compilr", "Did you mean 'compiler'?")


def test_unknown_check() -> None:
    refused(kernelllm("optimize", problem(GOOD), "--check", "no_such_check"), "no_such_check", "Known")


def test_unknown_target() -> None:
    refused(kernelllm("optimize", problem(GOOD), "--target", "sm_91"), "sm_91", "sm_90")


def test_unknown_profile() -> None:
    refused(kernelllm("optimize", problem(GOOD), "--profile", "lax"), "lax", "strict")


def test_cuda_without_a_gpu() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    refused(kernelllm("optimize", problem(GOOD), "--device", "cuda"), "--device cpu")


@pytest.mark.parametrize(
    "arguments", [("-n", "0"), ("--dtype", "float7"), ("--tolerance", "0"), ("--time-limit", "-1"), ("--extern", "maybe")]
)
def test_values_out_of_range(arguments: tuple[str, str]) -> None:
    result = kernelllm("optimize", problem(GOOD), *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


@pytest.mark.parametrize(
    "arguments", [("optimize", "problem.py", "--extern", "auto", "--track", "kernels-only"), ("bench", "builtin", "--extern", "allow")]
)
def test_candidates_that_could_only_be_refused_are_not_asked_for(arguments: tuple[str, ...]) -> None:
    problem(GOOD)
    refused(kernelllm(*arguments), f"--extern {arguments[3]}", "--track hybrid")


def test_out_in_a_folder_that_does_not_exist() -> None:
    refused(kernelllm("optimize", problem(GOOD), "--out", "nowhere/kernel.py"), "nowhere", "mkdir")


def test_out_is_a_folder() -> None:
    Path("kernels").mkdir()
    refused(kernelllm("optimize", problem(GOOD), "--out", "kernels"), "kernels", "--out")


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").is_dir(), reason="needs a folder that even root cannot write to")
def test_out_that_cannot_be_written() -> None:
    refused(kernelllm("optimize", problem(GOOD), "--out", "/proc/kernel.py"), "/proc", "--out")


def test_out_would_overwrite_foreign_work() -> None:
    problem("print('my own work')\n", "problem_triton.py")
    refused(kernelllm("optimize", problem(GOOD)), "problem_triton.py", "--force")
    assert Path("problem_triton.py").read_text() == "print('my own work')\n"


def test_out_is_the_problem_itself() -> None:
    name = problem(GOOD)
    refused(kernelllm("optimize", name, "--out", name), "problem.py", "--force")


def test_keep_is_a_file() -> None:
    problem("", "taken")
    refused(kernelllm("optimize", problem(GOOD), "--keep", "taken"), "taken", "--keep")


def test_broken_settings_file() -> None:
    problem("model = \n", "kernelllm.toml")
    refused(kernelllm("optimize", problem(GOOD)), "kernelllm.toml")


def test_unknown_setting() -> None:
    problem("modle = 'compiler'\n", "kernelllm.toml")
    refused(kernelllm("optimize", problem(GOOD)), "'modle'", "Did you mean 'model'?", "kernelllm.toml")


def test_a_setting_of_the_wrong_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    problem("target = 3\n", "kernelllm.toml")
    refused(kernelllm("optimize", problem(GOOD)), "target", "kernelllm.toml")
    monkeypatch.setenv("KERNELLLM_TARGET", "sm_90")
    monkeypatch.setenv("KERNELLLM_VERDICT_CACHE", "perhaps")
    refused(kernelllm("optimize", problem(GOOD)), "verdict_cache", "KERNELLLM_VERDICT_CACHE")


def test_a_folder_that_is_not_there_is_no_unknown_suite() -> None:
    refused(kernelllm("bench", "./nowhere/"), "There is no folder ./nowhere/")


def test_check_missing_candidate() -> None:
    refused(kernelllm("check", "nowhere.py", "--against", problem(GOOD)), "nowhere.py")


def test_check_unknown_backend() -> None:
    refused(kernelllm("check", problem(GOOD, "c.py"), "--against", problem(GOOD), "--backend", "tritn"), "Did you mean 'triton'?")


def test_unknown_command_suggests_the_nearest() -> None:
    refused(kernelllm("optimise"), "Did you mean 'optimize'?")
    refused(kernelllm("pairs", "stat"), "Did you mean 'stats'?")


def test_unknown_list() -> None:
    result = kernelllm("list", "modls")
    assert result.exit_code == 2
    assert "models" in result.stderr


def test_json_errors_are_json_too() -> None:
    result = kernelllm("optimize", "nowhere.py", "--json")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "UsageError"
    assert "nowhere.py" in error["what"]
    assert "Error:" in result.stderr


def test_verbose_shows_the_traceback() -> None:
    result = kernelllm("optimize", "nowhere.py", "--verbose")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("a fault"), ("fault in kernelllm", "ZeroDivisionError", "--verbose")),
        (OSError(errno.ENOSPC, "No space left on device", "x.bin"), ("Nothing more can be written", "x.bin", "Free some space")),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 512 vs 400"), ("Nothing more can be written",)),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), ("Nothing more can be written",)),
    ],
)
def test_what_went_wrong_here_is_one_paragraph(error: Exception, told: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("kernelllm.app.pipeline.as_problem", broken)
    refused(kernelllm("optimize", problem(GOOD)), *told, code=1)


@pytest.mark.parametrize(("model", "meant"), [
    ("gpt-4o", "openai/gpt-4o"), ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"), ("facebook/KernelLLM", "hf/facebook/KernelLLM"),
    ("gemini/gemini-pro", "litellm/gemini/gemini-pro"), ("opnai/gpt-5", "openai/gpt-5"), ("compilr", "compiler"),
])  # fmt: skip
def test_a_model_without_its_provider(model: str, meant: str) -> None:
    refused(kernelllm("optimize", problem(GOOD), "-m", model), f"Unknown model '{model}'. Did you mean '{meant}'?")


def test_a_missing_key_is_told_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    refused(kernelllm("optimize", problem(GOOD), "-m", "openai/gpt-5"), "Set OPENAI_API_KEY", code=1)


def test_a_sandbox_level_that_does_not_exist() -> None:
    refused(kernelllm("optimize", problem(GOOD), "--require-sandbox", "nosuch"), "'nosuch'", "none, limits, filesystem, full")


CHEAT = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return eval('torch.relu(x)')\n"


@pytest.mark.parametrize("text", [CHEAT, f"Here it is.\n\n```python\n{CHEAT}```\nHope it helps.\n"])
def test_check_reads_standard_input_and_fenced_answers(text: str) -> None:
    result = CliRunner().invoke(cli, ("check", "-", "--against", problem(GOOD), "--json"), input=text)
    assert result.exit_code == 1, result.output
    assert {(f["check"], f["line"]) for f in json.loads(result.stdout)["findings"]} >= {("dynamic_code", 6)}
    assert ("standard input: it is Markdown" in result.stderr) is (text != CHEAT)


def test_check_of_nothing_on_standard_input() -> None:
    refused(kernelllm("check", "-", "--against", problem(GOOD)), "Standard input is empty")


@pytest.mark.parametrize("arguments", [("optimize",), ("optimize", "x.py", "--nosuch"), ("list", "nosuch"), ("nosuch",)])
def test_what_click_refuses_is_json_too(arguments: tuple[str, ...]) -> None:
    result = kernelllm(*arguments, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["what"] in result.stderr


@pytest.mark.parametrize("arguments", [("runs", "list"), ("report", "last")])
def test_a_store_that_is_only_read_is_not_made(arguments: tuple[str, ...]) -> None:
    refused(kernelllm(*arguments, "--db", "typo/runs.db"), "There is no attempt store typo/runs.db", "--db")
    assert not Path("typo").exists()


@pytest.mark.parametrize(("given", "told"), [({"n": 0}, "one candidate is the least"), ({"extern": "none"}, "Known: allow, auto")])
def test_what_a_script_gets_wrong(given: dict[str, Any], told: str) -> None:
    from kernelllm.app import pipeline
    from kernelllm.core.errors import UsageError

    with pytest.raises(UsageError, match=told):
        pipeline.optimize(problem(GOOD), **given)


def test_arguments_of_a_constructor_may_be_given_one_by_one(tmp_path: Path) -> None:
    made = "import torch\nclass Two(torch.nn.Module):\n    def __init__(self, first, second=3): super().__init__()\n"
    made += "    def forward(self, x): return x.relu()\n"
    (tmp_path / "two.py").write_text(made)
    result = kernelllm("problems", "show", f"{tmp_path}/two.py:Two", "--init", "8", "--init", "second=4", "--shape", "2,8")
    assert "[[8], {'second': 4}]" in result.output


def test_a_constructor_that_does_not_call_that_of_its_base(tmp_path: Path) -> None:
    made = "import torch\nclass Bare(torch.nn.Module):\n    def __init__(self): pass\n    def forward(self, x): return x.relu()\n"
    (tmp_path / "bare.py").write_text(made)
    result = kernelllm("problems", "show", f"{tmp_path}/bare.py:Bare", "--shape", "2,8")
    refused(result, "The constructor of Bare does not make a module", "super().__init__()")


def test_a_wrong_class_is_said_before_torch_is_loaded(tmp_path: Path) -> None:
    """Torch takes up to half a minute on a machine at work."""
    (tmp_path / "net.py").write_text("import torch\nclass Block(torch.nn.Module):\n    pass\n")
    code = "import sys; sys.modules['torch'] = None; from kernelllm.app.main import main; main()"
    command = [sys.executable, "-c", code, "optimize", f"{tmp_path}/net.py:Blok", "--shape", "2,8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Did you mean Block?" in done.stderr
    assert done.returncode == 2
