"""The small verbs: list, doctor, problems, --version."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import kernelllm
from kernelllm.app import probes
from kernelllm.app.main import COMMANDS, cli
from kernelllm.core import registry


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_version() -> None:
    assert run("--version").output == f"kernelllm {kernelllm.__version__}\n"


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_help_with_an_example_or_a_sentence(verb: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 4


@pytest.mark.parametrize("kind", ["writers", "backends", "suites", "checks", "strategies"])
def test_list_has_every_registered_name(kind: str) -> None:
    rows = json.loads(run("list", kind, "--json").stdout)
    assert [row["name"] for row in rows] == registry.names(kind)
    assert all(row["what"] for row in rows)
    shown = run("list", kind)
    assert shown.exit_code == 0
    assert all(row["name"] in shown.output for row in rows)


def test_list_without_a_word_lists_everything() -> None:
    found = json.loads(run("list", "--json").stdout)
    assert list(found) == ["models", "writers", "backends", "suites", "checks", "strategies"]
    shown = run("list")
    assert shown.exit_code == 0
    assert all(row["name"] in shown.output for rows in found.values() for row in rows)


def test_list_models_has_all_that_the_option_takes() -> None:
    rows = [row["name"] for row in json.loads(run("list", "models", "--json").stdout)]
    assert rows == sorted(["compiler", *(f"{name}/..." for name in registry.names("models"))])


def test_list_says_what_a_missing_name_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILTIN["suites"], "ghost", "kernelllm.suites.ghost:Ghost")
    row = next(row for row in json.loads(run("list", "suites", "--json").stdout) if row["name"] == "ghost")
    assert row["state"] == "missing"
    assert "kernelllm.suites.ghost" in row["what"]


def test_list_shows_people_what_they_choose_from_and_doctor_agrees() -> None:
    for kind in ("suites", "models"):
        rows = json.loads(run("list", kind, "--json").stdout)
        assert not [row["what"] for row in rows if "Raises" in row["what"] or "``" in row["what"] or "<" in row["what"]]
        (probe,) = probes.examine(kind)
        ready, _, lacking = probe.detail.removeprefix("ready: ").partition("; not ready: ")
        assert ready.split(", ") == [row["name"] for row in rows if row["state"] != "missing"]
        assert [name for name in lacking.split(", ") if name] == [row["name"] for row in rows if row["state"] == "missing"]


def test_without_triton_all_verbs_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch, examples: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None if name == "triton" else find(name, package))
    found = {probe["name"]: probe for probe in json.loads(run("doctor", "--json").stdout)}
    for name in ("triton", "compiler", "interpreter"):
        assert (found[name]["state"], "install triton" in found[name]["fix"].lower()) == ("missing", True)
    problem = str(examples / "hinge_loss.py")
    for command in (("optimize", problem), ("check", problem, "--against", problem), ("bench", problem)):
        result = run(*command)
        assert result.exit_code == 2
        assert "the package triton is not installed.\n  Fix: pip install triton" in result.stderr


def test_doctor_looks_at_everything_the_main_job_needs() -> None:
    result = run("doctor", "--json")
    probes = {probe["name"]: probe for probe in json.loads(result.stdout)}
    assert {"python", "torch", "triton", "gpu", "compiler", "interpreter", "sandbox", "memory", "disk", "suites", "models"} <= probes.keys()
    assert all(probe["fix"] for probe in probes.values() if probe["state"] != "ok")
    assert result.exit_code == (1 if any(probe["state"] == "missing" for probe in probes.values()) else 0)


def test_doctor_tells_of_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**40, 1000))
    (probe,) = probes.examine("disk")
    assert probe.state == "limited"
    assert "under 1 GiB" in probe.detail


def test_doctor_survives_a_broken_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise ImportError("libcudart.so: cannot open shared object file")

    monkeypatch.setattr(probes.importlib.util, "find_spec", broken)
    (probe,) = probes.examine("torch")
    assert probe.state == "missing"
    assert "libcudart" in probe.detail


def test_problems_show(examples: Path) -> None:
    told = json.loads(run("problems", "show", str(examples / "softmax.py"), "--json").stdout)
    assert told["constants"] == {"batch_size": 4096, "features": 8192}
    assert told["inputs"] == ["float32[4096, 8192]"]
    assert "class Model" in run("problems", "show", str(examples / "softmax.py")).output


def test_problems_shrink(examples: Path) -> None:
    found = json.loads(run("problems", "shrink", str(examples / "softmax.py"), "--json").stdout)
    assert len(found) == 2
    for changed, inputs in found:
        assert changed["features"][0] == 8192
        assert changed["features"][1] < 8192
        assert inputs


def test_problems_list_of_a_folder(examples: Path) -> None:
    rows = json.loads(run("problems", "list", str(examples), "--json").stdout)
    assert len(rows) == len(list(examples.glob("*.py")))


def test_problems_list_of_an_unknown_suite() -> None:
    result = run("problems", "list", "buildin")
    assert result.exit_code == 2
    assert "Did you mean 'builtin'?" in result.stderr


def test_problems_lint_finds_what_zeros_would_pass(tmp_path: Path, examples: Path) -> None:
    clean = run("problems", "lint", str(examples / "softmax.py"), "--json")
    assert clean.exit_code == 0, clean.output
    text = (examples / "softmax.py").read_text()
    (tmp_path / "zeros.py").write_text(text.replace("torch.softmax(", "0.0 * torch.softmax("))
    found = run("problems", "lint", str(tmp_path / "zeros.py"))
    assert found.exit_code == 1
    assert "zeros" in found.output


def test_a_problem_of_a_suite_is_a_problem() -> None:
    told = json.loads(run("problems", "show", "builtin/activation/mish", "--json").stdout)
    assert told["origin"] == "builtin:activation/mish"
    several = run("problems", "show", "builtin/activation")
    assert several.exit_code == 2
    assert "problems list" in several.stderr
