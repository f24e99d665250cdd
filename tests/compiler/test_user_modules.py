"""Modules in the forms in which people write them, through the compiler and the judge."""

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

CONFIG = """
from dataclasses import dataclass
from types import SimpleNamespace

@dataclass
class Config:
    width: int = 24
    heads: int = 3
    @property
    def head(self): return self.width // self.heads

class Settings:
    def __init__(self, act): self.act = act

class Model(nn.Module):
    def __init__(self, config, settings, *widths, more):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip((config.width, *widths), (*widths, config.head)))
        self.act = getattr(F, settings.act)
        self.scale = more.scale
    def forward(self, *parts):
        x = torch.cat(parts, -1)
        for layer in self.layers:
            x = self.act(layer(x))
        return x * self.scale
rows, one, hidden = 10, 16, 20
def get_inputs(): return [torch.randn(rows, one), torch.randn(rows, 24 - one)]
def get_init_inputs(): return [[Config(), Settings("silu"), hidden], {"more": SimpleNamespace(scale=0.5)}]
"""
ROUTED = """
class Model(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate, self.experts = nn.Linear(width, experts, bias=False), nn.Parameter(torch.randn(experts, width) * 0.1)
    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        return (self.experts[chosen] * weights[..., None]).sum(1) * x.sum(-1, keepdim=True).add(1)
rows, width, experts = 24, 16, 6
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width, experts]
"""
ANOTHER_SELF = """
class Model(nn.Module):
    def __init__(me, width):
        super().__init__()
        me.weight = nn.Parameter(torch.randn(width))
    def forward(m, x): return torch.tanh(x) * m.weight
rows, width = 24, 16
def get_inputs(): return [torch.randn(rows, width)]
def get_init_inputs(): return [width]
"""
CASES = {
    "methods that call their object otherwise": ANOTHER_SELF,
    "settings in objects, an activation by its name": CONFIG,
    "routed by the largest of equal numbers": ROUTED,
}
PADDED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 20, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(16, bias=False))
        self.eval()
    def forward(self, x):
        padding = (torch.arange(x.shape[1]) > 3).expand(x.shape[0], -1)
        return self.encoder(x, src_key_padding_mask=padding), self.encoder(x, src_key_padding_mask=padding.flip(1))
batch, length = 2, 6
def get_inputs(): return [torch.randn(batch, length, 16)]
"""


@pytest.mark.parametrize("name", CASES)
def test_correct_at_any_size(judge: Judge, name: str) -> None:
    wanted = problem(CASES[name])
    verdict = judge.judge(wanted, Candidate(source=compiled(wanted, Options())))
    assert verdict.correct, verdict.message
    assert not [f for f in verdict.findings if f.check in ("fixed_sizes", "silently_different")]
    assert not [f for f in verdict.findings if "lies otherwise in memory" in f.message]


def test_settings_that_the_constructor_is_fixed_for_are_checked(judge: Judge) -> None:
    """Where the name of a function is needed to build the module, the file is made from shapes."""
    wanted = problem(CONFIG.replace("self.scale = more.scale", "self.scale = more.scale * len(self.act.__name__) / 4"))
    source = compiled(wanted, Options())
    assert "(config.width, config.heads, settings.act, widths, more.scale) != (24, 3, 'silu', (20,), 0.5)" in source
    verdict = judge.judge(wanted, Candidate(source=source))
    assert verdict.correct, verdict.message


def test_another_order_among_equal_numbers_is_right_and_another_choice_is_wrong(judge: Judge) -> None:
    source = compiled(problem(ROUTED), Options())
    verdict = judge.judge(problem(ROUTED), Candidate(source=source.replace("key = ~key", "pass")))
    assert verdict.status == "incorrect"


def test_an_encoder_gives_zeros_for_padding_behind_the_rows(quick: Judge) -> None:
    verdict = quick.judge(problem(PADDED), Candidate(source=compiled(problem(PADDED), Options())))
    assert verdict.correct, verdict.message


LUT = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lut = nn.Parameter(torch.randn(1, 3, 5, 5, 5))
    def forward(self, x):
        lut = self.lut.expand(x.shape[0], -1, -1, -1, -1)
        return F.grid_sample(lut, x.tanh()[:, None], padding_mode="border", align_corners=True)[:, :, 0] * 2.0
batch, side = 2, 9
def get_inputs(): return [torch.randn(batch, side, side, 3)]
"""


def test_volumes_are_sampled_by_torch_on_the_path_for_known_sizes() -> None:
    """Places and weights of eight neighbours would be written to memory. A parameter that is expanded may lie otherwise in memory."""
    source = compiled(problem(LUT), Options(fixed=True, mixed=True))
    general, known = source.split("def forward_at_known_sizes")
    assert "grid_sampler_3d" not in general
    assert "torch.ops.aten.grid_sampler_3d(" in known
    assert "torch.as_strided(self.lut.contiguous(), " in known
