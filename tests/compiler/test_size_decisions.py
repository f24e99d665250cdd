"""Files of forwards that decide by sizes compute what the module does at other sizes and in other layouts, or refuse them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import interpreted
import pytest
from compiled import problem
from size_decisions import GRADIENTS, OTHERS, TELLING, source
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kernelllm.compiler.capture.capture import capture
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

pytestmark = pytest.mark.filterwarnings("ignore")
FIXED = Options(fixed=True, mixed=True)
RUN = """
import json, sys, torch, warnings
from pathlib import Path
from typing import Any
from torch.utils import _pytree as pytree
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.worker import setup

warnings.simplefilter("ignore")
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
SIZES = [
    ((3, 24, 16), (8, 4)), ((3, 24, 16), (9, 3)), ((3, 24, 16), (16, 4)), ((2, 24, 16), (8, 4)), ((3, 16, 24), (8, 4)),
    ((3, 25, 16), (8, 4)), ((5, 50, 8), (8, 4)), ((3, 33, 40), (8, 2)), ((4, 12, 48), (16, 4)), ((2, 8, 32), (4, 4)),
    ((3, 64, 12), (12, 3)), ((1, 24, 16), (8, 4)), ((7, 7, 7), (7, 7)), ((3, 200, 5), (5, 5)),
]

def loaded(path):
    namespace = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace

def outcome(model, sizes, x):
    try:
        result = model(*sizes)(x.requires_grad_(sys.argv[2] == "gradients"))
        if sys.argv[2] != "gradients":
            return result
        weights = torch.linspace(0.5, 1.5, result.numel()).view(result.shape)
        return result.detach(), *torch.autograd.grad((result * weights).sum(), x)
    except Exception as error:
        return error

def alike(one, other):
    (ours, mine), (theirs, its) = pytree.tree_flatten(one), pytree.tree_flatten(other)
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs):
        if torch.is_tensor(a) and torch.is_tensor(b):
            wide = (a, b) if a.is_complex() else (a.double(), b.double())
            if a.shape != b.shape or a.dtype != b.dtype or not torch.allclose(*wide, rtol=1e-3, atol=1e-4, equal_nan=True):
                return False
        elif torch.is_tensor(a) or torch.is_tensor(b) or (a != b and not (isinstance(a, float) and abs(a - b) < 1e-6)):
            return False
    return True

wrong, folder = [], Path(sys.argv[1])
for path in sorted(folder.glob("*_problem.py")):
    model, new = loaded(path)["Model"], loaded(path.with_name(path.name.replace("problem", "new")))["ModelNew"]
    for at, (shape, sizes) in enumerate(SIZES[:6] if sys.argv[2] else SIZES):
        torch.manual_seed(0)
        for x in (torch.randn(shape), torch.randn(shape[0], shape[2] + 1, shape[1]).mT[..., 1:]):
            x = x.detach()
            right, ours = outcome(model, sizes, x), outcome(new, sizes, x)
            if isinstance(right, Exception):
                continue
            refused = isinstance(ours, ValueError) and at > 0
            if not refused and (isinstance(ours, Exception) or not alike(right, ours)):
                wrong.append(f"{path.stem} {shape} {sizes} {x.is_contiguous()}: {ours if isinstance(ours, Exception) else 'differs'}")
print(json.dumps(wrong))
"""


def wrong(folder: Path, forwards: list[tuple[str, str]], options: Options) -> list[str]:
    """Where files that are no refusal differ from the module: the forward's place in the list, sizes, whether x is contiguous."""
    for at, pair in enumerate(forwards):
        text = source(*pair)
        (folder / f"{at}_problem.py").write_text(text)
        (folder / f"{at}_new.py").write_text(compiled(Problem(name="decides", source=text), options))
    found: list[str] = json.loads(interpreted.run(RUN, str(folder), "gradients" if options.backward else "", timeout_s=600))
    return found


@pytest.mark.parametrize("options", [Options(), FIXED], ids=["general", "known"])
def test_right_or_refused(tmp_path: Path, options: Options) -> None:
    assert wrong(tmp_path, TELLING, options) == []


def test_gradients_are_right(tmp_path: Path) -> None:
    assert wrong(tmp_path, GRADIENTS, Options(backward=True)) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [Options(), FIXED], ids=["general", "known"])
def test_many_more_are_right_or_refused(tmp_path: Path, options: Options) -> None:
    assert wrong(tmp_path, OTHERS, options) == []


HALVES = """
class Model(nn.Module):
    def forward(self, x):
        n, h = x.shape[-1], 1
        while h < n:
            x = x.view(-1, n // (2 * h), 2, h)
            x = torch.stack([x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]], 2).view(-1, n)
            h *= 2
        return x
rows, width = 12, 8
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return []
"""


def test_a_size_found_divisible_is_looked_up_only_where_its_quotient_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, calls = ShapeEnv.simplify, 0

    def counted(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return plain(self, *args, **kwargs)

    vars(counted).update(vars(plain))
    monkeypatch.setattr(ShapeEnv, "simplify", counted)
    capture(problem(HALVES), Options())
    assert calls < 1000
