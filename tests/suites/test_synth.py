"""Problems drawn from the grammar: stable, varied, and they run."""

from __future__ import annotations

import ast
from collections import Counter
from contextlib import suppress

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelllm.compiler.stepwise.step_values import Unsupported
from kernelllm.compiler.stepwise.steps_writer import written
from kernelllm.core.errors import UsageError
from kernelllm.suites import open_suite


def test_the_same_seed_and_number_give_the_same_text() -> None:
    some = list(open_suite("synth/3/40-44").problems())
    assert [p.digest for p in some] == [p.digest for p in list(open_suite("synth/3/50").problems())[40:44]]
    assert {p.digest for p in some}.isdisjoint(p.digest for p in open_suite("synth/4/40-44").problems())


def test_every_problem_runs_and_they_differ() -> None:
    problems = list(open_suite("synth/1/120").problems())
    operators: Counter[str] = Counter()
    for problem in problems:
        names: dict[str, object] = {}
        text = problem.source.replace("        self.to(torch.bfloat16)\n", "").replace("        self.to(torch.float16)\n", "")
        with FakeTensorMode(allow_non_fake_inputs=True):
            exec(text.replace(", dtype=torch.bfloat16", "").replace(", dtype=torch.float16", ""), names)
            out = names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]())  # type: ignore[operator]
        assert all(isinstance(one, torch.Tensor) for one in (out if isinstance(out, tuple) else (out,))), problem.name
        operators.update(problem.tags[1:])
    assert len({ast.dump(ast.parse(p.source)) for p in problems}) == len(problems)
    assert len(operators) > 50


def test_what_people_begin_with_is_drawn_and_written_step_by_step() -> None:
    problems = list(open_suite("synth/5/120").problems())
    begun = ("nn.Sequential(", "torch.where(", ".mean(-1, keepdim=True)", "residual", "F.gelu(", "transpose(-2, -1)", "grad")
    assert all(any(text in p.source for p in problems) for text in begun)
    files = []
    for problem in problems:
        with suppress(Unsupported):
            files.append(written(problem))
    assert len(files) > 0.95 * len(problems)
    assert sum("def steps(" in file for file in files) > 0.5 * len(files)


def test_another_form_of_its_name_is_refused() -> None:
    with pytest.raises(UsageError, match="SEED"):
        open_suite("synth/many")
