"""Names of torch and Triton that are replaced: each exists in the installed releases, with the signature relied on."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from patches import PATCHES, Patch

from kernelllm.judge.checks.syntax import analyse

PACKAGE = Path(__file__).parent.parent / "src" / "kernelllm"

TEXT = """
import torch, torch.nn as nn
width, rows = 48, 33
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm, self.rnn = nn.Conv1d(1, 4, 3, padding=1), nn.LayerNorm(width), nn.GRU(width, 20)
    def forward(self, x):
        y = nn.functional.max_pool1d(self.conv(self.norm(x)[:, None]), 2)
        return torch.softmax(self.rnn(x[:, None])[0], -1), y.sum(), nn.functional.dropout(x, 0.0)
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width]
"""


def supported(patch: Patch) -> bool:
    """Whether the installed release is one that has the name."""
    from packaging.requirements import Requirement

    if not patch.versions:
        return True
    wanted = Requirement(patch.versions)
    return wanted.specifier.contains(importlib.import_module(wanted.name).__version__.partition("+")[0], prereleases=True)


def parameters(found: Any, name: str) -> tuple[str, ...] | None:
    """The names of a callable's parameters: from its signature, or from torch's schemas for a builtin."""
    import torch

    try:
        return tuple(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        packet = getattr(torch.ops.aten, name.rpartition(".")[2], None)
        return tuple(a.name for a in getattr(packet, packet.overloads()[0])._schema.arguments) if packet else None


def problem(patch: Patch) -> str:
    """What is wrong with an entry; empty where nothing is."""
    module, _, name = patch.target.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        if patch.kind == "added":
            return f"{patch.target} exists" if last in vars(owner) else ""
        found = getattr(owner, last)
    except (ImportError, AttributeError) as error:
        return f"{patch.target}: {error}"
    if patch.parameters is None:
        return ""
    has = parameters(found, name)
    if has is None and inspect.isbuiltin(found):
        return ""  # a build with CUDA has a C function there, which tells no signature
    return "" if has == patch.parameters else f"{patch.target} takes {has}, not {patch.parameters}"


def test_every_name_exists_with_the_signature_relied_on() -> None:
    """In a process of its own: nothing is replaced yet there."""
    pytest.importorskip("triton")
    code = (
        "import test_patches as t; from patches import PATCHES;"
        "listed = [p for p in PATCHES if t.supported(p) and not p.target.startswith(('opt_einsum', 'numpy'))];"  # need not be installed
        "print(*filter(None, map(t.problem, listed)), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=__file__.rpartition("/")[0], check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_no_name_is_listed_twice_by_one_room() -> None:
    seen = [(p.target, p.by) for p in PATCHES]
    assert len(seen) == len(set(seen))


def test_a_changed_signature_is_seen() -> None:
    assert "takes" in problem(Patch("textwrap:indent", ("text",), "", ""))
    assert problem(Patch("textwrap:nothing", None, "", ""))
    assert problem(Patch("textwrap:indent", None, "", "", "added"))


def test_all_that_the_compiler_replaces_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from kernelllm.compiler.capture import patching
    from kernelllm.compiler.compiler_writer import compiled
    from kernelllm.compiler.options import Options
    from kernelllm.core.types import Problem

    replaced: set[str] = set()
    patch = patching.patch

    def noted(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
        path = owner.__name__ + ":" if inspect.ismodule(owner) else f"{owner.__module__}:{getattr(owner, '__qualname__', 'driver')}."
        replaced.add(path + name)
        patch(stack, owner, name, value)

    for module in [m for n, m in sys.modules.items() if n.startswith("kernelllm.compiler") and getattr(m, "patch", None) is patch]:
        monkeypatch.setattr(module, "patch", noted)
    for options in (Options(), Options(extern="allow", symbolic=False)):
        assert "@triton.jit" in compiled(Problem(name="everything", source=TEXT), options)
    assert len(replaced) > 50
    assert replaced <= {p.target for p in PATCHES}


ALIASES = {
    "triton.runtime.interpreter.interpreter_semantic": "triton.language.semantic.TritonSemantic",
    "torch.cuda.Stream.": "torch.cuda.streams.Stream.",
    "triton.runtime.interpreter.GridExecutor": "triton.runtime.interpreter.GridExecutor.__call__",
}
OWN = ("triton.runtime.driver.active.launcher_cls", "triton.runtime.interpreter.interpreter_builder")
"""Attributes of a driver and of options that are objects of this package, or values."""


def test_all_that_workers_replace_is_listed() -> None:
    """What the judge's check on tampering finds in a candidate, it finds here: assignments into torch and Triton."""
    listed = {patch.target.replace(":", ".") for patch in PATCHES}
    found = set()
    for room in ("backends", "judge/worker"):
        for path in sorted((PACKAGE / room).rglob("*.py")):
            if path.name != "libdevice.py":  # its tables of torch's functions look like assignments to them
                found |= {use.path for use in analyse(ast.parse(path.read_text())).stores()}
    for alias, name in ALIASES.items():
        found = {path.replace(alias, name) for path in found}
    replaced = {path for path in found if path.startswith(("torch.", "triton.")) and not path.endswith("?") and not path.startswith(OWN)}
    assert len(replaced) > 30
    assert replaced <= listed


def test_every_setting_of_inductor_exists() -> None:
    """A setting that a release drops is an error, in use as well: it is never left out silently."""
    pytest.importorskip("triton")
    from torch._inductor import config

    from kernelllm.compiler.inductor.lower import settings
    from kernelllm.compiler.options import Options

    assert [name for name in settings(Options()) if name not in config._config] == []
    with pytest.raises((AttributeError, KeyError)), config.patch({"no_such_setting": True}):
        pass
