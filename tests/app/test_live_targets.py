"""What a command line may name beside a problem: a Hugging Face configuration, a submodule, a module in a mode or dtype, odd inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelllm.app.live.module_capture import captured, in_mode, problem_of
from kernelllm.app.live.targets import TargetOptions, opened
from kernelllm.core.errors import ProblemError, UsageError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.instance import Instance
from kernelllm.problems.wrap import Arguments

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(d), nn.Dropout(0.5)

    def forward(self, x, *, scale=1.0, mask=None):
        y = self.drop(self.norm(x)) * scale
        return y if mask is None else y * mask

class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(config.width))

class Plain(nn.Module):
    def forward(self, x, mask=None, scale=1.0):
        return x * scale if mask is None else x * mask * scale

def pair():
    return (torch.ones(4, 8),), {"scale": 2.0}

def by_name():
    return {"x": torch.ones(4, 8), "scale": 2.0}

def shorter():
    return {"scale": 3.0, "x": torch.ones(4, 8), "mask": torch.zeros(4, 8)}

def sets():
    return [(torch.ones(4, 8),), (torch.ones(6, 8),)]

def misfits():
    return [(torch.ones(4, 8),), (torch.ones(4, 6),)]
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return str(path)


def result(problem: Problem) -> Any:
    instance = Instance(problem)
    return instance.model(0)(*instance.inputs(0))


def test_keyword_inputs_reach_forward(net: str) -> None:
    problem, remark = opened(net + ":Net", Arguments(inputs="pair"), TargetOptions())
    torch.manual_seed(0)
    assert "eval() mode" in remark
    instance = Instance(problem)
    (x,) = instance.inputs(0)
    model = instance.model(0)
    want = torch.nn.functional.layer_norm(x, (8,), model.norm.weight, model.norm.bias) * 2
    torch.testing.assert_close(model(x), want)
    with pytest.raises(ValueError, match=r"scale=2\.0"):
        model(x, scale=1.0)
    problem, _ = opened(net + ":Plain", Arguments(inputs="by_name"), TargetOptions())
    assert bool((result(problem) == 2 * Instance(problem).inputs(0)[0]).all())
    problem, _ = opened(net + ":Plain", Arguments(inputs="shorter"), TargetOptions())
    assert bool((result(problem) == 0).all())
    assert "size" not in sizes.constants(problem)


def test_several_sets_fit_one_graph_or_are_refused(net: str) -> None:
    problem, _ = opened(net + ":Plain", Arguments(inputs="sets"), TargetOptions())
    assert sizes.constants(problem)["size0"] == 4
    with pytest.raises(UsageError, match="a size 6 where 8 is fixed"):
        opened(net + ":Net", Arguments(inputs="misfits"), TargetOptions())


def test_more_shapes_than_arguments_are_one_set_that_does_not_fit(net: str) -> None:
    with pytest.raises(UsageError, match="too many positional arguments"):
        opened(f"{net}:Net", Arguments(shapes=("4,8", "4,8", "4,8")), TargetOptions(train=False))


def test_a_class_that_is_made_of_a_configuration_says_so(net: str) -> None:
    with pytest.raises(ProblemError, match="Configured is made of a configuration: name a folder or a config"):
        opened(f"{net}:Configured", Arguments(shapes=("4,8",), init="8"), TargetOptions())


def test_mode_and_dtype(net: str, examples: Path) -> None:
    shapes = Arguments(shapes=("4,8",))
    problem, remark = opened(net + ":Net", shapes, TargetOptions(train=True))
    assert (remark, Instance(problem).model(0).training) == ("", True)
    problem, remark = opened(net + ":Net", shapes, TargetOptions(train=False, model_dtype="bfloat16"))
    assert (remark, result(problem).dtype, Instance(problem).model(0).training) == ("", torch.bfloat16, False)
    with pytest.raises(UsageError, match="this is a problem"):
        opened(str(examples / "hinge_loss.py"), Arguments(), TargetOptions(submodule="norm"))


def test_a_hugging_face_configuration_and_its_submodules(tmp_path: Path) -> None:
    small = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 50, **small}
    (tmp_path / "config.json").write_text(json.dumps(config))
    problem, _ = opened(str(tmp_path), Arguments(), TargetOptions())
    logits = result(problem)
    assert logits[0].shape == (2, 16, 50) if isinstance(logits, tuple) else logits["logits"].shape == (2, 16, 50)
    layer, _ = opened(str(tmp_path / "config.json"), Arguments(shapes=("3,5:int64",)), TargetOptions(submodule="model.layers.0"))
    model = Instance(layer).model(0)
    assert {"self_attn.q_proj.weight", "mlp.down_proj.weight"} <= set(model.state_dict())
    assert Instance(layer).inputs(0)[0].shape == (3, 5, 32)
    with pytest.raises(UsageError, match=r"Did you mean model\.layers\.0\?"):
        opened(str(tmp_path), Arguments(), TargetOptions(submodule="model.layers.7"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="No model can be made of it"):
        opened(str(tmp_path), Arguments(), TargetOptions())


class _Grouped(torch.nn.Module):
    """What Hugging Face's experts call where torch.export traces them in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 8, 4))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = torch.ops.transformers.grouped_mm_fallback(x, self.weight, ends)
        return product


@torch.no_grad()
def test_the_grouped_product_of_hugging_faces_experts_is_torchs() -> None:
    pytest.importorskip("transformers.integrations.moe")
    module = _Grouped()
    x, ends = torch.randn(12, 8), torch.tensor([5, 5, 12], dtype=torch.int32)
    with in_mode(module, train=False):
        model = Instance(problem_of(module, captured(module, ((x, ends), {})), "grouped")).model(0)
    model.load_state_dict(module.state_dict())
    torch.testing.assert_close(model(x, ends), module(x, ends))
