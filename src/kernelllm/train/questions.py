"""What a model is asked for the rows of a set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

from kernelllm.core.types import Problem
from kernelllm.lm import prompts
from kernelllm.models.language_model import Message
from kernelllm.train.parallel import parallel_map


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
    return parallel_map(partial(question, template), rows)


@cache
def _templates() -> prompts.Templates:
    return prompts.Templates()
