"""Answers as models write them: what is usable is taken exactly, what is not has its reason."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelllm.lm.parse import clean, parse

ANSWERS = Path(__file__).parent / "answers"
CASES = json.loads((ANSWERS / "cases.json").read_text())


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.md").read_bytes().decode()


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len(CASES) >= 60
    assert sum("reason" in c for c in CASES.values()) >= 15
    assert sorted(CASES) == sorted(p.stem for p in ANSWERS.glob("*.md"))


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if "reason" not in c])
def test_usable_answers_are_taken_exactly(name: str) -> None:
    found = parse(answer(name), cut=CASES[name]["cut"])
    assert found.reason == ""
    assert found.source == (ANSWERS / f"{name}.txt").read_bytes().decode()
    assert list(found.mended) == CASES[name]["mended"]
    ast.parse(found.source)


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if "reason" in c])
def test_unusable_answers_say_why(name: str) -> None:
    found = parse(answer(name), cut=CASES[name]["cut"])
    assert found.source == ""
    assert not found.usable
    assert CASES[name]["reason"] in found.reason
    assert found.reason.endswith(".")


def test_thinking_is_kept_apart() -> None:
    found = parse("<think>Blocks of 1024.</think>\n" + answer("01-fence-only"))
    assert found.thinking == "Blocks of 1024."
    assert "Blocks of 1024" not in found.source


def test_a_cut_answer_says_so() -> None:
    assert "cut off" in parse("```python\nimport torch\ndef f(", cut=True).reason
    assert parse("def", cut=True).reason.startswith("The answer was cut off at the token limit.")


@given(st.text(max_size=400))
def test_no_text_is_an_error(text: str) -> None:
    found = parse(text)
    assert bool(found.source) != bool(found.reason)
    clean(text)


@given(st.sampled_from(sorted(CASES)), st.integers(0, 2000))
def test_no_truncation_is_an_error(name: str, length: int) -> None:
    found = parse(answer(name)[:length], cut=True)
    assert bool(found.source) != bool(found.reason)
    if found.usable:
        assert "ModelNew" in found.source
        ast.parse(found.source)


def test_clean_shows_the_code_of_an_unusable_answer() -> None:
    assert clean("Well:\n```python\nx = 1\n```\nDone.") == "x = 1"
    assert clean("no code") == "no code"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "import torch\nx = " + "-" * 5000 + "1\n",
        "import torch\nx = " + "+".join(["1"] * 20000) + "\n",
        "```python\nimport torch\nx = " + "[" * 3000 + "]" * 3000 + "\nclass ModelNew(nn.Module): pass\n```",
        "{" * 3000 + "}" * 3000,
        "```python\nx = 1\n" * 500,
        "def f(x)\n" * 500,
        "<think>" * 500,
        "import torch\x00\n",
        "\ud800 import torch",
    ],
    ids=range(10),
)
def test_a_model_that_goes_astray_is_no_error(text: str) -> None:
    found = parse(text, cut=True)
    assert found.usable or found.reason.endswith(".")
