"""A written file refuses what it was not written for: each call raises one clear error, and none is silently wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import interpreted
import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

pytestmark = pytest.mark.filterwarnings("ignore")

LAYER = """
import torch, torch.nn as nn
width, rows = 48, 33
class Model(nn.Module):
    def __init__(self, width, groups=8):
        super().__init__()
        self.norm, self.groups = nn.LayerNorm(width), groups
    def forward(self, x, bias=None, scale=1.0):
        y = self.norm(x).view(x.shape[0], self.groups, -1)
        y = y.amax(-1) * scale
        return y if bias is None else y + bias
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width]
"""
BATCH_NORM = """
import types, torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(features), nn.Dropout(0.0)
        self.config, self.steps, self.table = types.SimpleNamespace(scale=2.0, name="a"), [1.0, 3.0], {"a": [0.5]}
    def forward(self, x):
        x = self.drop(torch.relu(self.norm(x))) * self.config.scale + self.table["a"][0]
        for step in self.steps: x = x * step
        return x
features, rows = 20, 33
def get_inputs(): return [torch.randn(rows, features)]
def get_init_inputs(): return [features]
"""
PAIR = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, others, power, mode): return {"sum": x + others[0] * others[1], "power": x ** power}
rows, features = 33, 20
def get_inputs(): return [torch.randn(rows, features), [torch.randn(rows, features), torch.randn(features)], 3, "fast"]
"""
LAYOUTS = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, y): return torch.tanh(x) * y
rows = 6
def get_inputs(): return [torch.randn(rows, 8, 2, 16).transpose(1, 2), torch.randn(rows, 2, 8, 24)[..., 4:20]]
"""
CACHE = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, cache, x, place):
        cache.index_copy_(1, place, x)
        return cache * 2
rows = 6
def get_inputs(): return [torch.randn(rows, 8, 16), torch.randn(rows, 1, 16), torch.tensor([3])]
"""
PRODUCT = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, 8)
    def forward(self, x): return torch.relu(self.project(x))
width, rows = 16, 33
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width]
"""
RUN = """
import json, sys, torch
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.worker import setup
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
namespace = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), namespace)
ModelNew, found = namespace["ModelNew"], []
for text in json.loads(sys.argv[2]):
    try:
        exec(text)
        found.append("")
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    text, options = request.param
    path: Path = tmp_path_factory.mktemp("written") / "candidate.py"
    path.write_text(compiled(Problem(name="guarded", source=text), Options(**options)), encoding="utf-8")
    return path


def outcomes(file: Path, *calls: str) -> list[str]:
    """The error of each piece of code that uses ``ModelNew``, in Triton's interpreter; empty where it runs."""
    found: list[str] = json.loads(interpreted.run(RUN, str(file), json.dumps(calls)))
    return found


