"""Operators that a set's files always have by their own names."""

from __future__ import annotations

from kernelllm.train.copied_names import copied_names

MODULE = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.LeakyReLU()
    def forward(self, x):
        return torch.tanh(self.act(x)) + x.exp()
"""
KERNEL = """@triton.jit
def leaky_relu(x, slope):
    return tl.where(x > 0, x, x * slope)


@triton.jit
def tanh(x):
    return libdevice.tanh(x)
"""


def test_only_names_that_are_always_written_count() -> None:
    pairs = [(MODULE, KERNEL)] * 8
    assert copied_names(pairs) == ["leakyrelu", "tanh"]
    assert copied_names([*pairs, (MODULE, KERNEL.replace("def tanh", "def inlined"))]) == ["leakyrelu"]
    assert copied_names(pairs[:7]) == []
