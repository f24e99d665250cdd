"""Ctrl-C that a library swallowed is raised again at the next safe place."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kernelllm.app.main import cli
from kernelllm.app.progress import remembered_interrupt


def test_a_swallowed_interrupt_comes_back() -> None:
    with remembered_interrupt() as check:
        check()
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_press_does_not_disturb_the_putting_away() -> None:
    put_away = []

    def work() -> None:
        with remembered_interrupt():
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)
                put_away.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert put_away


def test_an_error_that_an_interrupt_caused_is_the_interrupt() -> None:
    def parse() -> None:
        with remembered_interrupt():
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt as error:
                raise SystemError("AST constructor recursion depth mismatch") from error

    with pytest.raises(KeyboardInterrupt):
        parse()
    with pytest.raises(ValueError, match="plain"), remembered_interrupt():
        raise ValueError("plain")


def test_a_handler_of_somebody_else_stays() -> None:
    theirs = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with remembered_interrupt() as check:
            signal.raise_signal(signal.SIGINT)
            check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, theirs)


def test_an_interrupt_that_a_tokenizer_swallowed_stops_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = pytest.importorskip("kernelllm.train.sft")

    def swallows(recipe: Any, folder: Path, *, told: Callable[[str], None], fresh: bool) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        told("16 pairs in 4 rows")
        pytest.fail("it went on")

    monkeypatch.setattr(module, "sft", swallows)
    result = CliRunner().invoke(cli, ["train", "sft", "mini", "-o", str(tmp_path / "run")])
    assert result.exit_code == 130
    assert "goes on from the last checkpoint" in result.stderr


def ended(lines: str) -> tuple[int, str]:
    """How ``kernelllm`` ends behind these lines, and what it says."""
    text = lines + "\nfrom kernelllm.app.start import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


PRESSED = """
import signal, sys
class Pressed:
    def find_spec(self, name, *_):
        if name == "click":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Pressed())
"""
CRASH = """
import ctypes
from kernelllm.app import main as command_line
command_line.main = lambda: ctypes.string_at(0)
"""


def test_an_interrupt_while_python_loads_the_command_line_shows_no_traceback() -> None:
    assert ended(PRESSED) == (130, "Interrupted before there was anything to keep.\n")


def test_a_crash_says_what_happened_and_where() -> None:
    code, said = ended(CRASH)
    assert code == -signal.SIGSEGV
    assert "Segmentation fault" in said
    assert "in string_at" in said
