"""Pairs as rows of tokens: the prompt that the model will be asked with, the answer, and a loss on the answer alone."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from kernelllm.core.errors import UsageError
from kernelllm.core.types import digest
from kernelllm.lm.plain_module import plain_kernel
from kernelllm.models import Message
from kernelllm.models.hf import prompt_ids
from kernelllm.models.language_model import plain_text
from kernelllm.pairs import pair_files
from kernelllm.pairs.row import Pair
from kernelllm.train.config import Data
from kernelllm.train.parallel import parallel_map
from kernelllm.train.questions import Asked, questions
from kernelllm.train.renaming import sizes_by_place

_UNNAMED: Final = "get_init_inputs_"
"""In the names of sizes to which the module gives none: which they are, a prompt for ``mini`` does not tell."""
NO_LOSS: Final = -100
"""The label of a token that is not to be learned."""


class TokenExample(msgspec.Struct, frozen=True):
    """One pair in tokens; the answer begins at ``answer``."""

    ids: list[int]
    answer: int


def rows_of(data: Data) -> list[Pair]:
    """All rows of the sets; for ``mini`` the kernels in one way of writing. Raises UsageError where there is none."""
    return in_one_writing(unread_rows(data), data)


def unread_rows(data: Data) -> list[Pair]:
    """All rows of the sets as they are there. Raises UsageError where there is none."""
    if not data.pairs:
        raise UsageError("The recipe names no pairs.", fix="Set data.pairs, or give --pairs DIR; kernelllm pairs build makes a set.")
    found = [row for folder in data.pairs for row in pair_files.read(Path(folder))]
    if not data.by_family:
        for_training = [int(digest(row.fingerprint)[:8], 16) % 40 != 0 for row in found]  # a module and its repairs are in one split
        found = [msgspec.structs.replace(r, split="train" if t else "validation") for r, t in zip(found, for_training, strict=True)]
    return found if data.template != "mini" else [row for row in found if _UNNAMED not in row.triton_code]


def in_one_writing(rows: Sequence[Pair], data: Data) -> list[Pair]:
    """The rows; for ``mini`` with their kernels in one way of writing, which takes a while."""
    if data.template != "mini":
        return list(rows)
    plain = parallel_map(plain_kernel, [row.triton_code for row in rows])
    return [msgspec.structs.replace(row, triton_code=sizes_by_place(code)) for row, code in zip(rows, plain, strict=True)]


def data_digest(rows: Iterable[Pair]) -> str:
    """SHA-256 of which rows there are."""
    return digest("\n".join(f"{r.uuid} {r.split}" for r in rows))


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
    """The rows that fit in ``max_length``, the end token included, and how many do not."""
    asked = questions(data.template, [Asked(r.python_code, r.before_code, r.before_verdict) for r in rows])
    plain = [plain_text(messages) for messages in asked]
    if tokenizer.bos_token_id is None and rows and None not in plain:
        prompts = tokenizer(plain, add_special_tokens=False)["input_ids"]
    else:
        prompts = [prompt_ids(tokenizer, messages) for messages in asked]
    answers = tokenizer([answer_text(r.triton_code, data) for r in rows], add_special_tokens=False)["input_ids"] if rows else []
    made = [TokenExample([*p, *a, tokenizer.eos_token_id], len(p)) for p, a in zip(prompts, answers, strict=True)]
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
    """What a trainer draws from: packs, or single examples.

    ``step``: empty rows make the number a multiple of it. Several processes would take rows twice to share the last step of an epoch.
    """

    def __init__(self, found: Sequence[TokenExample], data: Data, step: int = 1) -> None:
        self.rows = packed(found, data.max_length) if data.packing else [[one] for one in found]
        self.rows += [[] for _ in range(-len(self.rows) % step)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> list[TokenExample]:
        return self.rows[index]

    @property
    def tokens(self) -> int:
        """In all rows."""
        return sum(len(one.ids) for row in self.rows for one in row)


class Collator:
    """Rows to tensors. Positions begin anew with each example, which keeps examples of a row apart (transformers reads it from them).

    ``count`` rows, empty ones where there are fewer: with ``length``, all batches have one shape, which is compiled once.
    ``starts``: also where examples begin in the flat batch (:mod:`kernelllm.train.packed_attention`).
    """

    def __init__(self, pad: int, length: int | None = None, multiple: int = 64, *, count: int = 0, starts: bool = False) -> None:
        self.pad, self.length, self.multiple = pad, length, multiple
        self.count, self.starts = count, starts

    def __call__(self, rows: Sequence[Sequence[TokenExample]]) -> dict[str, torch.Tensor]:
        longest = max(1, *(sum(len(one.ids) for one in row) for row in rows))
        length = self.length or -(-longest // self.multiple) * self.multiple
        shape = (max(len(rows), self.count), length)
        ids = torch.full(shape, self.pad)
        labels = torch.full(shape, NO_LOSS)
        positions = torch.arange(length).repeat(shape[0], 1)
        for index, row in enumerate(rows):
            at = 0
            for one in row:
                end = at + len(one.ids)
                ids[index, at:end] = torch.tensor(one.ids)
                labels[index, at + one.answer : end] = ids[index, at + one.answer : end]
                positions[index, at:end] = torch.arange(end - at)
                at = end
            positions[index, at:] = torch.arange(length - at)
        made = {"input_ids": ids, "labels": labels, "position_ids": positions}
        if self.starts:
            begin = (positions.view(-1) == 0).nonzero().view(-1)
            room = max(len(begin), shape[0] * length // 64) + 1  # the same for all batches: the end again and again
            made["example_starts"] = torch.full((room,), shape[0] * length, dtype=torch.int32)
            made["example_starts"][: len(begin)] = begin
        return made
