"""Standard output is for results, whoever prints in whichever thread."""

import sys
import threading

import pytest

from kernelllm.core.quiet import printing_nowhere, printing_to_stderr


def test_threads_may_overlap_and_standard_output_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with printing_to_stderr():
            entered.set()
            leave.wait(10)
            sys.stdout.write("other inside\n")

    thread = threading.Thread(target=other)
    with printing_to_stderr():
        thread.start()
        assert entered.wait(10)
        sys.stdout.write("mine inside\n")
        with printing_nowhere():
            sys.stdout.write("mine, dropped\n")
            sys.stderr.write("mine, dropped as well\n")
    sys.stdout.write("mine outside, while the other is inside\n")
    leave.set()
    thread.join()
    sys.stdout.write("after both\n")
    assert sys.stdout is before
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["mine outside, while the other is inside", "after both"]
    assert shown.err.splitlines() == ["mine inside", "other inside"]
