"""Pairs as rows of tokens: the prompt that the model will be asked with, the answer, and a loss on the answer alone."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from kernelllm.core.errors import UsageError
from kernelllm.core.types import Problem, digest
from kernelllm.lm import prompts
from kernelllm.models import Message
from kernelllm.models.hf import prompt_ids
from kernelllm.pairs import pair_files
from kernelllm.pairs.row import Pair
from kernelllm.train.config import Data

NO_LOSS: Final = -100
"""The label of a token that is not to be learned."""


class TokenExample(msgspec.Struct, frozen=True):
    """One pair in tokens; the answer begins at ``answer``."""

    ids: list[int]
    answer: int


def rows_of(data: Data) -> list[Pair]:
    """All rows of the sets. Raises UsageError where there is none."""
    if not data.pairs:
        raise UsageError("The recipe names no pairs.", fix="Set data.pairs, or give --pairs DIR; kernelllm pairs build makes a set.")
    return [row for folder in data.pairs for row in pair_files.read(Path(folder))]


def data_digest(rows: Iterable[Pair]) -> str:
    """SHA-256 of which rows there are."""
    return digest("\n".join(f"{r.uuid} {r.split}" for r in rows))


def question(row: Pair, data: Data, templates: prompts.Templates) -> tuple[Message, ...]:
    """What is asked for a row: the first prompt, or that of a later round where the row repairs or hastens a kernel."""
    problem = Problem(name=row.name, source=row.python_code)
    if row.kind == "pair":
        return prompts.first_prompt(templates, data.template, problem)
    return prompts.follow_up(templates, data.template, problem, row.before_code, row.before_verdict)


def example(row: Pair, data: Data, tokenizer: Any, templates: prompts.Templates) -> TokenExample:
    """A row in tokens, the end token included."""
    asked = prompt_ids(tokenizer, question(row, data, templates))
    return TokenExample([*asked, *answer_ids(row.triton_code, data, tokenizer)], len(asked))


def answer_ids(code: str, data: Data, tokenizer: Any) -> list[int]:
    """The answer that a kernel's file makes, in tokens."""
    return [*tokenizer(answer_text(code, data), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def answer_text(code: str, data: Data) -> str:
    """The answer that a kernel's file makes."""
    return f"```python\n{code.strip()}\n```" if data.fenced else f"{code.strip()}\n"


def fits(asked: Sequence[Message], code: str, data: Data, tokenizer: Any) -> bool:
    """Whether a prompt and an answer fit in ``max_length``."""
    return len(prompt_ids(tokenizer, asked)) + len(answer_ids(code, data, tokenizer)) <= data.max_length


def examples(rows: Sequence[Pair], data: Data, tokenizer: Any) -> tuple[list[TokenExample], int]:
    """The rows that fit in ``max_length``, and how many do not."""
    templates = prompts.Templates()
    made = [example(row, data, tokenizer, templates) for row in rows]
    kept = [one for one in made if len(one.ids) <= data.max_length]
    return kept, len(made) - len(kept)


def packed(found: Sequence[TokenExample], length: int) -> list[list[TokenExample]]:
    """Rows of at most ``length`` tokens: each example, the longest first, goes where it leaves the least room. Nothing is cut."""
    rows: list[list[TokenExample]] = []
    room: list[tuple[int, int]] = []  # (tokens left, row), sorted
    for one in sorted(found, key=lambda e: -len(e.ids)):
        at = bisect.bisect_left(room, (len(one.ids), 0))
        if at < len(room):
            left, row = room.pop(at)
            rows[row].append(one)
        else:
            left, row = length, len(rows)
            rows.append([one])
        bisect.insort(room, (left - len(one.ids), row))
    return rows


class Rows(torch.utils.data.Dataset[list[TokenExample]]):
    """What a trainer draws from: packs, or single examples."""

    def __init__(self, found: Sequence[TokenExample], data: Data) -> None:
        self.rows = packed(found, data.max_length) if data.packing else [[one] for one in found]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> list[TokenExample]:
        return self.rows[index]

    @property
    def tokens(self) -> int:
        """In all rows."""
        return sum(len(one.ids) for row in self.rows for one in row)


class Collator:
    """Rows to tensors. Positions begin anew with each example, which keeps examples of a row apart (transformers reads it from them)."""

    def __init__(self, pad: int, length: int | None = None, multiple: int = 64) -> None:
        self.pad, self.length, self.multiple = pad, length, multiple

    def __call__(self, rows: Sequence[Sequence[TokenExample]]) -> dict[str, torch.Tensor]:
        longest = max(sum(len(one.ids) for one in row) for row in rows)
        length = self.length or -(-longest // self.multiple) * self.multiple
        ids = torch.full((len(rows), length), self.pad)
        labels = torch.full((len(rows), length), NO_LOSS)
        positions = torch.zeros((len(rows), length), dtype=torch.long)
        for index, row in enumerate(rows):
            at = 0
            for one in row:
                end = at + len(one.ids)
                ids[index, at:end] = torch.tensor(one.ids)
                labels[index, at + one.answer : end] = ids[index, at + one.answer : end]
                positions[index, at:end] = torch.arange(end - at)
                at = end
            positions[index, at:] = torch.arange(length - at)
        return {"input_ids": ids, "labels": labels, "position_ids": positions}
