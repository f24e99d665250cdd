"""Constructors that stay in a written file: it has every name that they read, and builds the same parameters."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge
from kernelllm.problems.instance import Instance

SEVERAL_BASES = """
class Named:
    title = "net"
class Model(Named, nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
    def forward(self, x): return torch.tanh(x) * self.width
"""
KEPT_BASE = """
class Base(nn.Module):
    def __init__(self, width):
        super(Base, self).__init__()
        self.width = width
class Model(Base):
    def forward(self, x): return torch.tanh(x) * self.width
"""
NAMED_BY_OTHERS = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, Model.wide(width))
    def forward(self, x): return self.fc(x)
class Model(nn.Module):
    @staticmethod
    def wide(width): return 2 * width
    def __init__(self, width):
        super().__init__()
        self.block = Block(width)
    def forward(self, x): return torch.tanh(self.block(x))
"""
OF_ITS_OWN_CLASS = """
class Tree(nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.inner = Tree(width, depth - 1) if depth else None
    def forward(self, x):
        x = torch.tanh(self.fc(x))
        return x if self.inner is None else self.inner(x)
Model = Tree
"""
ALL_NAMES = """
from torch.nn import *
from math import *
class Model(Module):
    def __init__(self, width) -> None:
        super().__init__()
        self.fc = Linear(width, int(sqrt(width)))
    def forward(self, x): return self.fc(x).tanh()
"""
INPUTS = """
def get_inputs(): return [torch.randn(12, 36)]
"""
WIDTH = """
def get_init_inputs(): return [36]
"""


@pytest.mark.parametrize("model", [SEVERAL_BASES, KEPT_BASE, NAMED_BY_OTHERS, OF_ITS_OWN_CLASS, ALL_NAMES])
def test_the_file_has_what_its_constructor_reads(model: str) -> None:
    one = problem(model + INPUTS + WIDTH)
    namespace: dict = {"__name__": "written"}
    exec(compiled(one, Options()).replace("@triton.jit", ""), namespace)
    mine, reference = namespace["ModelNew"](36), Instance(one).model(0)
    assert {n: t.shape for n, t in mine.state_dict().items()} == {n: t.shape for n, t in reference.state_dict().items()}


def test_windows_are_computed_in_kernels() -> None:
    """They depend on no input, and keep a length that varies."""
    windows = " * ".join(f"torch.{name}_window(x.shape[1])" for name in ("hann", "hamming", "blackman", "bartlett"))
    text = compiled(problem(f"class Model(nn.Module):\n    def forward(self, x): return x * {windows}\n{INPUTS}"), Options())
    assert "_window(" not in text
    assert "FIXED_SIZES" not in text


def test_grids_of_one_point() -> None:
    """A tensor whose values tracing knows may go through any operator."""
    forward = "y, z = torch.meshgrid(torch.linspace(0, 1, x.shape[2]), torch.linspace(0, 1, 1), indexing='ij'); return x + y + z"
    source = f"class Model(nn.Module):\n    def forward(self, x): {forward}\ndef get_inputs(): return [torch.randn(4, 3, 1, 1)]\n"
    assert "class ModelNew" in compiled(problem(source), Options())


READ = """
class Rotation(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rates = (100.0 ** (-torch.arange(width) / width)).tolist()
    def forward(self, steps): return steps[:, None] * torch.tensor(self.rates)
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc, self.rotation = nn.Linear(width, width), Rotation(width)
        RANDOM
    def forward(self, x): return self.fc(x) + self.rotation(torch.arange(x.shape[0], dtype=torch.float32)) * self.scale
rows, width = 12, 36
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width]
"""


def test_numbers_that_the_constructor_reads_off_tensors_fix_its_sizes_and_no_other() -> None:
    text = compiled(problem(READ.replace("RANDOM", "self.scale = 2.0")), Options())
    assert "0.8799" in text  # 100 ** (-1 / 36)
    assert 'check("x", x, DTYPES, (None, 36))' in text


def test_numbers_that_the_constructor_draws_are_refused() -> None:
    with pytest.raises(CaptureError, match="the constructor draws scale at random"):
        compiled(problem(READ.replace("RANDOM", "self.scale = torch.rand(3).tolist()[0]")), Options())


NUMBERED = """
class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        for i in range(2):
            self.add_module(str(i), nn.Linear(width, width))
    def forward(self, x): return getattr(self, "0")(x) * torch.sigmoid(getattr(self, "1")(x))
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = nn.ModuleDict({str(i): nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for i in (1, 3)})
        self.scales = nn.ParameterDict({"7": nn.Parameter(torch.rand(width))})
        self.gate = Gate(width)
    def forward(self, x):
        for i in (1, 3):
            x = torch.relu(self.heads[str(i)](x)) * self.scales["7"]
        return self.gate(x)
batch, width = 24, 40
def get_inputs(): return [torch.randn(batch, width)]
def get_init_inputs(): return [width]
"""


@pytest.mark.parametrize("options", [Options(), Options(fixed=True, mixed=True)], ids=["kernels", "mixed"])
def test_layers_named_by_numbers_that_are_no_index(hybrid: Judge, options: Options) -> None:
    verdict = hybrid.judge(problem(NUMBERED), Candidate(source=compiled(problem(NUMBERED), options)))
    assert verdict.correct, verdict.message


GATHERED = """
class Settings:
    def __init__(self, width, hidden, groups=2):
        self.width, self.hidden, self.groups = width, hidden, groups
class Model(nn.Module):
    def __init__(self, *args, **more):
        super().__init__()
        self.settings = Settings(*args, **more)
        self.up = nn.Linear(self.settings.width, self.settings.hidden)
    def forward(self, x):
        return torch.tanh(self.up(x)).view(x.shape[0], self.settings.groups, -1).softmax(-1)
def get_inputs(): return [torch.randn(32, 48)]
def get_init_inputs(): return [48, 96]
"""


def test_gathered_arguments_lead_to_the_path_for_known_sizes(hybrid: Judge) -> None:
    text = compiled(problem(GATHERED), Options(fixed=True, mixed=True))
    assert "self.has_known_sizes = args == (48, 96)" in text
    verdict = hybrid.judge(problem(GATHERED), Candidate(source=text))
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


@pytest.mark.parametrize("change", ["sizes = torch.tensor(sizes)", "sizes.append(0)"])
def test_sizes_that_the_constructor_changes_are_compared_before(change: str) -> None:
    text = f"""
class Model(nn.Module):
    def __init__(self, width, sizes):
        super().__init__()
        self.up = nn.Linear(width, sizes[0])
        {change}
    def forward(self, x):
        return torch.tanh(self.up(x))
def get_inputs(): return [torch.randn(32, 48)]
def get_init_inputs(): return [48, [96, 5]]
"""
    source = compiled(problem(text), Options(fixed=True, mixed=True))
    assert source.index("self.has_known_sizes = ") < source.index(change)


KEYWORDS = """
class Model(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.settings = settings
        self.up = nn.Linear(settings["width"], settings["hidden"])
    def forward(self, x):
        return torch.tanh(self.up(x)) * self.settings["gain"]
def get_inputs(): return [torch.randn(32, 48)]
def get_init_inputs(): return [[], {"width": 48, "hidden": 96, "gain": 1.5}]
"""


def test_gathered_settings_that_kernels_hold_are_checked(tmp_path: Path) -> None:
    (tmp_path / "written.py").write_text(compiled(problem(KEYWORDS), Options()))
    made = runpy.run_path(str(tmp_path / "written.py"))["ModelNew"]
    made(width=48, hidden=96, gain=1.5)
    with pytest.raises(ValueError, match="gain"):
        made(width=48, hidden=96, gain=2.5)


CONFIGURED = """
class Settings:
    def __init__(self, width=48, hidden=96, gain=1.5, name="block"):
        self.width, self.hidden, self.gain, self.name = width, hidden, gain, name
class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.up, self.gain = nn.Linear(settings.width, settings.hidden), settings.gain
    def forward(self, x):
        return torch.tanh(self.up(x)) * self.gain
rows = 32
def get_inputs(): return [torch.randn(rows, 48)]
def get_init_inputs(): return [Settings()]
"""


def test_of_a_configuration_what_is_read_is_checked(hybrid: Judge, tmp_path: Path) -> None:
    text = compiled(problem(CONFIGURED), Options(fixed=True, mixed=True))
    assert "def forward_at_known_sizes(" in text
    verdict = hybrid.judge(problem(CONFIGURED), Candidate(source=text))
    assert verdict.correct, verdict.message
    (tmp_path / "written.py").write_text(text)
    made = runpy.run_path(str(tmp_path / "written.py"))["ModelNew"]
    made(SimpleNamespace(width=48, hidden=96, gain=1.5, name="another"))
    with pytest.raises(ValueError, match="gain"):
        made(SimpleNamespace(width=48, hidden=96, gain=2.5))
