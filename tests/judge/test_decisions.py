"""What hangs on a decision is right where rounding may have turned it, and wrong elsewhere."""

from __future__ import annotations

import torch

from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge.trials.comparison.compare import Rules
from kernelllm.judge.trials.inputs.input_distribution import STEPS, draw
from kernelllm.judge.trials.reference_runs.reference import prepare

_LEVELS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x / (x.abs().amax(-1, keepdim=True) / LEVELS)).round()
def get_inputs():
    return [torch.randn(4, 16, dtype=torch.float16)]
def get_init_inputs():
    return []
"""


def test_ties_of_rounded_numbers_fall_by_rounding_and_others_do_not() -> None:
    found = {}
    for levels in (7, 8):  # an eighth of a simple fraction is one
        problem = Problem(name="p", source=_LEVELS.replace("LEVELS", str(levels)))
        reference = prepare(problem, SizeSet(label="original"), {}, "cpu", 0, True)
        for how in ("even", "up"):
            ok = []
            for seed in range(8):
                (x,) = inputs = draw(reference, STEPS, seed, seed) or []
                scaled = x.float() / (x.float().abs().amax(-1, keepdim=True) / levels)
                mine = scaled.round() if how == "even" else torch.floor(scaled + 0.5)
                run = reference.run(inputs, seed, first=True)
                ok.append(run.compared(mine.half(), Rules(scaled=True, precise=False), exact=True).ok)
            found[levels, how] = ok
    assert all(found[7, "even"]), "no rounding of the reference's is promised"
    assert all(found[8, "even"])
    assert not all(found[8, "up"])


_FIRES = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 128, bias=False, dtype=torch.float16)
    def forward(self, x):
        potential, spikes = torch.zeros(4, 128, dtype=x.dtype), []
        for t in range(8):
            potential = potential * 0.9 + self.layer(x[:, t])
            spikes.append((potential >= 0.25).to(x.dtype))
            potential = potential - spikes[-1] * 0.25
        return torch.stack(spikes, 1)
def get_inputs():
    return [torch.randn(4, 8, 64, dtype=torch.float16)]
def get_init_inputs():
    return []
"""


def test_a_spike_that_no_rounding_turns_is_wrong_and_those_that_it_may_turn_are_not() -> None:
    reference = prepare(Problem(name="p", source=_FIRES), SizeSet(label="original"), {}, "cpu", 0, True)
    weight, flips = reference.model.get_parameter("layer.weight").detach().float(), 0
    for seed in range(8):
        (x,) = inputs = reference.inputs(seed)
        run = reference.run(inputs, seed, first=True)
        potential, spikes, far = torch.zeros(4, 128), [], []
        for t in range(8):  # in float32, as a kernel keeps it
            potential = potential * 0.9 + x[:, t].float() @ weight.T
            spikes.append((potential >= 0.25).float())
            far.append((potential - 0.25).abs())
            potential = potential - spikes[-1] * 0.25
        mine = torch.stack(spikes, 1).half()
        flips += int((mine != run.expected.value).sum())
        assert run.compared(mine, Rules()).ok
        dropped = mine.clone()
        last = int(far[-1][0].argmax())  # the furthest from the threshold
        dropped[0, -1, last] = 1 - dropped[0, -1, last]
        assert not reference.run(inputs, seed, first=True).compared(dropped, Rules()).ok
        if flips:
            break
    assert flips, "rounding turned some"
