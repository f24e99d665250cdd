"""The ``kernelllm`` script: Ctrl-C while Python still loads the command line ends it without a traceback, and a crash says where it was."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Load the command line and run it."""
    theirs = signal.getsignal(signal.SIGINT)
    if theirs is signal.default_int_handler:  # otherwise somebody ignores Ctrl-C, as shells do for what runs in the background
        signal.signal(signal.SIGINT, _ended)
    import faulthandler

    from kernelllm.app.main import main as run

    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        faulthandler.enable(all_threads=False)  # problems run in this process: one that crashes would end it without a word
    signal.signal(signal.SIGINT, theirs)
    run()


def _ended(*_: Any) -> None:
    os.write(2, b"Interrupted before there was anything to keep.\n")
    os._exit(130)
