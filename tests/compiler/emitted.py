"""The six examples through the compiler, once a session, and their golden files.

``python tests/compiler/emitted.py`` writes the golden files anew.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import interpreted

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Problem

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
NAMES = ("hinge_loss", "softmax", "rms_norm", "linear_gelu", "conv_relu_bias", "attention")


def example(name: str) -> Problem:
    """An example as a problem."""
    path = ROOT / "examples" / f"{name}.py"
    return Problem(name=name, source=path.read_text(encoding="utf-8"), path=str(path))


@cache
def written(name: str, **options: object) -> str:
    """The file that the compiler writes for an example."""
    chosen = Options(**options)  # type: ignore[arg-type]
    return compiled(example(name), chosen)


RUN = """
import importlib.util, os
import torch
from kernelllm.backends.base import Mode, open_backend
from kernelllm.core.types import DEFAULT_BACKEND, Problem
from kernelllm.judge.worker import setup
from kernelllm.problems.instance import Instance
expected = []  # references run before the worker's stand-ins are there
for name, file, sizes in {cases!r}:
    path = os.path.join({folder!r}, name + ".py")
    problem = Problem(name=name, source=open(path).read(), path=path)
    for overrides in sizes:
        instance = Instance(problem, overrides)
        reference, inputs = instance.model(0), instance.inputs(1)
        with torch.no_grad():
            expected.append((file, instance.init_inputs(0), reference.state_dict(), inputs, reference(*inputs)))
setup.prepare(Mode.INTERPRET, "sm_90", open_backend(DEFAULT_BACKEND))
for file, (args, kwargs), state, inputs, results in expected:
    spec = importlib.util.spec_from_file_location("candidate", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew(*args, **kwargs)
    model.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), results, atol=1e-4, rtol=1e-4)
print("ran")
"""


def agrees_with_reference(folder: Path, cases: list[tuple[str, str, list[dict[str, object]]]]) -> None:
    """Run each case, a problem's name in ``folder``, the file written for it and sizes to try, in Triton's interpreter."""
    script = RUN.format(cases=cases, folder=str(folder))
    assert interpreted.run(script).strip().endswith("ran")


if __name__ == "__main__":
    for each in NAMES:
        (GOLDEN / f"{each}.py.txt").write_text(written(each), encoding="utf-8")
