"""The emulator runs kernels as the compiler understands them."""

from __future__ import annotations

import re
from pathlib import Path

import interpreted

SCRIPT = Path(__file__).parent / "emulated_meanings.py"


def test_kernels_mean_what_they_mean_to_the_compiler() -> None:
    assert interpreted.run(SCRIPT).split() == [line.split("(")[0][4:] for line in SCRIPT.read_text().split("@case\n")[1:]]


def test_libdevice_is_whole() -> None:
    assert interpreted.run(SCRIPT.with_name("emulated_libdevice.py")).strip() == "ran"


def test_what_is_left_of_a_kernel_stores_where_it_does() -> None:
    script = SCRIPT.with_name("emulated_stores.py")
    assert interpreted.run(script).split() == re.findall(r"def (w(?:ith|here)_\w+)", script.read_text())


def test_a_process_may_ask_for_the_interpreter_again_and_again() -> None:
    assert interpreted.run(SCRIPT.with_name("emulated_again.py")) == "5.0"
