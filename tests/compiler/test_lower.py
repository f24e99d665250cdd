"""Lowering: Inductor's kernels and host steps, the same on every machine, right at any sizes."""

import ast
import re

import pytest
import torch
from compiled import CONV, LAYER_NORM, LINEAR, LSTM, SOFTMAX, lowered, problem
from triton.runtime import driver

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.inductor.fake_device import fake_gpu
from kernelllm.compiler.inductor.wrapper_lines import Allocate
from kernelllm.compiler.options import Options


def test_text_is_for_cuda_and_sizes_are_arguments():
    wrapper = lowered(LAYER_NORM).wrapper
    text = wrapper.text()
    assert {step.device for step in wrapper.steps if isinstance(step, Allocate)} == {"cuda"}
    assert "device_str='cuda'" in text
    assert "777" not in text


def test_text_is_deterministic():
    assert lowered(LINEAR).wrapper.text() == lowered(LINEAR).wrapper.text()


def test_templates_are_called_by_name():
    assert "torch.ops.kernelllm.matmul.default(x, " in lowered(LINEAR).wrapper.text()
    assert "torch.ops.kernelllm.conv.default(x, conv_weight, conv_bias, [2, 2]" in lowered(CONV).wrapper.text()
    assert lowered(LSTM).wrapper.text().count("torch.ops.kernelllm.lstm") == 1


def test_rows_are_held_whole_or_looped_as_asked():
    held = lowered(SOFTMAX, Options(persistent="always")).wrapper.text()
    assert "R0_BLOCK: tl.constexpr = triton_helpers.constexpr_next_power_of_2(r0_numel)" in held
    assert "r0_mask = r0_index < r0_numel" in held
    looped = lowered(SOFTMAX, Options(persistent="never")).wrapper.text()
    assert "for r0_offset in" in looped
    assert "online_softmax" in looped


def test_fusion_can_be_turned_off():
    body = SOFTMAX.replace("torch.softmax(x, dim=1)", "torch.relu(x).sum(dim=1)")

    def kernels(fusion):
        return len(re.findall(r"^@triton\.jit", lowered(body, Options(fusion=fusion)).wrapper.text(), re.MULTILINE))

    assert kernels(True) == 1
    assert kernels(False) == 2


def test_target_decides_the_device_figures():
    assert "multi_processor_count=108" in lowered(SOFTMAX, Options(target="sm_80")).wrapper.text()
    assert "multi_processor_count=132" in lowered(SOFTMAX, Options(target="sm_90")).wrapper.text()


def test_the_pretended_device_is_gone_afterwards():
    available, active = torch.cuda.is_available(), driver._active
    with fake_gpu("sm_90"):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    assert torch.cuda.is_available() is available
    assert driver._active is active


SAMPLED = """
class Model(nn.Module):
    def forward(self, x, boxes, offsets, weights):
        grids = 2 * (boxes[:, :, None, None, :2] + offsets / 4 * boxes[:, :, None, None, 2:] * 0.5) - 1
        levels = [F.grid_sample(level, grids[:, :, i], align_corners=False) for i, level in enumerate((x, x[:, :, 1:, 1:]))]
        return torch.stack(levels, -2).flatten(-2) * weights
batch, channels, side, queries, points = 2, 8, 9, 10, 4
def get_inputs():
    more = [torch.randn(batch, queries, 2, points, 2), torch.rand(batch, 1, queries, 2 * points)]
    return [torch.randn(batch, channels, side, side), torch.rand(batch, queries, 4), *more]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("options", [Options(), Options(extern="allow", symbolic=False)], ids=["general", "library"])
def test_a_grid_is_computed_inside_of_the_kernel_that_samples(options):
    assert len(lowered(SAMPLED, options).wrapper.kernels) <= 2  # the first samples may be stored


def test_what_one_loop_loads_by_a_loaded_position_the_next_loads_again():
    """Triton knows a name of a loop's body in that loop alone."""
    body = """
class Model(nn.Module):
    def forward(self, x, down, up, ids, pick):
        chosen = ids.gather(0, pick)
        return (x * down[chosen]).sum(-1, keepdim=True).tanh() * up[chosen]
rows, columns, many, few = 64, 5000, 300, 70
def get_inputs():
    return [torch.rand(rows, columns), torch.rand(many, columns), torch.rand(many, columns), torch.randint(0, many, (few,)),
            torch.randint(0, few, (rows,))]
"""
    source = compiled(problem(body), Options())
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    kernel = next(f for f in functions if sum(isinstance(s, ast.For) for s in f.body) == 2)
    made, read = ([{m.id for m in ast.walk(s) if isinstance(m, ast.Name) and isinstance(m.ctx, kind)} for s in kernel.body]
                  for kind in (ast.Store, ast.Load))  # fmt: skip
    first, second = [i for i, s in enumerate(kernel.body) if isinstance(s, ast.For)]
    own = made[first] - set().union(*made[:first])
    assert not own & read[second] - made[second]


def test_the_larger_of_0_and_an_index_has_a_range():
    body = """
class Model(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, :, ::2] = x[:, :, ::2]
        return F.pad(y, (2, 2), mode="replicate")
rows, channels, width = 4, 3, 16
def get_inputs(): return [torch.randn(rows, channels, width)]
def get_init_inputs(): return []
"""
    assert lowered(body).wrapper.kernels


def test_long_parts_of_a_concatenation_are_computed_in_its_kernel():
    body = """
class Model(nn.Module):
    def turned(self, x):
        a, b = x[..., : self.part], x[..., self.part : 2 * self.part]
        return torch.cat((-b, a), -1)
    def __init__(self, part):
        super().__init__()
        self.part = part
    def forward(self, q, cos, sin, place, gradient):
        q = q.detach().requires_grad_()
        c, s = cos[place][:, None].to(q.dtype), sin[place][:, None].to(q.dtype)
        with torch.enable_grad():
            *turned, last = q.chunk(3, -1)
            parts = [torch.cat((p[..., : 2 * self.part] * c + self.turned(p) * s, p[..., 2 * self.part :]), -1) for p in turned]
            return torch.autograd.grad([*parts, last], q, list(gradient))
batch, heads, length, width, part = 2, 3, 16, 12, 4
def get_inputs(): return [torch.randn(batch, heads, length, 3 * width).bfloat16(), torch.randn(32, 2 * part), torch.randn(32, 2 * part),
                          torch.randint(0, 32, (batch, length)), torch.randn(3, batch, heads, length, width).bfloat16()]
def get_init_inputs(): return [part]
"""
    assert len(lowered(body, Options(fixed=True, mixed=True)).wrapper.kernels) == 1
