"""The interactive loop, on a pipe and on a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from scripted import PROBLEM, Scripted, ScriptedJudge, code

from kernelllm.app.interactive import EXAMPLE, Repl
from kernelllm.models import Message
from kernelllm.models.mock import Mock

SUPPORT = str(Path(__file__).parent.parent / "support")


def talk(text: str, model: object = None) -> str:
    out = io.StringIO()
    Repl(model or Scripted(), judge=ScriptedJudge(), source=io.StringIO(text), out=out).run()  # type: ignore[arg-type]
    return out.getvalue()


class Spy(Mock):
    """Notes the prompts that it was sent."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        super().__init__(answer=self._note)

    def _note(self, messages: Sequence[Message], sample: int) -> str:
        self.prompts.append("\n".join(m.content for m in messages))
        return "```python\n" + code("fine") + "```"


def test_what_was_pasted_is_what_is_asked_about() -> None:
    spy = Spy()
    out = talk(PROBLEM.source + "END\n", spy)
    assert len(spy.prompts) == 1
    assert PROBLEM.source.strip() in spy.prompts[0]
    assert EXAMPLE.strip() not in spy.prompts[0]
    assert "# fine" in out
    assert "correct: 2 ms" in out


def test_the_end_of_a_pipe_ends_the_last_module_and_the_loop() -> None:
    spy = Spy()
    assert "correct" in talk(PROBLEM.source, spy)  # no END, no line end to wait for
    assert len(spy.prompts) == 1
    assert talk("", spy) == ""  # nothing at all: nothing happens, and it ends
    assert talk("\n\n", spy) == ""
    assert len(spy.prompts) == 1


def test_an_empty_input_is_the_example() -> None:
    spy = Spy()
    talk("END\n", spy)
    assert EXAMPLE.strip() in spy.prompts[0]


def test_exit_leaves() -> None:
    spy = Spy()
    talk("exit\n" + PROBLEM.source + "END\n", spy)
    talk("quit\n" + PROBLEM.source, spy)
    assert spy.prompts == []
    talk(PROBLEM.source.replace("import torch\n", "import torch\nexit\n", 1) + "END\n", spy)
    assert len(spy.prompts) == 1  # inside a module it is a line like any other


def test_retry_gives_the_verdict_back_and_best_shows_the_best() -> None:
    out = talk(PROBLEM.source + "END\n/best\n/retry\n/best\n/retry\n")
    assert "incorrect: The largest error is 2.5 at [0, 3]." in out
    assert "fail: decoy: The kernel's result is not used. (line 9)" in out
    assert "There is no correct version yet." in out
    assert out.count(code("fixed")) == 2  # as it came, and as the best
    assert out.count("correct: 2 ms, 1.50x over eager") == 2


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    model = Mock(answer=lambda messages, sample: "\x1b]0;title\x07\n```python\n" + code("fi\x1b[31mne\x9b") + "```")
    out = talk(PROBLEM.source + "END\n/best\n", model)
    assert out.count("ne\n") == 2
    assert not {"\x1b", "\x07", "\x9b"} & set(out)


def test_an_unusable_answer_is_said_to_be_one() -> None:
    out = talk("END\n", Mock(answer=lambda messages, sample: "No."))
    assert "No.\n" in out
    assert "invalid: The answer has no Python code." in out


def test_save_writes_a_file_and_no_other(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("precious\n")
    out = talk(f"/save {tmp_path}/a.py\n{PROBLEM.source}END\n/retry\n/save {tmp_path}/a.py\n/save {mine}\n/save\n")
    assert "There is nothing to save yet." in out
    assert (tmp_path / "a.py").read_text().endswith(code("fixed"))
    assert "# Verdict: correct." in (tmp_path / "a.py").read_text()
    assert mine.read_text() == "precious\n"
    assert "was not written by kernelllm" in out
    assert "/save needs a file." in out


def test_another_model_takes_over(tmp_path: Path) -> None:
    recorded = tmp_path / "answers.jsonl"
    recorded.write_text('{"text": "no code"}\n')
    out = talk(f"/model\n/model replay/{recorded}\nEND\n/model nosuch/x\n/nonsense\n/help\n")
    assert "The model is scripted/test." in out
    assert f"From now on replay/{recorded} writes." in out
    assert "invalid" in out
    assert "Unknown model 'nosuch/x'" in out
    assert "There is no command '/nonsense'" in out
    assert "/retry" in out


def test_windows_line_ends_and_a_last_line_without_one() -> None:
    spy = Spy()
    talk(PROBLEM.source.replace("\n", "\r\n") + "END", spy)
    assert PROBLEM.source.strip() in spy.prompts[0]


def test_a_failing_model_does_not_end_the_loop(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    out = talk(f"/model replay/{empty}\nEND\nEND\n")
    assert out.count("Error: The file of recorded answers has none") == 2


DRIVER = """
import sys
sys.path.insert(0, {support!r})
from scripted import Scripted, ScriptedJudge
from kernelllm.app.interactive import Repl
Repl(Scripted(), judge=ScriptedJudge()).run()
print("LEFT", flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_on_a_terminal_ctrl_d_ends_the_module_and_history_is_kept() -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb"}
    command = [sys.executable, "-c", DRIVER.format(support=SUPPORT)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < deadline, seen
            seen += os.read(ours, 65536).decode(errors="replace")
        seen = seen.split(text, 1)[1]

    try:
        until(">>> ")
        for line in ("class Model:", "    pass"):
            os.write(ours, (line + "\n").encode())
            until("... ")
        os.write(ours, b"\x04")
        until("incorrect: The largest error is 2.5")
        until(">>> ")
        os.write(ours, b"/retry\n")
        until("correct: 2 ms")
        until(">>> ")
        os.write(ours, b"exit\n")
        until("LEFT")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    history = Path(os.environ["XDG_DATA_HOME"]) / "kernelllm" / "repl_history"
    assert "/retry" in history.read_text()
