"""Views of buffers whose rows are padded, on the path for known sizes."""

from __future__ import annotations

import pytest
from compiled import problem
from torch._inductor import ir

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options

VIEWED = """
class Model(nn.Module):
    def forward(self, x):
        a, b, c, d, e, f = x.transpose(2, 3).unbind(0)
        turned = a * b + c * d + e * f
        return turned.view(len(turned), 2, -1, x.shape[2]) * 2, turned.sum(1)
batch, steps, width = 2, 33, 70
def get_inputs(): return [torch.randn(6, batch, steps, width)]
def get_init_inputs(): return []
"""


def test_a_view_is_one_of_the_strides_that_its_buffer_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.11 pads the rows of a buffer that it asks for, and leaves its order open."""

    def asked(x: ir.IRNode) -> bool:
        try:
            layout = ir.as_storage_and_layout(x, freeze=False)[1]
        except NotImplementedError:
            return False
        if layout.should_pad_strides():
            layout.pad_strides()
        return bool(layout.is_contiguous())

    for name in ("is_contiguous_storage_and_layout", "is_dense_contiguous_storage_and_layout"):
        monkeypatch.setattr(ir, name, asked, raising=False)
    text = compiled(problem(VIEWED), Options(fixed=True, mixed=True))
    launches = text.partition("def forward_at_known_sizes")[2].count("_kernel[")
    assert launches == 1, "what reads the view by strides that its buffer does not have is another kernel"
