"""``replay/FILE``: recorded answers, offline and deterministic.

The file has one JSON object a line::

    {"text": "...", "sample": 0, "prompt": "<SHA-256 of the prompt>", "match": "words in the prompt",
     "tokens_in": 900, "tokens_out": 300, "thinking": "", "finish": "stop"}

Only ``text`` is required. For sample ``i`` of a prompt the answer is the first row that fits: a row whose
``prompt`` is the prompt's digest, else one whose ``match`` occurs in it, else one with neither. Within
those, a row with ``sample`` fits that sample only; rows without one are handed out in file order.
``kernelllm runs export RUN --replay FILE`` writes such a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from kernelllm.core.errors import ModelError, UsageError
from kernelllm.core.types import digest
from kernelllm.models.language_model import AGAIN, Completion, LanguageModel, Message, SamplingParams, as_text, cut_at_stop


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a replay file."""

    text: str
    sample: int | None = None
    prompt: str = ""
    match: str = ""
    thinking: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    finish: str = "stop"


class ReplayedAnswers(LanguageModel):
    """Answers from a file. A request that the file does not cover raises ModelError."""

    provider: ClassVar[str] = "replay"
    summary: ClassVar[str] = "recorded answers from a JSON-lines file: offline, deterministic"
    needs: ClassVar[str] = "a file of recorded answers"
    example: ClassVar[str] = "replay/FILE"
    local = True

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._rows: list[Recorded] | None = None

    @property
    def rows(self) -> list[Recorded]:
        """The recorded answers. Raises UsageError where the file is missing or malformed."""
        if self._rows is None:
            path = Path(self.model)
            if not path.is_file():
                raise UsageError(f"There is no file of recorded answers {self.model!r}.", fix="Write it as replay/FILE.")
            rows = []
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if line.strip():
                    try:
                        rows.append(msgspec.json.decode(line, type=Recorded))
                    except msgspec.DecodeError as error:
                        raise UsageError(f"A recorded answer does not parse: {error}.", where=f"{path}:{number}") from error
            self._rows = rows
        return self._rows

    def _find(self, prompt: str, sample: int) -> Recorded:
        by_digest = [r for r in self.rows if r.prompt and r.prompt == digest(prompt)]
        by_match = [r for r in self.rows if not r.prompt and r.match and r.match in prompt]
        free = [r for r in self.rows if not r.prompt and not r.match]
        for rows in (by_digest, by_match, free):
            numbered = [r for wanted in (sample, sample % AGAIN) for r in rows if r.sample == wanted]
            if numbered:
                return numbered[0]
            unnumbered = [r for r in rows if r.sample is None]
            if sample % AGAIN < len(unnumbered):
                return unnumbered[sample % AGAIN]
        raise ModelError(
            f"The file of recorded answers has none for sample {sample} of this prompt.",
            where=self.model,
            fix="Record one, or ask for fewer samples.",
        )

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        prompt = as_text(messages)
        for index in range(first, first + n):
            row = self._find(prompt, index)
            text, _ = cut_at_stop(row.text, params.stop)
            yield Completion(
                text=text, thinking=row.thinking, tokens_in=row.tokens_in, tokens_out=row.tokens_out, finish=row.finish, sample=index
            )
