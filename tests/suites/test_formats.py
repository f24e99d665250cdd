"""Other projects' formats: robust-kbench tasks, FlashInfer-Bench and SOL-ExecBench definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelllm.core.errors import UsageError
from kernelllm.problems.instance import Instance
from kernelllm.problems.shrink import shrunk
from kernelllm.problems.sizes import constants
from kernelllm.suites import open_suite

TASK = """
import torch
import torch.nn as nn

def forward_fn(x, weight, activation):
    y = x @ weight.T
    return torch.relu(y) if activation == "relu" else y

class Model(nn.Module):
    def __init__(self, num_features, out_features=16, activation="relu"):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.randn(out_features, num_features))
        self.activation = activation

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.activation)

def get_inputs(batch_size, num_features):
    return {"x": torch.randn(batch_size, num_features)}

input_names = ["x"]
"""

CONFIG = {
    "single_input_configs": [{"batch_size": 4096}],
    "multi_input_configs": [{"batch_size": 4096}, {"batch_size": 128}],
    "single_init_configs": [{"out_features": 64}],
    "multi_init_configs": [{"out_features": 64, "activation": "none"}],
    "single_shared_configs": [{"num_features": 512}],
    "multi_shared_configs": [{"num_features": 512}, {"num_features": 96}],
}

DEFINITION: dict[str, Any] = {
    "name": "scale_rows_h64",
    "op_type": "scale",
    "description": 'Scales "rows".',
    "tags": ["status:test"],
    "axes": {
        "rows": {"type": "var"},
        "hidden": {"type": "const", "value": 64},
        "half": {"type": "expr", "expression": "hidden // 2"},
    },
    "inputs": {
        "x": {"shape": ["rows", "hidden"], "dtype": "bfloat16"},
        "weight": {"shape": ["half"], "dtype": "float32"},
        "factor": {"shape": None, "dtype": "float32"},
        "index": {"shape": ["rows"], "dtype": "int64"},
    },
    "outputs": {"y": {"shape": ["rows", "half"], "dtype": "float32"}},
    "reference": "import torch\n\n@torch.no_grad()\ndef run(x, weight, factor, index):\n"
    "    return x[index, : weight.shape[0]].float() * weight * factor",
}


def test_robust_kbench_tasks_by_setting_forward_and_backward(tmp_path: Path) -> None:
    for direction in ("forward", "backward"):
        (tmp_path / "linear").mkdir(exist_ok=True)
        (tmp_path / "linear" / f"func_{direction}.py").write_text(TASK)
        (tmp_path / "linear" / f"config_{direction}.json").write_text(json.dumps(CONFIG))
    found = {p.name: p for p in open_suite(f"robust-kbench/{tmp_path}").problems()}
    assert set(found) == {f"linear/{d}{n}" for d in ("forward", "backward") for n in ("", "-2", "-3", "-4")}
    shapes = {tuple(Instance(found[f"linear/forward{n}"]).inputs(0)[0].shape) for n in ("", "-2", "-3", "-4")}
    assert shapes == {(4096, 512), (4096, 96), (128, 512), (128, 96)}
    assert Instance(found["linear/forward"]).model(0).activation == "none"
    instance = Instance(found["linear/backward"], shrunk(found["linear/backward"])[0])
    (x,) = instance.inputs(0)
    model = instance.model(0)
    dx, dweight = model(x)
    assert (dx.shape, dweight.shape) == (x.shape, model.weight.shape)
    grad = torch.cos(torch.arange(x.shape[0] * model.weight.shape[0])).view(x.shape[0], -1)
    assert torch.allclose(dx, grad @ model.weight, atol=1e-4)
    first, second = (constants(found["linear/forward"]) | sizes for sizes in shrunk(found["linear/forward"]))
    assert first["setting_num_features"] != second["setting_num_features"]
    single = [p.name for p in open_suite(f"robust-kbench/{tmp_path}?settings=single").problems()]
    assert single == ["linear/backward", "linear/forward"]
    (tmp_path / "linear" / "config_forward.json").write_text('{"single_shared_configs": [{"num_features": 512}]}')
    (tmp_path / "linear" / "func_forward.py").write_text(TASK.replace("(batch_size, num_features)", "(batch_size=96, num_features=8)", 1))
    defaults = next(p for p in open_suite(f"robust-kbench/{tmp_path}").problems() if p.name == "linear/forward")
    assert constants(defaults) == {"setting_out_features": 16, "setting_num_features": 512, "setting_batch_size": 96}


CASES = """
import json
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x, dim, keep):
        return x.sum(dim, keepdim=keep)

def get_input_groups():
    json_path = os.path.join(os.path.dirname(__file__), "1_sum.json")
    with open(json_path, "r") as f:
        cases = [json.loads(line) for line in f if line.strip()]
    groups = []
    for case in cases:
        x, dim, keep = case["inputs"]
        groups.append([torch.randn(x["shape"]), dim["value"], keep["value"]])
    return groups

def get_init_inputs():
    return []
