"""Constants: which are found, and that replacing them changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems.sizes import constants, has_layers, model_constants, with_constants

SOURCE = '''"""Größen — not only ASCII."""
import torch
N = 2048 * 2  # rows
a, b = 3, 5
height = width = 256
shape = (N, a, 224)
input_shape = (32768,)
layers = [64] * 3
nested = [(1, 2), (3, 4)]
flag = True
rate = 0.5
mode = "same"
typed: int = 7
minus = -4
half = N // 2

def get_inputs():
    x = torch.rand(N, 3, height, width, dtype=torch.float32)
    return [x, torch.randint(0, 10, (N, 1)), torch.rand(*shape).sum(dim=2)]

def get_init_inputs():
    return [128, [16, 32], {"heads": 8}]
'''


def found(source: str) -> dict[str, Any]:
    """The constants of a source."""
    return constants(Problem(name="p", source=source))


def run(source: str) -> dict[str, Any]:
    """The module-level names after running a source."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace


def test_what_counts_as_a_size() -> None:
    assert found(SOURCE) == {
        "N": 4096, "a": 3, "b": 5, "height": 256, "width": 256, "shape_dim2": 224, "input_shape": (32768,), "layers": [64, 64, 64],
        "nested": [(1, 2), (3, 4)], "typed": 7, "minus": -4, "get_inputs_0_dim0": 3, "get_inputs_1_dim0": 10,
        "get_init_inputs_0_dim0": 128, "get_init_inputs_0_dim1": 16, "get_init_inputs_0_dim2": 32, "get_init_inputs_0_dim3": 8,
    }  # fmt: skip


def test_replacing_changes_values_and_nothing_else() -> None:
    new = with_constants(SOURCE, {"N": 6, "b": 9, "height": 4, "shape_dim2": 7, "layers": [1, 2, 3], "rate": 0.25, "get_inputs_0_dim0": 2})
    names = run(new)
    assert (names["N"], names["a"], names["b"], names["half"], names["rate"]) == (6, 3, 9, 3, 0.25)
    assert (names["height"], names["width"]) == (4, 256)
    assert names["shape"] == (6, 3, 7)
    assert names["layers"] == [1, 2, 3]
    assert tuple(names["get_inputs"]()[0].shape) == (6, 2, 4, 256)
    assert len(new.splitlines()) == len(SOURCE.splitlines())
    assert "# rows" in new
    assert "Größen — not" in new


def test_a_chain_stays_a_chain_where_its_names_agree() -> None:
    assert "height = width = 8" in with_constants(SOURCE, {"height": 8, "width": 8})


def test_an_unknown_name_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(ProblemError, match=r"no module-level constant 'M'.*N, a, b"):
        with_constants(SOURCE, {"M": 3})


@given(st.dictionaries(st.sampled_from(["N", "a", "b", "height", "width", "typed", "minus"]), st.integers(1, 10**6)))
def test_overrides_read_back(overrides: dict[str, int]) -> None:
    assert {k: v for k, v in found(with_constants(SOURCE, overrides)).items() if k in overrides} == overrides


def test_which_constants_shape_the_model() -> None:
    source = "width = 4\nhidden = width * 2\nrows = 3\nclass Model: pass\n"
    source += "def get_inputs(): return [rows, width]\ndef get_init_inputs(): return [hidden]"
    assert {"width", "hidden"} <= model_constants(source)
    assert "rows" not in model_constants(source)
    reads = "    def forward(self, x, scale=spare):\n        rows, n = x.shape\n        global kept\n        kept = [deep for deep in x]\n"
    source = source.replace(": pass\n", f":\n{reads}") + "\nkept = deep = spare = 5"
    assert model_constants(source) & {"rows", "kept", "deep", "spare", "hidden"} == {"kept", "spare", "hidden"}


@pytest.mark.parametrize(
    ("source", "layers"),
    [
        ("class Model(nn.Module):\n    def forward(self, x):\n        return nn.functional.relu(x)", False),
        ("class Model(nn.Module):\n    def __init__(self):\n        self.fc = nn.Linear(3, 4)", True),
        ("class Model(nn.Module):\n    def __init__(self):\n        self.register_buffer('a', b)", True),
        ("class Model(", True),
    ],
)
def test_layers_are_told_without_running(source: str, layers: bool) -> None:
    assert has_layers(source) is layers
