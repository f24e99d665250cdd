"""Answers that go back where a line cannot stand: drawn by a stand-in whose next tokens are written down."""

from __future__ import annotations

import pytest

from kernelllm.models.constrained.backtracking import Backtracking, LineStates
from kernelllm.models.constrained.prompt_module import prompt_module
from kernelllm.models.constrained.python_lines import PythonLines

PROMPT = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return torch.exp(x)
Model()
forward(x=torch.rand(8, 64))
"""
END = "<end>"
HEAD = "import torch.nn as nn\nimport triton"
CLASS = "\n\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()"


def answer(
    steps: list[tuple[str, float]], *more: str, copied: tuple[str, ...] = ()
) -> tuple[Backtracking, list[str], list[tuple[int, int]]]:
    """What is kept of tokens with their chances, and where the answer went back."""
    pieces = sorted({*more, *(text for text, _ in steps)})
    lines = Backtracking(LineStates(), PythonLines(any_constructor=True), pieces, prompt_module(PROMPT, copied))
    kept: list[str] = []
    went: list[tuple[int, int]] = []
    for text, chance in steps:
        back = lines.takes(pieces.index(text), text == END, chance, len(kept))
        kept.append(text)
        if back is not None:
            went.append(back)
            del kept[back[0] :]
    return lines, kept, went


def test_the_least_sure_token_of_the_line_is_not_taken_again() -> None:
    lines, kept, went = answer([(HEAD, 1.0), ("\nx = ", 0.9), ("unknown", 0.6), (" + 1", 0.8), ("\n", 1.0)])
    assert went == [(2, 2)]  # the state of the text is the one before that token
    assert kept == [HEAD, "\nx = "]
    assert list(lines.refused.values()) == [0.6]


def test_a_line_that_stays_wrong_lets_the_function_be_written_anew() -> None:
    start = [(HEAD, 1.0), ("\n\n\ndef f(", 0.5), ("x):", 1.0)]
    again = [("\n    return ", 1.0), ("y", 1.0), ("\n", 1.0)]
    _, kept, went = answer([*start, *again])
    assert went == [(1, 1)]
    assert kept == [HEAD]


def test_a_function_that_is_missing_is_begun_before_the_one_that_calls_it() -> None:
    forward = [("\n    def forward(self, x):", 1.0), ("\n        return exp(x)", 1.0), ("\n", 1.0)]
    lines, kept, _ = answer([(HEAD, 1.0), (CLASS, 1.0), *forward], "\ndef exp(x):")
    assert kept == [HEAD]
    assert lines.wanted == "\n\n\ndef exp("
    kernel = [("\n\n\n@triton.jit\ndef k(x):", 1.0), ("\n    y = exp(x)", 1.0), ("\n", 1.0)]
    lines, kept, _ = answer([("import triton", 1.0), *kernel], "\ndef exp(x):")
    assert kept == ["import triton"]
    assert lines.wanted == "\n\n\n@triton.jit\ndef exp("


def test_the_forward_has_the_arguments_of_the_prompt() -> None:
    lines, kept, _ = answer([(HEAD, 1.0), (CLASS, 1.0), ("\n    def forward(self, inp):", 0.9), ("\n", 1.0)])
    assert kept == [HEAD, CLASS]
    assert lines.wanted == "\n    def forward(self, x):"


@pytest.mark.parametrize("text", ["", "\n    def forward(self, x):\n        y = x"])
def test_an_answer_does_not_end_before_its_forward_returns(text: str) -> None:
    parts = [(HEAD, 1.0), (CLASS, 1.0), *([(text, 1.0)] if text else [])]
    lines, kept, went = answer([*parts, (END, 0.7)])
    assert went == [(len(parts), len(parts))]
    assert kept == [part for part, _ in parts]
    assert list(lines.refused.values()) == [0.7]


def test_what_is_wanted_is_written_in_tokens_of_whole_lines() -> None:
    lines, _, _ = answer([("a", 1.0), ("\n\n\n", 1.0), ("\n\n", 1.0), ("\ndef exp(x):", 1.0)])
    pieces = sorted(["a", "\n\n\n", "\n\n", "\ndef exp(x):"])
    lines.wanted = "\n\n\ndef exp("
    assert [pieces[token] for token in lines.suitable()] == ["\n\n"]
    lines.wanted = "\ndef exp("
    assert [pieces[token] for token in lines.suitable()] == ["\ndef exp(x):"]


def test_a_line_that_has_ended_stays_so_when_the_next_one_is_drawn_again() -> None:
    lines, kept, _ = answer([(HEAD, 1.0), ("\nx = unknown", 0.5), ("\n", 1.0)], " + 1", "\ny = 1")
    assert kept == [HEAD]
    pieces = sorted({HEAD, "\nx = unknown", "\n", " + 1", "\ny = 1"})
    assert lines.refuses(pieces.index(" + 1"), ends=False)
    assert lines.refuses(pieces.index("\nx = unknown"), ends=False)
    assert not lines.refuses(pieces.index("\ny = 1"), ends=False)


def test_an_operator_that_all_files_have_by_its_name_is_not_left_out() -> None:
    kernel = ("\n\n\n@triton.jit\ndef steps_kernel(x):\n    return x", 1.0)
    lines, kept, _ = answer([(HEAD, 1.0), kernel, (CLASS, 1.0)], "\ndef exp(x):", copied=("exp",))
    assert kept == [HEAD]
    assert lines.wanted == "\n\n\n@triton.jit\ndef exp("
    own = ("\n\n\n@triton.jit\ndef exp(x):\n    return x", 1.0)
    _, kept, _ = answer([(HEAD, 1.0), own, kernel, (CLASS, 1.0)], "\ndef exp(x):", copied=("exp",))
    assert kept == [HEAD, own[0], kernel[0], CLASS]


def test_an_answer_that_stays_wrong_does_not_go_on_for_ever() -> None:
    sure = [(HEAD, 1.0), ("\nx = unknown", 1.0), ("\n", 1.0)]  # there is nothing else to draw
    lines, kept, went = answer([*sure, *[("y", 1.0)] * 500])
    assert not went
    assert kept[:3] == [text for text, _ in sure]
    assert not lines.lost
    lines, _, _ = answer([*sure, *[("y", 1.0)] * 600])
    assert lines.lost
