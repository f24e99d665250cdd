"""Harvesting a package: whole models are run, and each module inside becomes a problem that stands alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from kernelllm.app.commands.pairs import pairs
from kernelllm.pairs.einops_forms import einsum, rearrange, reduce, repeat

PARTS = """
import torch

SLOPE = 0.25


def bent(x):
    return torch.where(x > 0, x, SLOPE * x)
"""
BLOCK = """
import json
import logging
from dataclasses import dataclass

import torch.nn as nn
from einops import rearrange
import notthere

from .parts import bent
from . import parts
import broken_requirement

logger = logging.getLogger(__name__)


class Soft(nn.Module):
    def forward(self, x):
        return x.softmax(-1)


class Other(nn.Module):
    def forward(self, x):
        return notthere.other(x)


ACTIVATIONS = {"soft": Soft, "other": Other}


class Block(nn.Module):
    \"\"\"A block.\"\"\"

    def __init__(self, dim: int, eps: float = 1e-5, affine: bool = True, mode: str = "plain"):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=affine) if mode in ("plain", "same") else nn.Identity()
        logger.warning("made")

    def forward(self, x):
        return bent(self.norm(x))

    def fused(self, x):
        return notthere.fused(x)


@dataclass
class Config:
    hidden_size: int = 768
    act: str = "soft"


class Inner(nn.Module):
    def __init__(self, config: Config, head: nn.Module, heads: int = 4):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.hidden_size)
        self.act, self.head, self.heads = ACTIVATIONS[config.act](), head, heads

    def forward(self, x, mask=None):
        x = rearrange(self.up(x), "b n (h d) -> b h n d", h=self.heads)
        return self.head(rearrange(self.act(parts.bent(x)), "b h n d -> b n (h d)"))


class Net(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.inner = Inner(config, Block(config.hidden_size), heads=2)

    def forward(self, x):
        return self.inner(x)


class Nothing(nn.Sequential):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks


class Needs(nn.Module):
    def forward(self, x):
        return json.dumps(x)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of an MIT licence, one of whose requirements is missing, and another cannot be loaded."""
    package = tmp_path / "site" / "somelayers"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("parts", PARTS), ("block", BLOCK)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "site" / "broken_requirement.py").write_text('raise OSError("a library was built for another release")\n')
    info = tmp_path / "site" / "somelayers-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: somelayers\nVersion: 1.2\nLicense-Expression: MIT\n")
    (info / "RECORD").write_text("somelayers/__init__.py,,\nsomelayers-1.2.dist-info/METADATA,,\n")
    (info / "top_level.txt").write_text("somelayers\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return package


def test_every_module_inside_of_a_model_becomes_a_problem_of_its_own(package: Path, tmp_path: Path) -> None:
    out = tmp_path / "found"
    told = CliRunner().invoke(pairs, ["harvest", "somelayers", "-o", str(out), "--workers", "1"], catch_exceptions=False).output
    texts = {p.name: p.read_text() for p in out.glob("*.py")}
    of = {name: [t for n, t in texts.items() if n.startswith(f"somelayers.block.{name}.")] for name in ("Block", "Inner", "Net", "Soft")}
    assert all(of.values())
    assert not [name for name in texts if "Nothing" in name], "what gives its inputs back is no problem"
    assert all(word not in text for text in texts.values() for word in ("somelayers", "logger", "fused", "Other", "einops", "A block"))
    assert any("return [32]" in t for t in of["Block"])
    assert any("return [32, 1e-05, False]" in t for t in of["Block"]), "a switch of the constructor makes another problem"
    assert any("return [32, 1e-05, True, 'same']" in t for t in of["Block"]), "and so does a word that it compares an argument with"
    assert "SLOPE = 0.25" in of["Block"][0]
    assert any("SimpleNamespace(act='soft', hidden_size=32)" in t and "heads=2" in t and "Block(32" in t for t in of["Inner"])
    for text in texts.values():
        scope: dict[str, object] = {}
        exec(text, scope)
        model = scope["Model"](*scope["get_init_inputs"]())  # type: ignore[operator]
        assert isinstance(model(*scope["get_inputs"]()), torch.Tensor)  # type: ignore[operator]
    origin = json.loads((out / "provenance.json").read_text())
    assert {(o["repo_name"], *o["licenses"]) for o in origin.values()} == {("somelayers 1.2", "MIT")}
    assert set(origin) == {name.removesuffix(".py") for name in texts}
    assert "left out" in told
    again = CliRunner().invoke(pairs, ["harvest", "somelayers", "-o", str(out), "--workers", "1"], catch_exceptions=False).output
    assert again.partition("problems in")[2] == told.partition("problems in")[2]
    assert {p.name: p.read_text() for p in out.glob("*.py")} == texts


def test_short_forms_of_einops_do_what_their_patterns_say() -> None:
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(rearrange(x, "b (h d) ... -> b h d ...", h=3), x.view(2, 3, 1, 4, 5))
    assert torch.equal(rearrange(x, "b c h w -> b (h w) c"), x.flatten(2).transpose(1, 2))
    assert torch.equal(rearrange(x, "... w -> w ..."), x.permute(3, 0, 1, 2))
    assert torch.equal(repeat(x[0, 0], "h w -> h n w 1", n=6), x[0, 0][:, None, :, None].expand(4, 6, 5, 1))
    assert torch.allclose(reduce(x, "b c (h p) w -> b c h", "mean", p=2), x.view(2, 3, 2, 2, 5).mean((3, 4)))
    assert torch.allclose(einsum(x, x, "batch c h w, batch c k w -> batch c h k"), x @ x.transpose(2, 3))