def written(text: str, **options: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", [(text, options)], indirect=True)


@written(LAYER)
def test_sizes_dtype_and_arguments(file: Path) -> None:
    fine = "ModelNew(48)(torch.randn(5, 48)); ModelNew(64, groups=8)(torch.randn(7, 64), bias=None)"
    ran, *errors = outcomes(
        file, fine, "ModelNew(64, groups=4)", "ModelNew(48)(torch.randn(5, 64))", "ModelNew(48)(torch.randn(2, 5, 48))",
        "ModelNew(48)(torch.randn(5, 48).half())", "ModelNew(48).double()(torch.randn(5, 48).double())",
        "ModelNew(48).half()(torch.randn(5, 48))",
        "ModelNew(48)(torch.randn(5, 48), bias=torch.ones(8))", "ModelNew(48)(torch.randn(5, 48), scale=2.0)",
        "ModelNew(48)(torch.randn(5, 48), mask=None)",
    )  # fmt: skip
    assert ran == ""
    expected = ["groups=8; got 4", "norm.weight", "x: ", "torch.float16", "torch.float64", "norm.weight", "bias=None", "scale=1.0", "mask"]
    assert [e for e, words in zip(errors, expected, strict=True) if words not in e or not e.startswith(("ValueError", "TypeError"))] == []
    assert "groups=8" in file.read_text(encoding="utf-8").partition("class ModelNew")[2].splitlines()[1]


@written(LAYER, symbolic=False)
def test_one_size(file: Path) -> None:
    ran, batch, width = outcomes(file, "ModelNew(48)(torch.randn(33, 48))", "ModelNew(48)(torch.randn(5, 48))", "ModelNew(64)")
    assert ran == ""
    assert re.match(r"ValueError: x: the kernels take \(torch.float32, .*\), \(33, 48\)", batch)
    assert "width=48" in width


@written(LAYOUTS)
def test_inputs_in_other_layouts_than_the_problem_s(file: Path) -> None:
    start = "x, y = torch.randn(5, 2, 8, 16), torch.randn(5, 2, 8, 16); "
    end = "torch.testing.assert_close(ModelNew()(x, y), torch.tanh(x) * y)"
    turned, holes = "x = x.mT.contiguous().mT; ", "y = torch.randn(5, 2, 8, 24)[..., 4:20]; "
    assert outcomes(file, start + end, start + turned + end, start + holes + end) == ["", "", ""]


@written(CACHE)
def test_an_input_that_is_written_into_keeps_its_layout(file: Path) -> None:
    start = "c, x, p = torch.zeros(5, 8, 16), torch.randn(5, 1, 16), torch.tensor([2]); "
    end = "ModelNew()(c, x, p); torch.testing.assert_close(c[:, 2:3], x); assert not c[:, 3:].any()"
    beside = "c, x = torch.zeros(10, 8, 16).split(5); x = x[:, :1]; "
    ran, apart, turned, shared = outcomes(
        file, start + end, start + beside + end, start + "c = c.mT.contiguous().mT; " + end, start + "x = c[:, :1]; " + end
    )
    assert (ran, apart) == ("", "")
    assert turned.startswith("ValueError: cache: the kernels write into it, in memory")
    assert shared.startswith("ValueError: cache: the kernels write into it, and another input")


@written(CACHE, short=True)
def test_a_short_file_refuses_another_input_in_the_memory_that_it_writes_into(file: Path) -> None:
    call = "ModelNew()(c, c[:, :1], torch.tensor([2]))"
    assert outcomes(file, "c = torch.zeros(5, 8, 16); " + call)[0].startswith("ValueError: cache: the kernels write into it, and another")


@written(BATCH_NORM)
def test_mode(file: Path) -> None:
    ran, evaluated = outcomes(file, "ModelNew(20)(torch.randn(5, 20))", "ModelNew(20).eval()(torch.randn(5, 20))")
    assert ran == ""
    assert evaluated.startswith("RuntimeError: The kernels compute what the module does after train()")


AVERAGED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(features, momentum=None)
    def forward(self, x): return self.norm(x)
features, rows = 20, 33
def get_inputs(): return [torch.randn(rows, features)]
def get_init_inputs(): return [features]
"""


@written(AVERAGED)
def test_statistics_that_are_plain_averages(file: Path) -> None:
    calls = "for x in torch.randn(3, 5, 20): torch.testing.assert_close(m(x), n(x))"
    state = "torch.testing.assert_close(list(m.norm.state_dict().values()), list(n.state_dict().values()))"
    assert outcomes(file, f"m, n = ModelNew(20), torch.nn.BatchNorm1d(20, momentum=None)\n{calls}\n{state}") == [""]


@written(BATCH_NORM)
def test_settings_of_layers_and_how_vectors_lie_stay_as_the_constructor_makes_them(file: Path) -> None:
    start, run = "import copy; m = copy.deepcopy(ModelNew(20)); ", "m(torch.randn(5, 20))"
    ran, field, step, table, eps, momentum, chance, expanded, turned, negated = outcomes(
        file, start + "m.norm.weight = torch.nn.Parameter(torch.ones(20)); m.norm.eps = 1e-5; m.config.name = 'b'; m.to('cpu'); " + run,
        start + "m.config.scale = 3.0; " + run, start + "m.steps[1] = 2.0; " + run, start + "m.table['a'][0] = 2.0; " + run,
        start + "m.norm.eps = 0.1; " + run, start + "m.norm.momentum = None; " + run, start + "m.drop.p = 0.5; " + run,
        start + "m.norm.weight = torch.nn.Parameter(torch.ones(1).expand(20))",
        start + "m.load_state_dict({**m.state_dict(), 'norm.running_mean': torch._neg_view(torch.ones(20))}, assign=True)",
        start + "m(torch.ones(5, 20, dtype=torch.complex64).conj().imag)",
    )  # fmt: skip
    assert ran == ""
    changed = {field, step, table, eps, momentum, chance}
    assert changed == {"NotImplementedError: The kernels were written for other settings of the model and its layers"}
    assert all("the kernels take vectors whose elements lie side by side" in e for e in (expanded, turned))
    assert negated.startswith("ValueError: x: its memory holds the opposite")


def test_a_forward_that_does_not_ask_for_its_mode_runs_in_both(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(compiled(Problem(name="guarded", source=LAYER), Options()), encoding="utf-8")
    assert outcomes(path, "ModelNew(48).eval()(torch.randn(5, 48))") == [""]


@written(PAIR)
def test_containers_and_values(file: Path) -> None:
    start = "x, o = torch.randn(5, 6), [torch.randn(5, 6), torch.randn(6)]; m = ModelNew(); "
    turned = "o = [torch.randn(6, 5).t(), torch.randn(6, 2)[:, 0]]; torch.testing.assert_close(m(x, o, 3, 'fast')['sum'], "
    ran, strides, power, mode, count, sizes, none, missing = outcomes(
        file, start + "m(x, o, 3, 'fast')['sum'] + 1", start + turned + "x + o[0] * o[1])", start + "m(x, o, 2, 'fast')",
        start + "m(x, o, 3, mode='slow')",
        start + "m(x, [*o, x], 3, 'fast')", start + "m(x, [x[:4], o[1]], 3, 'fast')", start + "m(None, o, 3, 'fast')",
        start + "m(x, None, 3, 'fast')",
    )  # fmt: skip
    assert [ran, strides] == ["", ""]
    expected = ["power=3", "mode='fast'", "2 members of others", "others[0]", "NoneType", "2 members of others"]
    assert [e for e, words in zip([power, mode, count, sizes, none, missing], expected, strict=True) if words not in e] == []


@written(PRODUCT)
def test_autocast_and_hooks_on_layers_inside_are_refused(file: Path) -> None:
    on = 'torch.set_autocast_enabled("cpu", True); '
    start = "m = ModelNew(16); "
    plain, hook, layer, copied, alike, below = outcomes(
        file, "ModelNew(16)(torch.randn(5, 16))",
        start + "m.project.register_forward_hook(print)", start + "m.project = torch.nn.Sequential(m.project)",
        "import copy; m = copy.deepcopy(ModelNew(16)); m.project.register_forward_pre_hook(print)",
        start + "m.register_forward_hook(lambda *_: None); m.project = torch.nn.Linear(16, 8); m(torch.randn(5, 16))",
        on + "ModelNew(16)(torch.randn(5, 16))",
    )  # fmt: skip
    assert [plain, alike] == ["", ""]
    assert below.startswith("NotImplementedError: The kernels do not follow torch.autocast")
    assert all(e.startswith("NotImplementedError: The kernels call no layer inside") for e in (hook, layer, copied))


@written(LAYER)
def test_gradients_are_refused_and_inference_is_not(file: Path) -> None:
    start = "m, x = ModelNew(48), torch.randn(5, 48); "
    plain, frozen, in_place, parameter, given = outcomes(
        file, start + "assert m(x).detach().shape == (5, 8)",
        start + "m.requires_grad_(False); m(x).numpy()",
        start + "y = m(x); y += 1; y.mul_(2)",
        start + "(x[:, :8] + m(x)).sum().backward()",
        start + "m.requires_grad_(False); x.requires_grad_(); (x[:, :8] + m(x)).sum().backward()",
    )  # fmt: skip
    assert (plain, frozen, in_place) == ("", "", "")
    assert parameter.startswith("RuntimeError: ModelNew is for inference")
    assert given.startswith("RuntimeError: ModelNew is for inference")


SMALLEST = """
import torch, torch.nn.functional as F
class Model(torch.nn.Module):
    def forward(self, x, a, b): return F.pad(x, (2, 1), mode="circular").cos(), a // b
def get_inputs(): return [torch.randn(6, 5, 10), torch.randint(-99, 99, (6,), dtype=torch.int8), torch.full((6,), -7, dtype=torch.int8)]
"""


@written(SMALLEST)
def test_circular_pads_of_less_than_they_repeat_and_the_smallest_whole_number(file: Path) -> None:
    numbers = "a, b = torch.full((6,), -128, dtype=torch.int8), torch.tensor([-1, -3, -127, -128, 3, 127], dtype=torch.int8); "
    ran, one, none = outcomes(
        file, numbers + "assert ModelNew()(torch.randn(6, 5, 2), a, b)[1].equal(a // b), ModelNew()(torch.randn(6, 5, 2), a, b)[1]",
        numbers + "ModelNew()(torch.randn(6, 5, 1), a, b)", numbers + "ModelNew()(torch.randn(6, 5, 0), a, b)",
    )  # fmt: skip
    assert ran == ""
    assert all(e.startswith("ValueError: the kernels were written for x_size2 >= 2") for e in (one, none))


BRANCHES = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        y = x.cos().sum(0) if x.shape[0] >= x.shape[1] else x.sin().sum(1)
        return y[..., :8].exp()
def get_inputs(): return [torch.randn(60, 30)]
"""


@written(BRANCHES)
def test_decisions_about_sizes(file: Path) -> None:
    ran, other, short = outcomes(file, *(f"ModelNew()(torch.randn({shape}))" for shape in ("64, 32", "30, 60", "60, 6")))
    assert ran == ""
    assert "x_size0 >= x_size1" in other
    assert "x_size1 >= 8" in short


FRACTIONS = """
import torch, math
class Model(torch.nn.Module):
    def forward(self, x):
        ratio = x.shape[0] / x.shape[1]
        y = x * max(1.0, ratio) ** 0.5 if math.sqrt(x.shape[0]) > 3 else x.cos()
        return y if ratio > 0.25 else y.exp(), x * math.sin(x.shape[2])
def get_inputs(): return [torch.randn(60, 30, 7)]
"""


@written(FRACTIONS)
def test_decisions_about_fractions_and_functions_of_sizes(file: Path) -> None:
    right = "x = torch.randn(24, 40, 7); y, z = ModelNew()(x); assert y.equal(x) and z.allclose(x * math.sin(7))"
    refused = (f"ModelNew()(torch.randn({shape}))" for shape in ("9, 4, 7", "12, 48, 7", "60, 30, 8"))
    ran, root, ratio, sine = outcomes(file, "import math; " + right, *refused)
    assert ran == ""
    assert ("math.sqrt" in root, "/" in ratio, "None, 7)" in sine) == (True, True, True)


COPIED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x.permute(1, 0).clone(), x.permute(1, 0)
def get_inputs(): return [torch.randn(6, 10)]
"""


@written(COPIED)
def test_a_copy_of_a_view_is_no_view(file: Path) -> None:
    code = "x = torch.zeros(5, 8); copy, view = ModelNew()(x); x += 1; assert copy.sum() == 0 and view.sum() == 40"
    assert outcomes(file, code) == [""]


INHERITED = """
import torch
class Norm(torch.nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.norm, self.eps = torch.nn.LayerNorm(features, eps), eps
class Model(Norm):
    def forward(self, x): return self.norm(x)
features, rows = 20, 33
def get_inputs(): return [torch.randn(rows, features)]
def get_init_inputs(): return [features]
"""


@written(INHERITED)
def test_arguments_of_an_inherited_constructor(file: Path) -> None:
    ran, eps = outcomes(file, "ModelNew(20)(torch.randn(5, 20))", "ModelNew(20, eps=0.5)")
    assert (ran, "eps=1e-05" in eps) == ("", True)


PADDED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, chunk):
        super().__init__()
        self.chunk = chunk
    def forward(self, x):
        rows, length = x.shape
        pad = (self.chunk - length % self.chunk) % self.chunk
        y = torch.nn.functional.pad(x, (0, pad)).reshape(rows, -1, self.chunk).cumsum(2).reshape(rows, -1)
        return y[:, :length] if pad > 0 else y
chunk = 8
def get_inputs(): return [torch.randn(6, 32)]
def get_init_inputs(): return [chunk]
"""


@written(PADDED)
def test_a_decision_on_a_remainder(file: Path) -> None:
    ran, other = outcomes(file, "ModelNew(8)(torch.randn(5, 48))", "ModelNew(8)(torch.randn(5, 41))")
    assert (ran, "the kernels were written for" in other) == ("", True)


DIAGONAL = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x.diagonal() * 2, torch.float_power(x, 1.7)
def get_inputs(): return [torch.rand(24, 40)]
"""


@written(DIAGONAL)
def test_a_diagonal_is_as_long_as_the_shorter_side(file: Path) -> None:
    code = "x = torch.rand(40, 24); line, power = ModelNew()(x); assert line.equal(x.diagonal() * 2) and power.allclose(x.double() ** 1.7)"
    assert outcomes(file, code) == [""]


FIRST_TWO = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y): return x[:, :2].sin() + y[:, -2:], x.cos()
def get_inputs(): return [torch.rand(24, 40), torch.rand(24, 30)]
"""


@written(FIRST_TWO)
def test_two_elements_are_not_read_of_one(file: Path) -> None:
    """Torch takes it that a size that varies is no 1, and asks for no guard."""
    calls = ("rand(7, 2), torch.rand(7, 2)", "rand(7, 1), torch.rand(7, 9)", "rand(7, 9), torch.rand(7, 1)")
    wide, *thin = outcomes(file, *(f"ModelNew()(torch.{sizes})" for sizes in calls))
    assert (wide, ["written for" in error for error in thin]) == ("", [True, True])


REMAINDERS = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.width, self.mix = width, nn.Conv1d(6, 6, kernel, padding=kernel // 2, groups=6)
        self.register_buffer("pairs", torch.rand(3, width // 2))
    def forward(self, t, x):
        y = t[:, None] * torch.arange(self.width // 2)
        y = nn.functional.pad(y, (0, 1)) if self.width % 2 == 1 else y
        return y.sum(1), x + self.mix(x), torch.stack([self.pairs, -self.pairs], 2).view(3, self.width) * 2
width, kernel = 32, 17
def get_inputs(): return [torch.rand(7), torch.rand(4, 6, 40)]
def get_init_inputs(): return [width, kernel]
"""


@written(REMAINDERS)
def test_sizes_that_tracing_and_lowering_found_equal(file: Path) -> None:
    """An odd width takes the other way in the forward, and has no pairs; an even window gives one position more."""
    inputs = "torch.rand(5), torch.rand(3, 6, 30)"
    ran, odd, even = outcomes(file, *(f"ModelNew({sizes})({inputs})" for sizes in ("32, 17", "33, 17", "32, 18")))
    assert (ran, "written for" in odd, "written for" in even) == ("", True, True)


CHUNKED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, chunk):
        super().__init__()
        self.chunk = chunk
    def forward(self, v, beta):
        b, t, h, _ = v.shape
        v, beta = (m.transpose(1, 2).reshape(b, h, t // self.chunk, self.chunk, -1) for m in (v, torch.sigmoid(beta)[..., None]))
        return v * beta
steps, heads, width, chunk = 128, 3, 32, 16
def get_inputs(): return [torch.rand(1, steps, heads, width), torch.rand(1, steps, heads)]
def get_init_inputs(): return [chunk]
"""


@written(CHUNKED)
def test_a_last_dimension_that_is_1_by_computation_is_broadcast(file: Path) -> None:
    right = """
v, beta = torch.rand(1, 20, 3, 7), torch.rand(1, 20, 3)
assert ModelNew(5)(v, beta).allclose((v * beta.sigmoid()[..., None]).transpose(1, 2).reshape(1, 3, 4, 5, 7))"""
    ran, refused = outcomes(file, right, "ModelNew(6)(torch.rand(1, 20, 3, 7), torch.rand(1, 20, 3))")
    assert (ran, "written for" in refused) == ("", True)


NUMBERS = """
import torch, torch.nn.functional as F
class Model(torch.nn.Module):
    def forward(self, x, n, size): return F.interpolate(x, size=size, mode="bilinear") * n, torch.roll(x, n, -1) + 1, x[..., n:] + 0.5
count, high, wide = 7, 24, 9
def get_inputs(): return [torch.rand(2, 3, 16, 20), count, (high, wide)]
"""


@written(NUMBERS)
def test_whole_numbers_that_the_forward_is_given_may_be_others(file: Path) -> None:
    right = """
x, (n, size) = torch.rand(3, 2, 12, 15), ({})
a, b, c = ModelNew()(x, n, size)
import torch.nn.functional as F
torch.testing.assert_close((a, b, c), (F.interpolate(x, size=size, mode="bilinear") * n, torch.roll(x, n, -1) + 1, x[..., n:] + 0.5))
"""
    calls = ["7, (24, 9)", "2, (5, 31)", "15, [2, 3]", "16, (5, 31)", "1, (5, 31)", "-2, (5, 31)", "2.0, (5, 31)", "2, (5, 1)"]
    found = outcomes(file, *(right.format(call) for call in calls))
    assert found[:3] == ["", "", ""]
    expected = ["n <= x_size3", *["a whole number n above 1"] * 3, "size[1]"]
    assert [e for e, words in zip(found[3:], expected, strict=True) if words not in e or not e.startswith("ValueError")] == []


OUTER = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y): return torch.relu(x), y[:, None] * y
rows = 12
def get_inputs(): return [torch.rand(rows, 40), torch.rand(20)]
"""


@written(OUTER)
def test_more_elements_than_offsets_of_32_bits_reach(file: Path) -> None:
    few, many = "torch.rand(3, 4)", "torch.zeros(1, 1).expand(2**20, 4096)"
    ran, given, made = outcomes(file, *(f"ModelNew()({x}, torch.zeros(1).expand({n}))" for x, n in ((few, 70), (many, 70), (few, 70_000))))
    assert (ran, "x: the kernels take" in given, "written for offsets of 32 bits" in made) == ("", True, True)


SCALED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, scale): return torch.relu(x) * scale
rows = 12
def get_inputs(): return [torch.rand(rows, 40), torch.tensor(0.5)]
"""


@written(SCALED)
def test_a_tensor_without_dimensions_may_not_have_some(file: Path) -> None:
    calls = (f"ModelNew()(torch.rand(5, 7), {scale})" for scale in ("torch.tensor(2.0)", "torch.rand(7)", "torch.tensor(2)"))
    ran, row, whole = outcomes(file, *calls)
    assert (ran, "scale: the kernels take" in row, "scale: the kernels take" in whole) == ("", True, True)


HEADS = """
import torch
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 16
        self.scale = torch.nn.Parameter(torch.rand(width))
    def forward(self, x):
        x = x * self.scale[:, None]
        return x.reshape(x.shape[0], self.heads, -1, x.shape[2]).softmax(2) if self.heads else x
width = 64
def get_inputs(): return [torch.randn(3, width, 10)]
def get_init_inputs(): return [width]
"""


@written(HEADS)
def test_a_number_of_groups_may_be_none_at_all(file: Path) -> None:
    """A decision that divides by it must not end in a division by zero."""
    ran, none = outcomes(file, "ModelNew(32)(torch.randn(2, 32, 5))", "ModelNew(8)(torch.randn(2, 8, 5))")
    assert (ran, "the kernels were written for" in none) == ("", True)


FROZEN = """
import torch
class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.frozen, self.learning = torch.nn.BatchNorm1d(channels).eval(), torch.nn.BatchNorm1d(channels)
    def forward(self, x): return self.frozen(x) + self.learning(x)
channels = 6
def get_inputs(): return [torch.randn(3, channels, 7)]
def get_init_inputs(): return [channels]
"""


@written(FROZEN)
def test_layers_in_both_modes_stay_in_them(file: Path) -> None:
    """After eval() the second layer would go on with the statistics of each batch."""
    call = "m = ModelNew(6); m.frozen.eval(); {}m(torch.randn(3, 6, 7))"
    as_is, after_eval, after_train = outcomes(file, *(call.format(mode) for mode in ("", "m.eval(); ", "m.train(); ")))
    assert (as_is, ["its mode" in error for error in (after_eval, after_train)]) == ("", [True, True])


TIED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, i, o, groups):
        super().__init__()
        self.norm = torch.nn.GroupNorm(groups, i)
        self.lift = torch.nn.Conv1d(i, o, 3, padding=1)
        self.skip = torch.nn.Identity() if i == o else torch.nn.Conv1d(i, o, 1)
    def forward(self, x): return self.skip(x) + self.lift(self.norm(x).relu())
channels, width, groups = 64, 64, 32
def get_inputs(): return [torch.randn(2, channels, 20)]
def get_init_inputs(): return [channels, width, groups]
"""


@written(TIED)
def test_arguments_that_the_constructor_found_equal(file: Path) -> None:
    """Of the parameters that the forward reads, the first has one of the two sizes alone."""
    ran, wide = outcomes(file, "ModelNew(96, 96, 32)(torch.randn(2, 96, 9))", "ModelNew(96, 64, 32)(torch.randn(2, 96, 9))")
    assert (ran, "o == i" in wide) == ("", True)


CHUNKED = """
import torch
class Model(torch.nn.Module):
    def __init__(self, chunk):
        super().__init__()
        self.chunk = chunk
    def forward(self, x, image):
        sums = x.view(x.shape[0], x.shape[1] // self.chunk, self.chunk).sum(2)
        square = (image @ image).flatten(1).view(-1, image.shape[1], image.shape[2])
        return torch.cat((torch.zeros_like(sums[:, :1]), sums), 1)[:, :-1], square.softmax(2)
chunk, side = 8, 24
def get_inputs(): return [torch.randn(3, 64), torch.randn(2, side, side)]
def get_init_inputs(): return [chunk]
"""


@written(CHUNKED)
def test_a_slice_of_as_many_rows_as_two_sizes_divide_into(file: Path) -> None:
    """What a quotient is at its least must not end in a division by zero; and of ``side * side // side`` nothing is left."""
    (ran,) = outcomes(file, "ModelNew(4)(torch.randn(2, 20), torch.randn(3, 7, 7))")
    assert (ran, "FIXED_SIZES" in file.read_text(), "* side // side" in file.read_text()) == ("", False, False)


IN_A_TUPLE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, boxes):
        x, y = boxes
        return self.layer(x) + y
def get_inputs(): return [(torch.rand(24, 32), torch.rand(24, 32))]
def get_init_inputs(): return [32]
"""


def test_autocast_is_asked_of_a_tensor_in_a_container_once_it_has_a_name() -> None:
    source = compiled(problem(IN_A_TUPLE), Options())
    assert source.index("boxes_0, boxes_1 = ") < source.index("torch.is_autocast_enabled(boxes_0.device.type)")


@pytest.mark.parametrize("name", ["GELU", "Softmax"])
def test_a_layer_of_torch_named_as_the_model_is_written(name: str) -> None:
    source = f"""
from torch.nn import {name}
Model = {name}
def get_inputs():
    import torch
    return [torch.randn(33, 20)]
def get_init_inputs(): return {"[]" if name == "GELU" else "[-1]"}
"""
    assert f"{name.lower()}_kernel[" in compiled(Problem(name=name, source=source), Options())
