"""Looking at a problem and counting its floor leave torch's compiler and sympy alone."""

import subprocess
import sys

_SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.gate = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Linear(6, 6)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        y = torch.softmax(torch.nn.functional.gelu(y) * torch.sigmoid(self.gate(y)), dim=-1)
        return torch.nn.functional.layer_norm(y, y.shape[-1:]).mean()

def get_inputs():
    return [torch.randn(2, 4, 8, 8)]

def get_init_inputs():
    return []
"""
_LOOK = f"""
import sys
from kernelllm.core.types import Problem
from kernelllm.judge.timing.roofline import floor_of
from kernelllm.problems.first_run import first_run
from kernelllm.problems.meta_tensors import meta_tensors
from kernelllm.problems.shrink import shrunk

problem = Problem(name="p", source={_SOURCE!r})
way, trace = first_run(problem)
assert way == "meta" and trace.flops > 0
assert list(shrunk(problem, count=2))
floor = floor_of(problem, "sm_90")
assert floor is not None and floor.bytes > 0
assert not {"torch._dynamo", "sympy", "torch.fx.experimental.symbolic_shapes"} & sys.modules.keys()
with meta_tensors():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv, guard_or_false, sym_eq
    assert guard_or_false(True) and sym_eq([1, 2], (1, 2)) and isinstance(ShapeEnv(), ShapeEnv)
    import sympy.core
    assert sympy.Basic is sympy.core.Basic and sympy.__spec__
import torch
torch._dynamo.reset()
compiled = torch.compile(lambda x: torch.relu(x) * 2, backend="eager", fullgraph=True)
with torch.device("meta"):
    assert compiled(torch.ones(3)).shape == (3,)
print("done")
"""


def test_a_problem_is_looked_at_without_importing_dynamo_and_sympy_which_work_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr
