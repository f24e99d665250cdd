"""A module as a small model reads it: one text for all layouts of one module; a kernel's file stays the same program."""

from __future__ import annotations

from kernelllm.lm.plain_module import plain_kernel, plain_module

ONE = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """Words."""
    def __init__(self, size: int, stride: int = 1):
        super(Model, self).__init__()
        self.pool = nn.MaxPool1d(size, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Words."""
        return torch.nn.functional.relu(self.pool(x))  # words

batch = 128 * 2
shape = (3, 64)
size = 4

def get_inputs():
    x = torch.rand(batch, *shape)
    return [x]

def get_init_inputs():
    return [size]
'''
OTHER = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, size, stride=1):
        super().__init__()
        self.pool = nn.MaxPool1d(size, stride)

    def forward(self, x):
        return F.relu(self.pool(x))


def get_inputs():
    return [torch.rand(256, 3, 64)]


def get_init_inputs():
    return [4]
"""
PLAIN = """class Model(nn.Module):
    def __init__(self, size, stride=1):
        super().__init__()
        self.pool = nn.MaxPool1d(size, stride)
    def forward(self, x):
        return F.relu(self.pool(x))
Model(size=4, stride=1)
forward(x=torch.rand(256, 3, 64))"""


def test_layouts_of_one_module_are_one_text() -> None:
    assert plain_module(ONE) == plain_module(OTHER) == PLAIN


def test_what_the_module_reads_stays_and_another_form_stays_as_it_is() -> None:
    told = plain_module(ONE.replace("relu(self.pool(x))", "relu(self.pool(x)) * batch"))
    assert told == f"batch = 256\n{PLAIN}".replace("F.relu(self.pool(x))", "F.relu(self.pool(x)) * batch")
    assert "def get_inputs" in plain_module(ONE.replace("    return [x]", "    return make(x)"))
    assert plain_module("no python (") == "no python ("


def test_a_module_without_a_constructor_gets_an_empty_one() -> None:
    forward = "class Model(nn.Module):\n    def forward(self, x):\n        return x\n"
    bare = f"import torch\nimport torch.nn as nn\n{forward}def get_inputs():\n    return [torch.rand(2)]\n"
    assert "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n    def forward" in plain_module(bare)
    assert "def __init__" not in plain_module(bare.replace("nn.Module)", "Base)"))


def test_a_kernel_in_one_way_of_writing() -> None:
    text = plain_kernel(
        '"""Words."""\nimport torch\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self, a: int):\n'
        "        super(ModelNew, self).__init__()\n\n"
        "    def forward(self, x: torch.Tensor):\n        return launch(  # words\n            x\n        )\n"
    )
    assert text == (
        "import torch\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    def __init__(self, a):\n        super().__init__()\n"
        "    def forward(self, x):\n        return launch(x)\n"
    )
    assert plain_kernel(text) == text


def test_constants_of_one_line_are_told_each() -> None:
    several = ONE.replace("batch = 128 * 2\nshape = (3, 64)", "batch = other = 256\na, b = 3, 64").replace("*shape", "a, b")
    assert plain_module(several) == plain_module(ONE)


def test_imports_of_several_modules_and_those_for_annotations_are_not_told() -> None:
    lines = "import torch, torch.nn as nn, torch.nn.functional as F\nimport math, numpy as np\nfrom typing import Optional\n"
    rest = "class Model(nn.Module):\n    def forward(self, x: Optional[torch.Tensor]): return F.relu(x) * math.pi\n"
    told = plain_module(f"{lines}{rest}def get_inputs(): return [torch.rand(3)]\n")
    assert told.splitlines()[:2] == ["import math", "class Model(nn.Module):"]
