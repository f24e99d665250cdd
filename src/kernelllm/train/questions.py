"""What a model is asked for the rows of a set. A row takes milliseconds and a set is large, so processes share the work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from typing import NamedTuple

from kernelllm.core.types import Problem
from kernelllm.lm import prompts
from kernelllm.models.language_model import Message

_ALONE = 500
"""Rows that one process does sooner than others have started."""


class Asked(NamedTuple):
    """A module; where a kernel is to be repaired or made faster, also that kernel and its verdict."""

    source: str
    before: str = ""
    verdict: str = ""


def question(template: str, asked: Asked) -> tuple[Message, ...]:
    """The first prompt, or that of a later round."""
    problem = Problem(name="module", source=asked.source)
    if not asked.verdict:
        return prompts.first_prompt(_templates(), template, problem)
    return prompts.follow_up(_templates(), template, problem, asked.before, asked.verdict)


def questions(template: str, rows: Sequence[Asked]) -> list[tuple[Message, ...]]:
    """One a row, in order."""
    if len(rows) <= _ALONE:
        return [question(template, row) for row in rows]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 32), mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(question, template), rows, chunksize=100))


@cache
def _templates() -> prompts.Templates:
    return prompts.Templates()
