"""Launches of one kernel that do not wait for each other are one launch."""

import ast

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import compiled
from kernelllm.compiler.emit.host_steps import HostProgram
from kernelllm.compiler.emit.moved_steps import Access, Order
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Launch
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

PARTS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(9))
    def forward(self, x):
        LINES
batch, width = 6, 16
def get_inputs(): return [torch.randn(batch, width)]
def get_init_inputs(): return [width]
"""
ALL = "return torch.cat([torch.tanh(layer(x)) for layer in self.layers], 1)"
EACH = """for layer in self.layers:
            x = torch.tanh(layer(x))
        return x"""


def path(lines: str) -> tuple[str, str]:
    source = compiled(problem(PARTS.replace("LINES", lines)), Options(fixed=True, mixed=True))
    return source, source.split("def forward_at_known_sizes")[1]


def test_parts_of_a_concatenation_are_one_launch(hybrid: Judge) -> None:
    source, known = path(ALL)
    assert known.count("_kernel[") == 1
    assert "_of_9_kernel[" in known
    verdict = hybrid.judge(problem(PARTS.replace("LINES", ALL)), Candidate(source=source))
    assert verdict.correct, verdict.message


def test_steps_that_read_each_other_s_results_stay_apart() -> None:
    _, known = path(EACH)
    assert known.count("_kernel[") == 9


@pytest.mark.parametrize(("one", "other", "meets"), [
    (((4, 8), (32, 1), 0), ((4, 8), (32, 1), 8), False),  # neighbours among the columns
    (((4, 8), (32, 1), 0), ((4, 9), (32, 1), 31), True),  # into the next row
    (((4, 8), (32, 1), 0), ((2, 32), (32, 1), 128), False),  # the rows behind
    (((4, 8), (32, 1), 0), ((1, 1), (1, 1), 7), True),
    (((2, 3, 4), (48, 16, 1), 4), ((2, 3, 4), (48, 16, 1), 12), False),
])  # fmt: skip
def test_parts_of_a_buffer_that_have_no_element_in_common(one, other, meets: bool) -> None:
    first, second = (Access("buffer", True, *part) for part in (one, other))
    assert first.meets(second) == meets
    assert not Access("buffer", False, *one).meets(Access("buffer", False, *other))
    assert Access("buffer", True).meets(second)


def test_buffers_that_a_launch_knows_by_another_name_are_made_before_it() -> None:
    """A kernel that fills a buffer in place gives it a new name."""
    size = ast.parse("(8,)", mode="eval").body
    first, second = (Launch("fill", {"out_ptr0": ast.Name(name)}) for name in ("filled_1", "filled_2"))
    reader = Launch("read", {"in_ptr0": ast.Name("filled_1"), "out_ptr0": ast.Name("result")})
    places = [Allocate(name, size, size, "torch.float32", "cuda") for name in ("made_1", "result", "made_2")]
    program = HostProgram([*places[:2], first, reader, places[2], second], [], {}, same={"filled_1": "made_1", "filled_2": "made_2"})
    order = Order(program)
    assert not order.together([first], second, later=True)
    assert order.together([first], second, later=False)
    joined = Launch("both", {"out_ptr0": ast.Name("filled_1"), "out_ptr1": ast.Name("filled_2")})
    order.replace([first, second], joined, later=False)
    assert order.items == [*places, joined, reader]
