"""Standard output is for results on the command line; as a library, nothing of the process is replaced."""

from __future__ import annotations

import io
import logging
import sys
import threading

import pytest

from kernelllm.core.quiet import CHATTY, quiet_thread, results_only, third_party_output


def test_a_library_leaves_the_streams_of_the_process_alone() -> None:
    before = sys.stdout, sys.stderr
    with third_party_output():
        assert (sys.stdout, sys.stderr) == before


def test_on_the_command_line_only_results_reach_standard_output_from_any_thread(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with third_party_output():
            entered.set()
            leave.wait(10)
            sys.stdout.write("other inside\n")

    thread = threading.Thread(target=other)
    with results_only():
        with third_party_output():
            thread.start()
            assert entered.wait(10)
            sys.stdout.write("mine inside\n")
        sys.stdout.write("mine outside, while the other is inside\n")
        leave.set()
        thread.join()
    assert sys.stdout is before
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["mine outside, while the other is inside"]
    assert shown.err.splitlines() == ["mine inside", "other inside"]


def test_others_may_replace_the_streams_meanwhile_and_put_back_what_they_found() -> None:
    """As pytest and notebooks do; what is put back must still write to where it did."""
    first, second = sys.stdout, io.StringIO()
    try:
        for _ in range(3):
            with third_party_output():
                found, found_error = sys.stdout, sys.stderr
                sys.stdout = sys.stderr = second
            sys.stdout, sys.stderr = found, found_error
            with third_party_output():
                sys.stdout.write("")
                sys.stderr.write("")
        assert sys.stdout is first
    finally:
        sys.stdout = first


def test_one_thread_is_kept_quiet_and_others_are_not(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger(CHATTY[0])
    monkeypatch.setattr(log, "disabled", False)  # as it is where no command line ran in this process
    with quiet_thread():
        log.error("mine")
        other = threading.Thread(target=log.error, args=("another's",))
        other.start()
        other.join()
    log.error("later")
    assert caplog.messages == ["another's", "later"]
