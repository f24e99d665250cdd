"""A problem made real: seeds, arguments, prints, namespaces."""

from __future__ import annotations

import gc
import inspect
import random
import sys
import threading

import numpy
import pytest
import torch

from kernelllm.core.quiet import results_only
from kernelllm.core.types import Problem
from kernelllm.problems.instance import Instance
from kernelllm.problems.seeds import seed_all

SOURCE = """
import torch
import torch.nn as nn
from dataclasses import dataclass

print("loaded")
rows, width = 4, 8
bias = 0.5

@dataclass
class Options:
    size: int = width

class Model(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        print("built")
        self.options = Options(width)
        self.layer = nn.Linear(width, width)
        self.scale = scale
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.layer(x) * self.scale + bias

def get_inputs():
    print("drawn")
    return [torch.rand(rows, width)]

def get_init_inputs():
    return {INIT}

if __name__ == "__main__":
    raise SystemExit("ran as a script")
"""


def problem(init: str = "[width]", **changes: str) -> Problem:
    """The source above with another get_init_inputs."""
    source = SOURCE.replace("{INIT}", init)
    for old, new in changes.items():
        source = source.replace(old, new)
    return Problem(name="p", source=source)


def test_the_same_seed_gives_the_same_model_and_inputs() -> None:
    a, b = Instance(problem()), Instance(problem())
    assert all(torch.equal(x, y) for x, y in zip(a.model(3).state_dict().values(), b.model(3).state_dict().values(), strict=True))
    assert torch.equal(a.inputs(5)[0], b.inputs(5)[0])
    assert not torch.equal(a.inputs(5)[0], a.inputs(6)[0])
    assert a.model(0).training  # as KernelBench builds it


@pytest.mark.parametrize(
    ("init", "scale"),
    [("[width]", 1.0), ("(width, 2.0)", 2.0), ("[[width], {'scale': 3.0}]", 3.0), ("{'width': width, 'scale': 4.0}", 4.0), ("width", 1.0)],
)
def test_init_inputs_in_all_the_forms_that_files_use(init: str, scale: float) -> None:
    assert Instance(problem(init)).model(0).scale == scale


def test_constants_are_replaced_and_what_depends_on_them_follows() -> None:
    instance = Instance(problem(), {"rows": 3, "width": 5, "bias": -1.0})
    assert tuple(instance.inputs(0)[0].shape) == (3, 5)
    model = instance.model(0)
    assert model.options.size == 5
    assert torch.equal(model(torch.zeros(5)), model.layer.bias - 1)


def test_prints_are_no_results_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with results_only():
        instance = Instance(problem())
        instance.model(0)
        instance.inputs(0)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.split() == ["loaded", "built", "drawn"]


def test_a_problem_finds_the_streams_that_the_process_has() -> None:
    """A judge in a thread of a trainer, of pytest or of a notebook replaces nothing that belongs to the whole process."""
    instance = Instance(problem(**{'print("drawn")': "import sys; global seen; seen = sys.stdout, sys.stderr"}))
    instance.inputs(0)
    assert instance.namespace["seen"] == (sys.stdout, sys.stderr)


DRAWN = """
import random
import numpy
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    rows = [torch.rand(4) + random.random() + float(numpy.random.rand()) for _ in range(64)]
    return [torch.stack(rows)]
"""


def test_judges_in_threads_draw_what_one_alone_draws() -> None:
    """Generators belong to the whole process: without taking turns, each thread would draw some numbers of the other's seed."""
    expected = {seed: Instance(Problem(name="d", source=DRAWN)).inputs(seed)[0] for seed in range(4)}
    wrong: list[int] = []

    def draw(seed: int) -> None:
        instance = Instance(Problem(name="d", source=DRAWN))
        for _ in range(10):
            if not torch.equal(instance.inputs(seed)[0], expected[seed]):
                wrong.append(seed)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=draw, args=(seed,)) for seed in expected]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


def test_drawing_leaves_the_random_numbers_of_the_caller_alone() -> None:
    def numbers() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), float(torch.rand(1))

    seed_all(7)
    expected = numbers()
    seed_all(7)
    instance = Instance(problem())
    instance.model(0)
    instance.inputs(0)
    assert numbers() == expected


def test_source_can_be_inspected_and_nothing_stays_in_sys_modules() -> None:
    instance = Instance(problem())
    model = instance.model(0)
    assert "def forward" in inspect.getsource(type(model))
    name = type(model).__module__
    assert name in sys.modules
    del instance
    gc.collect()
    assert name not in sys.modules
    assert model(torch.zeros(8)).shape == (8,)  # what was built goes on working


def test_non_tensor_inputs_pass_through() -> None:
    instance = Instance(problem(**{"[torch.rand(rows, width)]": "[torch.rand(rows, width), 3, (1, torch.ones(2)), None]"}))
    _, number, pair, nothing = instance.inputs(0)
    assert number == 3
    assert nothing is None
    assert torch.equal(pair[1], torch.ones(2))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_inputs_are_drawn_on_the_gpu() -> None:
    instance = Instance(problem())
    assert instance.inputs(0, "cuda")[0].is_cuda
    assert all(p.is_cuda for p in instance.model(0, "cuda").parameters())


TAKES_GRADIENTS = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(torch.tanh(self.layer(x)).sum(), [x, self.layer.weight])

def get_inputs(): return [torch.randn(4, 8)]
"""


def test_a_forward_that_takes_gradients_runs_where_none_are_recorded_and_keeps_its_line_numbers() -> None:
    made = Instance(Problem(name="p", source=TAKES_GRADIENTS))
    model, inputs = made.model(0), made.inputs(0)
    with torch.no_grad():
        to_input, to_weight = model(*inputs)
    slope = 1 - torch.tanh(model.layer(inputs[0])) ** 2
    torch.testing.assert_close(to_input, slope @ model.layer.weight)
    torch.testing.assert_close(to_weight, slope.t() @ inputs[0])
    assert len(made.source.splitlines()) == len(TAKES_GRADIENTS.splitlines())
