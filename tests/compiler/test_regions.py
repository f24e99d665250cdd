"""Deep networks in regions, and the rules that let sizes, devices and constructors follow the problem."""

from __future__ import annotations

import ast
import re

import pytest
from compiled import captured, lowered, problem

from kernelllm.compiler.capture.capture import capture
from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.emit import emit
from kernelllm.compiler.inductor import regions
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError

DENSE = """
class Model(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(channels + i * growth), nn.ReLU(), nn.Conv2d(channels + i * growth, growth, 1)) for i in range(4))
    def forward(self, x):
        parts = [x]
        for layer in self.layers:
            parts.append(layer(x))
            x = torch.cat(parts, 1)
        return x
batch, channels, growth, size = 4, 24, 40, 20
def get_inputs(): return [torch.rand(batch, channels, size, size)]
def get_init_inputs(): return [channels, growth]
"""

PATCHES = """
class Model(nn.Module):
    def __init__(self, image_size, patch_size, dim, heads):
        super().__init__()
        assert image_size % patch_size == 0
        self.patch_size = patch_size
        self.scale = (dim // heads) ** -0.5
        self.fc = nn.Linear(patch_size * patch_size, dim)
    def forward(self, x):
        p = self.patch_size
        return self.fc(x.unfold(1, p, p).unfold(2, p, p).reshape(x.shape[0], -1, p * p)) * self.scale
batch, image_size, patch_size, dim, heads = 3, 48, 8, 36, 4
def get_inputs(): return [torch.rand(batch, image_size, image_size)]
def get_init_inputs(): return [image_size, patch_size, dim, heads]
"""

STATE = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = torch.zeros(1, width)
        self.fc = nn.Linear(width, width)
    def forward(self, x):
        self.hidden = torch.tanh(self.fc(x + self.hidden))
        return self.hidden * 2
batch, width = 5, 24
def get_inputs(): return [torch.rand(batch, width)]
def get_init_inputs(): return [width]
"""

ATTENDED = """
class Model(nn.Module):
    def forward(self, x, w):
        q, k, v = (t.reshape(2, 64, 2, 8).transpose(1, 2) for t in torch.split(x * 2, 16, -1))
        attended = F.scaled_dot_product_attention(q, k, v)
        return torch.mm(attended.transpose(1, 2).reshape(128, 16), w) + 1
def get_inputs(): return [torch.rand(2, 64, 48), torch.rand(16, 16)]
def get_init_inputs(): return []
"""


def file_of(body: str) -> str:
    return emit(problem(body), lowered(body))


def forward_of(text: str) -> str:
    return text[text.index("def forward(self") :]


def test_equal_regions_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "LONG", 10)
    text = file_of(DENSE)
    assert forward_of(text).count("= conv(") == 4
    launched = re.findall(r"(\w+_kernel)\[", forward_of(text))
    statistics = [name for name in launched if "batch_norm" in name]
    assert len(set(statistics)) < len(statistics) / 2  # four layers share the kernels of one


def test_what_a_library_gives_is_in_the_layout_that_the_next_region_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "LONG", 3)
    options = Options(extern="allow", any_dtype=False)
    text = forward_of(emit(problem(ATTENDED), lowered(ATTENDED, options)))
    assert "attended = attended.transpose(1, 2).contiguous().transpose(1, 2)" in text  # that of the product that comes next


def test_growing_concatenations_are_chained() -> None:
    targets = [str(n.target) for n in captured(DENSE).graph.graph.nodes]
    assert targets.count("kernelllm.concat.default") == 4
    assert "aten.cat.default" not in targets


def test_a_size_may_be_a_multiple_of_another() -> None:
    result = captured(PATCHES)
    assert not result.specialized
    assert {"patch_size", "image_size_over_patch_size"} <= {s.constant for s in result.sizes}
    assert "image_size_over_patch_size = x.shape[1] // patch_size" in file_of(PATCHES)


def test_numbers_derived_from_sizes_follow_them() -> None:
    assert not re.search(r"0\.333333|\b48\b|\b36\b", forward_of(file_of(PATCHES)))


def test_loose_tensors_move_to_the_device_and_are_replaced() -> None:
    forward = forward_of(file_of(STATE))
    assert "self.hidden = self.hidden.to(x.device)" in forward
    assert forward.count("self.hidden = ") == 2


def test_a_mask_as_an_index_is_refused_with_its_line_where_nothing_may_stay_with_torch() -> None:
    forward = "class Model(nn.Module):\n    def forward(self, x):\n        return x[x > 0.5] * 2\n"
    body = forward + "n = 64\ndef get_inputs(): return [torch.rand(n)]\n"
    with pytest.raises(CaptureError, match=r"aten.nonzero \(line \d+: return x\[x > 0.5\] \* 2\)"):
        capture(problem(body), Options(extern="forbid"))


FOREIGN = """
import numpy as np
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = float(np.sqrt(width))
        {line}
        self.fc = nn.Linear(width, width)
    def forward(self, x):
        return self.fc(x) / self.scale
