"""The constructor of an answer is the module's own."""

from __future__ import annotations

from typing import Any

from kernelllm.models.constrained.copied_constructor import differs, with_constructor_of
from kernelllm.models.language_model import COPY_ERROR, Completion, Message, SamplingParams
from kernelllm.models.mini import Mini

PROMPT = """<|module|>
class Model(nn.Module):
    def __init__(self, width, stride=2, bias=False):
        super().__init__()
        self.layer = nn.Conv1d(width, 4, 3, stride=stride, bias=bias)
    def forward(self, signal):
        return self.layer(signal)
Model(width=8, stride=2, bias=False)
forward(signal=torch.rand(2, 8, 16))
<|kernel|>
"""
HEAD = "import torch\n\n\ndef conv(x, w):\n    return x\n\n\n"
ANSWER = HEAD + """class ModelNew(nn.Module):
    def __init__(self, width, stride=1, bias=True, bias=True):
        if stride != 3 or groups != 1:
            raise ValueError(f'the kernels were written for stride=3, groups=1; got {stride!r}, {groups!r}')
        super().__init__()
        self.conv = nn.Conv1d(width, 5, 3, stride=stride)
    def forward(self, signal):
        return conv(signal, self.conv.weight)
"""


def test_signature_layers_and_values_are_the_modules() -> None:
    made = with_constructor_of(PROMPT, ANSWER.replace(", bias=True, bias=True", ", bias=True"))
    assert made == HEAD + """class ModelNew(nn.Module):
    def __init__(self, width, stride=2, bias=False):
        if stride != 2:
            raise ValueError(f'the kernels were written for stride=2; got {stride!r}')
        super().__init__()
        self.layer = nn.Conv1d(width, 4, 3, stride=stride, bias=bias)
    def forward(self, signal):
        return conv(signal, self.layer.weight)
"""
    assert with_constructor_of(PROMPT, made) == made
    assert differs(ANSWER, made)
    assert not differs(made.replace("    def forward", "\n    def forward"), made)


def test_layers_are_told_by_what_makes_them() -> None:
    asked = PROMPT.replace("        self.layer =", "        self.width = width\n        self.layer =")
    made = with_constructor_of(asked, ANSWER.replace(", bias=True, bias=True", ""))
    assert "self.layer.weight" in made
    assert "self.width = width" in made


def test_what_has_another_form_stays() -> None:
    for answer in ("", "no code", ANSWER + "\nx = 1\n", ANSWER.replace("(self, signal):", "(self, signal")):
        assert with_constructor_of(PROMPT, answer) == answer
    assert with_constructor_of("Write a kernel.", ANSWER) == ANSWER


class Drawn(Mini):
    """Its weights have drawn ANSWER."""

    def encode(self, messages: Any) -> list[int]:
        return [1]

    def _weights(self) -> Any:
        return None

    def _drawn(self, *_: Any) -> list[Completion]:
        return [Completion(text=ANSWER.replace(", bias=True, bias=True", ", bias=True"))]


def test_answers_are_left_as_drawn_where_that_is_asked_for() -> None:
    def answer(**options: bool) -> Completion:
        (one,) = Drawn(batch=1, **options).sample([Message("text", PROMPT)], SamplingParams())
        return one

    assert "stride=2, bias=False" in answer().text
    assert "stride=2, bias=False" in answer(valid_python=False).text
    assert answer().mended == (COPY_ERROR,)
    assert "stride=1, bias=True" in answer(copy_constructor=False).text
    assert answer(copy_constructor=False).mended == ()
