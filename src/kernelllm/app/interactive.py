"""The interactive loop: paste a module, watch the answer come, see its verdict, ask again."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kernelllm.app.session import LMOptions, writer_options
from kernelllm.core import settings
from kernelllm.core.errors import KernelLLMError, UsageError
from kernelllm.core.text import printable
from kernelllm.core.types import Attempt, Problem, Status, Verdict, best
from kernelllm.core.writer import Writer, open_writer

if TYPE_CHECKING:
    from kernelllm.models import LanguageModel

log = logging.getLogger(__name__)

EXAMPLE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Hinge loss."""

    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


batch_size = 128
input_shape = (1,)


def get_inputs():
    return [torch.randn(batch_size, *input_shape), torch.randint(0, 2, (batch_size, 1)).float() * 2 - 1]


def get_init_inputs():
    return []
'''
"""What an empty input stands for, as in the published script."""

HELP = """Paste a PyTorch module (class Model, get_inputs, get_init_inputs).
End it with a line END or Ctrl-D. Nothing but END is an example (hinge loss).
  /retry        ask again, with the verdict of the last version as feedback
  /best         show the fastest correct version of this module
  /save FILE    write the best version (or else the last one) to a file
  /model NAME   go on with another model: compiler, hf/REPO, openai/NAME, ...
  /help         this
  exit          leave"""


class Repl:
    """One conversation. ``model`` is an open model or a name; ``judge`` a Judge, JudgeSettings, or None.

    ``source`` and ``out`` are standard input and output by default. On a terminal, lines are edited and kept
    in a history; on a pipe the end of input ends the last module and then the loop.
    """

    def __init__(
        self,
        model: LanguageModel | str,
        *,
        judge: Any = None,
        source: TextIO | None = None,
        out: TextIO | None = None,
        max_tokens: int | None = None,
        base_url: str | None = None,
    ) -> None:
        self.source = source or sys.stdin
        self.out = out or sys.stdout
        self.terminal = source is None and sys.stdin.isatty()
        self._judge = judge
        self._close_judge: Callable[[], None] | None = None
        self._asking = LMOptions(max_tokens=max_tokens, base_url=base_url)
        self.writer = self._opened(model)
        self.problem: Problem | None = None
        self.attempts: list[Attempt] = []

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> None:
        """Read, answer, and again, until ``exit`` or the end of the input."""
        if self.terminal:
            self._history()
            self._say(f"kernelllm with {self.writer.name}.\n{HELP}\n")
        try:
            while True:
                try:
                    block = self._read()
                except KeyboardInterrupt:
                    self._say("\n(what was typed is dropped; exit leaves)")
                    continue
                if block is None or not self._step(block):
                    return
        finally:
            self.writer.close()
            if self._close_judge is not None:
                self._close_judge()

    def _step(self, block: str) -> bool:
        """Do what one block asks for; False when it asks to leave."""
        word, _, rest = block.strip().partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "/best": self._best,
            "/retry": self._retry,
            "/save": self._save,
            "/model": self._switch,
            "/help": lambda _: self._say(HELP),
        }
        if word in ("exit", "quit", "/exit", "/quit") and not rest:
            return False
        try:
            if "\n" not in block.strip() and word.startswith("/"):
                if word not in commands:
                    raise UsageError(f"There is no command {word!r}.", fix=f"Commands: {', '.join(commands)}, exit.")
                commands[word](rest.strip())
            else:
                self._module(block)
        except KeyboardInterrupt:
            self.writer.cancel()
            self._say("\n(stopped)")
        except KernelLLMError as error:
            self._say(f"Error: {error}")
        return True

    def _read(self) -> str | None:
        """One command or one pasted module, None at the end of the input."""
        lines: list[str] = []
        while True:
            line = self._line(">>> " if not lines else "... ")
            if line is None:
                if self.terminal:
                    self._say("")
                    return "\n".join(lines)
                return "\n".join(lines) if any(text.strip() for text in lines) else None
            if line.strip() == "END":
                return "\n".join(lines)
            if not lines and (line.strip() in ("exit", "quit") or line.startswith("/")):
                return line.strip()
            if lines or line.strip():
                lines.append(line)

    def _line(self, prompt: str) -> str | None:
        if self.terminal:
            try:
                return input(prompt)
            except EOFError:
                return None
        line = self.source.readline()
        return line.rstrip("\r\n") if line else None

    def _history(self) -> None:
        """Line editing with a history that outlives the session, where the platform has it."""
        try:
            import readline
        except ImportError:
            return
        import atexit

        file = settings.load().data / "repl_history"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                readline.read_history_file(file)
            readline.set_history_length(2000)
            atexit.register(_write_history, file)
        except OSError as error:
            log.info("The history of what is typed cannot be kept: %s", error)

    def _say(self, text: str, end: str = "\n") -> None:
        self.out.write(printable(text + end))
        self.out.flush()

    # -- commands ------------------------------------------------------------------------------

    def _opened(self, model: LanguageModel | str) -> Writer:
        if isinstance(model, str):
            return open_writer(model, **writer_options(model, self._asking, target=settings.load().target))
        from kernelllm.lm.lm_writer import lm_writer

        return lm_writer(model, **self._asking.sampling())

    def _switch(self, name: str) -> None:
        if not name:
            self._say(f"The model is {self.writer.name}.")
            return
        opened = self._opened(name)
        self.writer.close()
        self.writer = opened
        self._say(f"From now on {name} writes.")

    def _best(self, _: str) -> None:
        chosen = self._chosen(need_correct=True)
        self._say(chosen.candidate.source if chosen else "There is no correct version yet.")

    def _save(self, file: str) -> None:
        if not file:
            raise UsageError("/save needs a file.", fix="Write /save FILE.")
        chosen = self._chosen()
        if chosen is None:
            raise UsageError("There is nothing to save yet.", fix="Paste a module first.")
        from kernelllm.app.output import check_writable, write_text
        from kernelllm.app.pipeline import header

        path = Path(file).expanduser()
        check_writable(path, option="/save")
        assert self.problem is not None
        write_text(path, header(self.problem, chosen) + chosen.candidate.source)
        self._say(f"Written to {path} ({chosen.verdict.status}).")

    def _chosen(self, *, need_correct: bool = False) -> Attempt | None:
        usable = [a for a in self.attempts if a.candidate.source]
        return best(usable) or (None if need_correct or not usable else usable[-1])

    def _retry(self, _: str) -> None:
        if self.problem is None:
            raise UsageError("There is nothing to ask again.", fix="Paste a module first.")
        self._answer(feedback=tuple(self.attempts))

    def _module(self, text: str) -> None:
        if not text.strip():
            self._say("(nothing pasted: the example, hinge loss)")
            text = EXAMPLE
        self.problem = Problem(name="pasted", source=text.strip("\n") + "\n", origin="repl")
        self.attempts = []
        self._answer()

    # -- an answer and its verdict -------------------------------------------------------------

    def _answer(self, feedback: tuple[Attempt, ...] = ()) -> None:
        assert self.problem is not None
        draft = self.writer.stream(self.problem, lambda piece: self._say(piece, end=""), feedback)
        self._say("")
        if draft is None:
            self._say(f"({self.writer.name} has nothing more to offer)")
            return
        candidate = draft.candidate
        if draft.reason:
            verdict = Verdict(status=Status.INVALID, message=draft.reason)
        else:
            if candidate.note:
                self._say(f"({candidate.note})")
            self._say("(judging)")
            verdict = self._opened_judge().judge(self.problem, candidate)
        self.attempts.append(
            Attempt(problem="pasted", candidate=candidate, verdict=verdict, cost=draft.cost, round=len(self.attempts), answer=draft.answer)
        )
        from kernelllm.lm.feedback import headline

        times = f"{headline(verdict)}; " if verdict.timing else ""
        self._say(f"{verdict.status}: {times}{verdict.message}")
        for finding in verdict.findings:
            where = f" (line {finding.line})" if finding.line else ""
            self._say(f"  {finding.severity}: {finding.check}: {finding.message}{where}")

    def _opened_judge(self) -> Any:
        from kernelllm.app.judge_options import opened_judge

        self._judge, _, opened_here = opened_judge(self._judge)
        if opened_here:
            self._close_judge = self._judge.close
        return self._judge


def _write_history(file: Path) -> None:
    import readline

    try:
        readline.write_history_file(file)
    except OSError as error:
        log.info("The history of what was typed cannot be kept: %s", error)
