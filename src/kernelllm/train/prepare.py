"""What a run learns from, in tokens: made once, on any machine, and kept in the run's folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy

from kernelllm.core.errors import UsageError
from kernelllm.core.types import digest, to_json
from kernelllm.lm.plain_module import plain_module
from kernelllm.models.extras import need
from kernelllm.pairs.row import Pair
from kernelllm.train import tokenizer, weights
from kernelllm.train.config import Recipe
from kernelllm.train.copied_names import copied_names
from kernelllm.train.examples import TokenExample, answer_text, data_digest, examples, in_one_writing, unread_rows
from kernelllm.train.parallel import parallel_map
from kernelllm.train.renaming import renamed_copies

log = logging.getLogger(__name__)
KEPT: Final = "examples.npz"
_TOKENIZER_ROWS: Final = 4000
"""Rows that merges of characters are learnt from; more do not change them."""
_SPLITS: Final = ("train", "validation", "test")


class PreparedExamples(msgspec.Struct, kw_only=True):
    """The examples of each split, and what is known of the rows that they were made of."""

    parts: dict[str, list[TokenExample]]
    too_long: int
    """Rows that do not fit in ``max_length``."""
    verdicts: bool
    """Whether there are verdicts in what is learnt from."""
    copied: tuple[str, ...] = ()
    """:func:`~kernelllm.train.copied_names.copied_names` of them, for a small model."""


def prepare(recipe: Recipe, folder: Path, *, told: Callable[[str], None] = log.info, fresh: bool = False) -> None:
    """Make the tokens of a run that is to train elsewhere. Raises UsageError, MissingExtra."""
    folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        (folder / KEPT).unlink(missing_ok=True)
    _, made = opened(recipe, unread_rows(recipe.data), folder)
    told(f"{len(made.parts['train'])} examples of {sum(len(e.ids) for e in made.parts['train'])} tokens in {folder / KEPT}")


def opened(recipe: Recipe, rows: Sequence[Pair], folder: Path) -> tuple[Any, PreparedExamples]:
    """The tokenizer, and the examples that ``folder`` holds of these rows; they are made where it has none."""
    path = folder / KEPT
    words = opened_tokenizer(recipe, [], folder) if recipe.base or (folder / "tokenizer").exists() else None
    if words is not None and (found := _read(path, _key(recipe, rows, words))) is not None:
        return words, found
    plain = in_one_writing(rows, recipe.data)
    words = words or opened_tokenizer(recipe, plain, folder)
    made = _made(recipe, plain, words)
    _write(path, _key(recipe, rows, words), made)
    return words, made


def _made(recipe: Recipe, rows: Sequence[Pair], words: Any) -> PreparedExamples:
    parts = {split: [r for r in rows if r.split == split] for split in _SPLITS}
    own = parts["train"][: recipe.data.limit]
    if recipe.data.template == "mini":  # once for all copies; the prompt leaves it as it is
        texts = parallel_map(plain_module, [r.python_code for r in own])
        own = [msgspec.structs.replace(r, python_code=text) for r, text in zip(own, texts, strict=True)]
    parts["train"] = [*own, *renamed_copies(own, recipe.data.renamings)]
    fitting = {split: examples(chosen, recipe.data, words) for split, chosen in parts.items()}
    if not fitting["train"][0]:
        raise UsageError("No training pair fits.", where=", ".join(recipe.data.pairs), fix="Raise data.max_length.")
    return PreparedExamples(
        parts={split: found for split, (found, _) in fitting.items()}, too_long=sum(left for _, left in fitting.values()),
        verdicts=any(row.before_verdict for row in own),
        copied=tuple(copied_names((r.python_code, r.triton_code) for r in own)) if recipe.small else (),
    )  # fmt: skip


def _key(recipe: Recipe, rows: Sequence[Pair], words: Any) -> str:
    """The same for the same rows, settings and tokens. Where the sets lie does not matter."""
    told = msgspec.to_builtins(recipe.data) | {"pairs": data_digest(rows), "tokens": digest(to_json(sorted(words.get_vocab().items())))}
    return digest(to_json({**told, "small": recipe.small}))


def _write(path: Path, key: str, made: PreparedExamples) -> None:
    """All tokens in one row, and where examples and their answers begin in it."""
    arrays: dict[str, Any] = {}
    for split, found in made.parts.items():
        ids = numpy.array([i for one in found for i in one.ids], dtype=numpy.uint32)
        small = not len(ids) or int(ids.max()) < 2**16
        arrays[f"{split}_ids"] = ids.astype(numpy.uint16) if small else ids
        arrays[f"{split}_lengths"] = numpy.array([[len(one.ids), one.answer] for one in found], dtype=numpy.uint32).reshape(-1, 2)
    told = to_json({"key": key, "too_long": made.too_long, "verdicts": made.verdicts, "copied": list(made.copied)})
    new = path.with_suffix(".new.npz")
    numpy.savez_compressed(new, told=numpy.frombuffer(told.encode(), dtype=numpy.uint8), **arrays)
    new.replace(path)


def _read(path: Path, key: str) -> PreparedExamples | None:
    """What was kept, if it is of the same key."""
    if not path.exists():
        return None
    with numpy.load(path) as kept:
        told = msgspec.json.decode(kept["told"].tobytes())
        if told.pop("key") != key:
            return None
        parts: dict[str, list[TokenExample]] = {}
        for split in _SPLITS:
            ids, at = kept[f"{split}_ids"].tolist(), 0
            parts[split] = []
            for length, answer in kept[f"{split}_lengths"].tolist():
                parts[split].append(TokenExample(ids[at : at + length], answer))
                at += length
    return PreparedExamples(parts=parts, too_long=told["too_long"], verdicts=told["verdicts"], copied=tuple(told["copied"]))


def opened_tokenizer(recipe: Recipe, rows: Sequence[Pair], folder: Path) -> Any:
    """The base's, or one trained on the training pairs and kept in the folder."""
    transformers = need("transformers", "train")
    if recipe.base:
        found = weights.of_base(transformers.AutoTokenizer, str(weights.int8_base(recipe) or recipe.base))
        if found.pad_token_id is None:
            found.pad_token = found.eos_token
        return found
    kept = folder / "tokenizer"
    if not kept.exists():
        own = [r for r in rows if r.split == "train"][: recipe.data.limit]
        answers = [answer_text(r.triton_code, recipe.data) for r in own]
        if recipe.tokenizer.blocks_of == "functions":
            blocks = tokenizer.shared_parts(answers, recipe.tokenizer.blocks)
        else:
            lines = [tokenizer.without_own_names(a, r.python_code) for a, r in zip(answers, own, strict=True)]
            blocks = tokenizer.frequent_blocks(lines, recipe.tokenizer.blocks)
        step = -(-len(own) // _TOKENIZER_ROWS)
        said = [r.before_verdict for r in own if r.before_verdict]
        texts = [*parallel_map(plain_module, [r.python_code for r in own[::step]]), *answers[::step], *said]
        tokenizer.trained(texts, recipe.tokenizer.vocabulary, blocks).save_pretrained(kept)
    return transformers.AutoTokenizer.from_pretrained(kept)
