"""What the user's own code may do by mistake: it is told of in seconds, with its line, and ends nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.text import LARGEST
from kernelllm.core.types import Problem
from kernelllm.problems import first_run, shrink
from kernelllm.suites.file import open_problem

SOURCE = """
import os
import sys
import time
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        {forward}
        return x + 1

def get_inputs():
    {inputs}
    return [torch.rand({shape})]

if __name__ == "__main__":
    os._exit(3)
"""


def problem(forward: str = "pass", inputs: str = "pass", shape: str = "4, 8") -> Problem:
    """The source above with something else in it."""
    return Problem(name="p", source=SOURCE.format(forward=forward, inputs=inputs, shape=shape))


def refused(one: Problem) -> str:
    """Why it is."""
    with pytest.raises(ProblemError) as caught:
        first_run.first_run(one)
    return caught.value.what


@pytest.mark.parametrize("endless", ["while True: x = 1", "time.sleep(1e6)", "threading.Event().wait()"])
@pytest.mark.parametrize("place", ["inputs", "forward"])
def test_what_does_not_come_back_is_given_up_and_its_line_told(
    place: str, endless: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first_run, "SECONDS", 0.3)
    monkeypatch.setattr(first_run, "REMARK_SECONDS", 0.1)
    endless = endless.replace("threading", "import threading; threading")
    told = refused(problem(**{place: endless}))
    assert "was not done after 0.3 s" in told
    assert endless in told
    assert ("get_inputs()" if place == "inputs" else "forward()") in told
    assert [line.partition("(")[0] for line in caplog.messages] == ["p: get_inputs" if place == "inputs" else "p: forward"]
    assert "() has not come back yet" in caplog.text
    assert "not done" in refused(problem(**{place: endless}))  # kept: nothing runs again


def test_dynamo_compiles_after_a_problem_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo
    import torch.nn.attention.flex_attention

    monkeypatch.setattr(first_run, "SECONDS", 0.3)
    refused(problem(forward="time.sleep(1e6)  # in a mode that it never leaves"))
    seen: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        seen.append(graph)
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    assert len(seen) == 1


@pytest.mark.parametrize("leaves", ["sys.exit(0)", "raise SystemExit", "raise KeyboardInterrupt", "quit()", "raise GeneratorExit"])
@pytest.mark.parametrize("place", ["inputs", "forward"])
def test_what_wants_to_end_the_process_is_an_error_of_the_problem(place: str, leaves: str) -> None:
    assert leaves in refused(problem(**{place: leaves}))


def test_an_exit_that_cannot_be_caught_is_refused_unseen() -> None:
    assert "os._exit on line 14" in refused(problem(inputs="os._exit(0)"))


def test_tensors_that_fit_nowhere_are_told_with_their_size_and_never_made() -> None:
    assert "inputs take 4.0 TB" in refused(problem(shape="10**6, 10**6"))
    layer = "def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(10**6, 10**6)\n\n    def forward"
    assert "parameters and buffers take 4.0 TB" in refused(Problem(name="p", source=problem().source.replace("def forward", layer)))


def test_what_fits_not_here_is_told_when_no_smaller_size_is_found() -> None:
    with pytest.raises(ProblemError, match=r"400 GB at the smallest sizes found"):
        shrink.shrunk(problem(inputs="n = int('1' + '0' * 11)", shape="n"))


def test_an_honest_problem_runs_once_and_from_any_thread() -> None:
    found: list[str] = []

    def look() -> None:
        found.append(first_run.first_run(problem(shape="3, 5"))[0])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["meta"] * 4




def test_a_file_that_is_too_large_is_not_parsed(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text(SOURCE + "x = 1\n" * (LARGEST // 6))
    with pytest.raises(ProblemError, match="larger than 2 MB"):
        open_problem(str(file))


def test_layers_without_sizes_are_named() -> None:
    lazy = SOURCE.replace("class Model(nn.Module):", "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                          "        self.fc = nn.LazyLinear(8)\n")  # fmt: skip
    said = refused(Problem(name="p", source=lazy.format(forward="x = self.fc(x)", inputs="pass", shape="4, 8")))
    assert "first call decides the size of fc.weight, fc.bias" in said