"""


def test_multikernelbench_cases_are_problems_with_sizes_that_can_change(tmp_path: Path) -> None:
    folder = tmp_path / "reference" / "npu"
    folder.mkdir(parents=True)
    (folder / "1_sum.py").write_text(CASES)
    values = [{"name": "dim", "value": -1}, {"name": "keep", "value": True}]
    lines = [json.dumps({"inputs": [{"name": "x", "dtype": "float32", "shape": shape}, *values]}) for shape in ([4096, 33], [7, 5, 3])]
    (folder / "1_sum.json").write_text("\n".join(lines) + "\n")
    (folder / "helper.py").write_text("x = 1\n")
    suite = open_suite(f"multikernelbench/{tmp_path}")
    first, second = suite.problems()
    assert (first.name, second.name, list(suite.skipped)) == ("npu/1_sum/1", "npu/1_sum/2", ["npu/helper"])
    assert [tuple(Instance(p).inputs(0)[0].shape) for p in (first, second)] == [(4096, 33), (7, 5, 3)]
    assert Instance(first).inputs(0)[1:] == [-1, True]
    assert all(sizes["case_x_shape"] != (4096, 33) for sizes in shrunk(first))
    assert [p.name for p in open_suite(f"multikernelbench/{tmp_path}?cases=first").problems()] == ["npu/1_sum/1"]
    with pytest.raises(UsageError):
        open_suite(f"multikernelbench/{tmp_path}?cases=some")


def lay_out(folder: Path, *workloads: dict[str, Any], **changes: Any) -> Path:
    """A data set of one definition with these workloads."""
    (folder / "definitions" / "scale").mkdir(parents=True)
    (folder / "definitions" / "scale" / "one.json").write_text(json.dumps({**DEFINITION, **changes}))
    (folder / "workloads").mkdir()
    lines = [json.dumps({"definition": DEFINITION["name"], "workload": w, "solution": None, "evaluation": None}) for w in workloads]
    (folder / "workloads" / "one.jsonl").write_text("\n".join(lines))
    return folder


RANDOM = {"x": {"type": "random"}, "weight": {"type": "random"}, "factor": {"type": "scalar", "value": 2.0}, "index": {"type": "random"}}


def test_definitions_and_workloads(tmp_path: Path) -> None:
    lay_out(tmp_path, {"uuid": "a", "axes": {"rows": 4096}, "inputs": RANDOM}, {"uuid": "b", "axes": {"rows": 5}, "inputs": RANDOM})
    problems = list(open_suite(f"flashinfer/{tmp_path}").problems())
    assert [p.name for p in problems] == ["scale_rows_h64/0", "scale_rows_h64/1"]
    assert problems[0].tags == ("scale", "status:test")
    x, weight, factor, index = Instance(problems[1]).inputs(0)
    assert (tuple(x.shape), x.dtype, tuple(weight.shape), factor, index.dtype) == ((5, 64), torch.bfloat16, (32,), 2.0, torch.int64)
    y = Instance(problems[1]).model(0)(x, weight, factor, index)
    assert torch.equal(y, x[index, :32].float() * weight * 2.0)
    first, second = shrunk(problems[0])
    assert first["rows"] < 4096
    assert second["rows"] != first["rows"]
    assert len(list(open_suite(f"sol-execbench/{tmp_path}?workloads=1").problems())) == 1


def test_custom_inputs_from_the_reference(tmp_path: Path) -> None:
    reference = DEFINITION["reference"] + (
        "\n\ndef get_inputs(axes_and_scalars, device):\n    n, h = axes_and_scalars['rows'], axes_and_scalars['half']\n"
        "    return {'x': torch.ones(n, 2 * h, device=device), 'weight': torch.full((h,), 3.0), 'factor': 2.0,\n"
        "            'index': torch.arange(n).flip(0)}\n"
    )
    custom = {key: {"type": "custom"} for key in DEFINITION["inputs"]}
    lay_out(tmp_path, {"uuid": "a", "axes": {"rows": 4}, "inputs": custom}, reference=reference, custom_inputs_entrypoint="get_inputs")
    (problem,) = open_suite(f"flashinfer/{tmp_path}").problems()
    instance = Instance(problem, {"rows": 6})
    inputs = instance.inputs(0)
    assert torch.equal(inputs[3], torch.arange(6).flip(0))
    assert torch.equal(instance.model(0)(*inputs), torch.full((6, 32), 6.0))


@pytest.mark.parametrize(
    ("changes", "workload", "why"),
    [
        ({"reference": "def go(): pass"}, {}, "no run"),
        ({"axes": {**DEFINITION["axes"], "half": {"type": "expr", "expression": "__import__('os').getpid()"}}}, {}, "not arithmetic"),
        ({}, {"axes": {}}, "no whole number for the axis rows"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float4_e2m1"}}}, {}, "float4_e2m1"),
    ],
)
def test_what_cannot_be_expressed_is_left_out_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], workload: dict[str, Any], why: str
) -> None:
    lay_out(tmp_path, {"uuid": "a", "axes": {"rows": 4}, "inputs": RANDOM, **workload}, **changes)
    with pytest.raises(UsageError, match=why):
        list(open_suite(f"flashinfer/{tmp_path}").problems())
