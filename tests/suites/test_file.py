"""Opening a file as a problem: what works, and what a person is told when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelllm.core.errors import KernelLLMError, ProblemError, UsageError
from kernelllm.problems.instance import Instance
from kernelllm.suites.file import open_problem

GOOD = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return []
"""

LAYERS = """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, width, factor=2.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width) * factor)

    def forward(self, x, shift=None, power=1):
        y = x * self.weight
        return y if shift is None else y + shift ** power

def draw():
    return torch.rand(3, 6), torch.rand(6)

def draw_named():
    return {"power": 2, "x": torch.rand(3, 6), "shift": torch.full((6,), 3.0)}

def draw_one():
    return torch.rand(3, 6)
"""


def put(folder: Path, text: str | bytes, name: str = "problem.py") -> str:
    """A file in the folder; its path."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_a_kernelbench_file_is_taken_as_it_is(tmp_path: Path) -> None:
    problem = open_problem(put(tmp_path, GOOD, "my problem 1.py"))
    assert problem.name == "my_problem_1"
    assert problem.source == GOOD
    assert torch.equal(Instance(problem).model(0)(torch.ones(2)), torch.full((2,), 2.0))


def test_a_byte_order_mark_is_no_part_of_the_source(tmp_path: Path) -> None:
    assert open_problem(put(tmp_path, b"\xef\xbb\xbf" + GOOD.encode())).source == GOOD


@pytest.mark.parametrize(
    ("shapes", "dtype", "init", "expected"),
    [
        (["3,6"], "float32", "6", [((3, 6), torch.float32)]),
        (["3,6", "6:float64"], "float32", "6, factor=3.0", [((3, 6), torch.float32), ((6,), torch.float64)]),
        (["(3, 6)"], "bfloat16", "width=6", [((3, 6), torch.bfloat16)]),
        (["3x6:int64"], "float32", "6", [((3, 6), torch.int64)]),
        (["3,6:int32:5"], "float32", "6", [((3, 6), torch.int32)]),
        (["2,6:bool"], "float32", "6", [((2, 6), torch.bool)]),
    ],
)
def test_a_class_with_shapes(tmp_path: Path, shapes: list[str], dtype: str, init: str, expected: list[object]) -> None:
    problem = open_problem(put(tmp_path, LAYERS) + ":Scale", shapes=shapes, dtype=dtype, init=init)
    instance = Instance(problem)
    inputs = instance.inputs(0)
    assert [(tuple(x.shape), x.dtype) for x in inputs] == expected
    assert instance.model(0)(*inputs).shape[-1] == 6


def test_named_inputs_come_in_the_order_of_forward(tmp_path: Path) -> None:
    path = put(tmp_path, LAYERS) + ":Scale"
    instance = Instance(open_problem(path, inputs="draw_named", init="6, factor=1.0"))
    x, shift, power = instance.inputs(0)
    assert power == 2
    assert torch.equal(instance.model(0)(x, shift, power), x + 9)
    assert len(Instance(open_problem(path, inputs="draw", init="6")).inputs(0)) == 2
    assert len(Instance(open_problem(path, inputs="draw_one", init="6")).inputs(0)) == 1


def test_modules_next_to_the_file_can_be_imported_and_do_not_stay(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper_of_the_problem.py").write_text(f"VALUE = {value}\n")
        put(tmp_path / name, "from helper_of_the_problem import VALUE\n" + GOOD.replace("x + 1", "x + VALUE"))
    results = [Instance(open_problem(str(tmp_path / name / "problem.py"))).model(0)(torch.zeros(1)).item() for name in ("a", "b")]
    assert results == [1.0, 2.0]


def test_relative_imports_of_a_package_work(tmp_path: Path) -> None:
    package = tmp_path / "pkg_of_layers" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text("from ..base import one\n")
    (package.parent / "base.py").write_text("def one(x):\n    return x + 1\n")
    text = "from .ops import one\n" + GOOD.replace("return x + 1", "return one(x)")
    instance = Instance(open_problem(put(package, text)))
    assert instance.model(0)(torch.zeros(1)).item() == 1.0


def fails(error: type[KernelLLMError], spec: str, *words: str, **options: object) -> None:
    """That opening and running it raises this error, whose one paragraph holds these words and no traceback."""
    def run() -> None:
        instance = Instance(open_problem(spec, **options))  # type: ignore[arg-type]
        instance.model(0)
        instance.inputs(0)

    with pytest.raises(error) as caught:
        run()
    text = str(caught.value)
    assert "\n" not in text.strip()
    assert caught.value.exit_code == 2
    for word in words:
        assert word in text


def test_wrong_paths(tmp_path: Path) -> None:
    put(tmp_path, GOOD)
    fails(UsageError, str(tmp_path / "problen.py"), "There is no file", "Did you mean", "problem.py")
    fails(UsageError, str(tmp_path / "nowhere" / "x.py"), "no file", "folder")
    fails(UsageError, str(tmp_path), "is a folder", f"folder/{tmp_path}")
    fails(UsageError, "", "empty")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["empty"]),
        (b"   \n\n", ["empty"]),
        (b"\xff\xfe\x00\x01", ["UTF-8"]),
        ("def f(:\n", ["not valid Python", "line 1"]),
        ("x = 1\n", ["no class Model"]),
        ("import torch\nclass Net(torch.nn.Module):\n    pass\n", ["no class Model", ":Net"]),
        ("class Model:\n    pass\n", ["no get_inputs"]),
        (GOOD.replace("return [torch.rand(4, 8)]", "raise ValueError('no data here')"), ["get_inputs()", "line 10", "no data here"]),
        (GOOD.replace("return [torch.rand(4, 8)]", "return 7"), ["returned int"]),
        (GOOD.replace("return [torch.rand(4, 8)]", "return None"), ["returned NoneType"]),
        (GOOD.replace("return []", "return [1, 2]"), ["Model(...)", "TypeError"]),
        (GOOD.replace("(nn.Module)", ""), ["no torch.nn.Module"]),
        ("raise RuntimeError('broken file')\n" + GOOD, ["the file", "line 1", "broken file"]),
        ("import a_package_that_is_not_there\n" + GOOD, ["ModuleNotFoundError", "Install"]),
        ("import sys; sys.exit(3)\n" + GOOD, ["SystemExit"]),
    ],
)
def test_files_that_are_no_problems(tmp_path: Path, text: str | bytes, words: list[str]) -> None:
    fails(ProblemError, put(tmp_path, text), *words)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
@pytest.mark.parametrize("call", ["torch.rand(4).cuda()", "torch.rand(4, device='cuda')"])
def test_a_problem_that_asks_for_a_gpu(tmp_path: Path, call: str) -> None:
    fails(ProblemError, put(tmp_path, GOOD.replace("torch.rand(4, 8)", call)), "asks for a GPU", "Remove .cuda()")


def test_wrong_use_of_a_class(tmp_path: Path) -> None:
    path = put(tmp_path, LAYERS)
    fails(UsageError, path + ":Scaled", "no class Scaled", "Did you mean Scale", shapes=["3,6"])
    fails(UsageError, path + ":Scale", "--shape")
    fails(UsageError, path + ":Scale", "exclude", shapes=["3,6"], inputs="draw")
    fails(UsageError, path + ":Scale", "no drow", "draw", inputs="drow")
    for shape in ("3,a", "3,x", "3,,6", ",6", "3 6"):
        fails(UsageError, path + ":Scale", "whole numbers", shapes=[shape])
    fails(UsageError, path + ":Scale", "dimension of 0", shapes=["3,0"])
    fails(UsageError, path + ":Scale", "no bound", shapes=["3,6:float32:5"])
    fails(UsageError, path + ":Scale", "float23", "float32", shapes=["3,6"], dtype="float23")
    fails(UsageError, path + ":Scale", "literals", shapes=["3,6"], init="os.getcwd()")
    fails(UsageError, path, "none was named", shapes=["3,6"])
    fails(UsageError, put(tmp_path, GOOD) + ":not-a-name", "not a class name")


def test_a_class_beside_a_model_of_that_name(tmp_path: Path) -> None:
    whole = "\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.scale = Scale(6)\n"
    path = put(tmp_path, LAYERS + whole)
    assert type(Instance(open_problem(path + ":Scale", shapes=["3,6"], init="6")).model(0)).__name__ == "Scale"
    path = put(tmp_path, LAYERS + whole + "\ndef made():\n    return Model()\n")
    with pytest.raises(ProblemError, match="uses a class Model beside Scale"):
        open_problem(path + ":Scale", shapes=["3,6"], init="6")