batch, width = 4, 24
def get_inputs(): return [torch.rand(batch, width)]
def get_init_inputs(): return [width]
"""


def test_other_libraries_leave_the_constructor() -> None:
    text = file_of(FOREIGN.format(line="self.spare = np.arange(3).tolist()"))
    assert "numpy" not in text
    assert "np." not in text
    assert "self.spare" not in text
    assert "math.sqrt(width)" in text
    ast.parse(text)


def test_a_constructor_that_needs_another_library_is_made_from_shapes() -> None:
    text = file_of(FOREIGN.format(line="self.register_buffer('window', torch.from_numpy(np.hanning(width)))"))
    assert "numpy" not in text
    assert "window=torch.tensor(" in text
    assert "This file was written for width=24 alone." in text
    ast.parse(text)


GRADIENT_OF_A_VIEW = """
class Model(nn.Module):
    def forward(self, x, tangent):
        base = tangent.new_zeros(64)
        base.as_strided((2, columns), (32, 1), 0).copy_((tangent * 3)[:, :columns])
        return (x + (base.as_strided((2, 32, 1, 1), (32, 1, 1, 1), 0).expand(2, 32, 1, 16) / 16).squeeze(-2).transpose(1, 2)) * 2
def get_inputs(): return [torch.rand(2, 16, 32), torch.rand(2, 32)]
"""


@pytest.mark.parametrize(("columns", "kernels"), [(32, 1), (31, 3)])
def test_what_is_written_through_a_view_is_read_in_every_region(monkeypatch: pytest.MonkeyPatch, columns: int, kernels: int) -> None:
    monkeypatch.setattr(regions, "LONG", 3)
    forward = forward_of(file_of(GRADIENT_OF_A_VIEW.replace("columns", str(columns))))
    assert len(re.findall(r"_kernel\[", forward)) == kernels
    assert re.search(r"_kernel\[[^=]*\btangent\b", forward)


def test_a_result_made_of_nothing_is_made_though_the_graph_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "LONG", 3)
    body = """
class Model(nn.Module):
    def forward(self, x):
        mask = torch.zeros(8, 8)
        return (x @ x + mask).relu() @ x, mask
def get_inputs(): return [torch.rand(8, 8)]
"""
    forward = forward_of(file_of(body))
    made = re.search(r"return .*, (\w+)", forward)
    assert made is not None
    assert re.search(rf"{made[1]} = torch\.", forward)


def test_a_state_of_zeros_is_made_for_a_heavy_operator_though_the_graph_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region that reads a tensor made of nothing has a copy of it; a recurrent layer is no region."""
    monkeypatch.setattr(regions, "LONG", 3)
    body = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rows = nn.GRU(width, width, batch_first=True)
    def forward(self, x):
        y, _ = self.rows(torch.tanh(x))
        return y.relu() + x.new_zeros(1, x.shape[0], x.shape[2])[0][:, None]
width = 16
def get_inputs(): return [torch.rand(3, 5, width)]
def get_init_inputs(): return [width]
"""
    forward = forward_of(file_of(body))
    state = re.search(r"gru\(\s*\w+, (\w+),", forward)
    assert state is not None
    assert re.search(rf"\b{state[1]} = torch\.", forward)


def test_an_argument_that_is_written_and_given_back_is_named_though_the_graph_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "LONG", 3)
    body = """
class Model(nn.Module):
    def forward(self, x, cache):
        cache.mul_(2).add_(x)
        return torch.tanh(torch.sigmoid(x @ x) @ x), cache
def get_inputs(): return [torch.rand(8, 8), torch.rand(8, 8)]
"""
    source = compiled(problem(body), Options(fixed=True, extern="allow"))
    assert re.findall(r"return \(\w+, (\w+)\)", source) == ["cache", "cache"]
