"""Sizes are named by what a reader of the problem knows."""

from kernelllm.problems.readable_sizes import readable

SOURCE = """
import torch
class Model:
    def __init__(self, width, depth): ...
    def forward(self, ids, x, scale): ...
def get_inputs():
    x = torch.randn(2, 1, 64)
    return [torch.randint(0, 100, (40, 3)), x.cuda(), torch.rand((7,))]
def get_init_inputs():
    return [128, 10]
"""


def test_names_are_the_arguments_and_their_dimensions() -> None:
    found = readable(SOURCE)
    assert {found[f"get_init_inputs_0_dim{i}"] for i in range(2)} == {"width", "depth"}
    assert set(found.values()) == {"width", "depth", "ids below", "ids dim 0", "ids dim 1", "scale dim 0"}


def test_inputs_that_are_made_alike_share_a_name() -> None:
    same = SOURCE.replace("[torch.randint(0, 100, (40, 3)), x.cuda(), torch.rand((7,))]", "[torch.randn(8, 4) for _ in range(3)]")
    assert {name: text for name, text in readable(same).items() if "ids" in text} == {
        "get_inputs_1_dim0": "ids, x, scale dim 0", "get_inputs_1_dim1": "ids, x, scale dim 1",
    }  # fmt: skip


def test_a_module_that_is_no_problem_by_itself_has_its_own_names() -> None:
    alias = SOURCE.replace("class Model:", "class Block:").replace("def get_inputs", "Model = Block\ndef get_inputs")
    assert readable(alias.replace("[128, 10]", "[[128, 10], {}]")) == readable(SOURCE)
    derived = SOURCE.replace("class Model:", "class Block:").replace("def get_inputs", "class Model(Block): pass\ndef get_inputs")
    assert readable(derived) == readable(SOURCE)
