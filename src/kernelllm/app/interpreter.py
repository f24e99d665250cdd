"""Triton's interpreter in this process, for those who ask for it: written kernels then run without a GPU."""

from __future__ import annotations

import os


def chosen() -> bool:
    """Whether ``TRITON_INTERPRET=1`` was set; the interpreter is then made to run what written files contain."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        return False
    from kernelllm.backends.triton.emulator import driver, interpreter

    driver.install("sm_90")
    interpreter.install()
    return True
