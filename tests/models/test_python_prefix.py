"""Texts that can still become Python, and texts that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelllm
from kernelllm.models.constrained.python_prefix import PythonPrefix


def read(text: str, step: int = 3) -> PythonPrefix | None:
    state: PythonPrefix | None = PythonPrefix()
    for at in range(0, len(text), step):
        state = state.after(text[at : at + step]) if state else None
    return state


@pytest.mark.parametrize("package", ["core", "judge", "lm", "backends"])
def test_real_files_are_accepted(package: str) -> None:
    for path in sorted((Path(kernelllm.__file__).parent / package).rglob("*.py")):
        state = read(path.read_text(encoding="utf-8"))
        assert state is not None, path
        assert state.may_end, path


@pytest.mark.parametrize(
    "text", ["x = (1]", "x = )", "x = 'a\n", "def f():\nx = 1", "if x:\n    y\n  z = 1", "  x = 1", "x = 1\n    y = 2", "a = \\ b"]
)
def test_what_cannot_become_python_is_refused(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("text", ["f(", "'''a\n", "if x:", "if x:\n", "x = 'a", "x = '"])
def test_an_answer_does_not_end_inside_of_something(text: str) -> None:
    state = read(text)
    assert state is not None
    assert not state.may_end


WHOLE = ("x = ''", "'''a''' + ''\n", "if x: y  # )", "x = [\n1]\n\n\ndef f(a):\n    '''It's.'''\n    # (\n", 'x = """a\\""" """')


@pytest.mark.parametrize("text", WHOLE)
def test_what_is_whole_may_end(text: str) -> None:
    state = read(text, step=1)
    assert state is not None
    assert state.may_end
