"""What the emitter writes for the six examples: golden files, and the rules that every file keeps."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from emitted import GOLDEN, NAMES, ROOT, agrees_with_reference, example, written

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="golden files hold what torch 2.13's Inductor writes")
def test_golden(name: str) -> None:
    expected = (GOLDEN / f"{name}.py.txt").read_text(encoding="utf-8")
    assert written(name) == expected, "if this change is meant: python tests/compiler/emitted.py"


@pytest.mark.parametrize("name", NAMES)
def test_standalone(name: str) -> None:
    tree = ast.parse(written(name))
    modules = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    modules |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {m.split(".")[0] for m in modules} <= {"torch", "triton", "math"}
    assert "_inductor" not in written(name)
    assert "triton_helpers" not in written(name)
    for node in tree.body:  # nothing runs on import
        assert isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign)


@pytest.mark.parametrize("name", NAMES)
def test_reads_well(name: str) -> None:
    text = written(name)
    assert max(map(len, text.splitlines())) <= 120
    names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    assert not [n for n in names if re.match(r"(tmp|buf|arg|ks|ps)\d|xnumel|r0_", n)]
    kernels = [ast.unparse(n) for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name.endswith("_kernel")]
    assert not [k for k in kernels if " True" in k]  # no mask that is always true


@pytest.mark.parametrize("name", NAMES)
def test_same_constructor(name: str) -> None:
    reference = next(n for n in ast.parse(example(name).source).body if isinstance(n, ast.ClassDef) and n.name == "Model")
    new = next(n for n in ast.parse(written(name)).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")

    def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
        return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}

    assert methods(new).keys() == methods(reference).keys()
    assert ast.unparse(methods(new)["forward"].args) == ast.unparse(methods(reference)["forward"].args)
    if "__init__" in methods(reference):
        made, original = methods(new)["__init__"], methods(reference)["__init__"]
        refuse = ("keep_layers(", "self._layers =", "self._settings =")  # as conditions do, what kernels do not do
        own = [s for s in made.body if isinstance(s, ast.If) or ast.unparse(s).startswith(refuse)]
        made.body = [s for s in made.body if s not in own]
        assert ast.unparse(made) == ast.unparse(original).replace("Model,", "ModelNew,")


def test_right_at_sizes_never_seen(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The files run in Triton's interpreter at sizes that divide by nothing and agree with the reference."""
    cases = []
    for name, sizes in (
        ("softmax", [{"batch_size": 3, "features": 37}, {"batch_size": 5, "features": 1}]),
        ("rms_norm", [{"batch_size": 2, "tokens": 3, "features": 19}]),
        ("hinge_loss", [{"batch_size": 7, "input_shape": (13,)}, {"batch_size": 64, "input_shape": (333,)}]),
    ):
        for variant in ({}, {"autotune": True}, {"persistent": "never", "tile": "small"}):
            file = tmp_path / f"{name}_{len(cases)}.py"
            file.write_text(written(name, **variant), encoding="utf-8")
            cases.append((name, str(file), sizes))
    agrees_with_reference(ROOT / "examples", cases)


@pytest.mark.parametrize(("name", "fixed"), [
    ("softmax", set()), ("hinge_loss", set()), ("rms_norm", {"features"}), ("conv_relu_bias", {"out_channels"}),
])  # fmt: skip
def test_only_tiles_and_sizes_of_the_module_are_constants(name: str, fixed: set[str]) -> None:
    """A new batch size or sequence length compiles no kernel anew, but for Triton's own cases (1, multiples of 16, others)."""
    kernels = [n for n in ast.parse(written(name)).body if isinstance(n, ast.FunctionDef) and n.name.endswith("_kernel")]
    constants = {a.arg for k in kernels for a in k.args.args if a.annotation is not None}
    assert {c for c in constants - fixed if not c.isupper()} == set()  # capitals: tiles, and what a template specialises on


def test_variants_differ() -> None:
    texts = {written("rms_norm", **v) for v in ({}, {"autotune": True}, {"tile": "small"})}
    assert len(texts) == 3
    assert "@triton.autotune" in written("rms_norm", autotune=True)


def test_kernels_for_one_size_refuse_another(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(example("softmax").source, encoding="utf-8")
    file = tmp_path / "candidate.py"
    file.write_text(written("softmax", symbolic=False), encoding="utf-8")
    with pytest.raises(AssertionError, match="the kernels take"):
        agrees_with_reference(tmp_path, [("softmax", str(file), [{"batch_size": 5, "features": 70}])])


LOOP = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x, state):
        for t in range(x.shape[0]):
            state = torch.tanh(state * (t + 1) + x[t])
        return state
steps, width = 5, 37
def get_inputs():
    return [torch.rand(steps, width), torch.rand(width)]
"""


def test_an_unrolled_loop_refuses_another_length_and_follows_other_sizes(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP, encoding="utf-8")
    file = tmp_path / "candidate.py"
    file.write_text(compiled(Problem(name="loop", source=LOOP), Options()), encoding="utf-8")
    agrees_with_reference(tmp_path, [("loop", str(file), [{"width": 12}])])
    with pytest.raises(AssertionError, match="the kernels take"):
        agrees_with_reference(tmp_path, [("loop", str(file), [{"steps": 3}])])
