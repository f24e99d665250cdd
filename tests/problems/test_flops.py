"""FLOPs by PyTorch's table: no operator in it is missed."""

from torch.utils.flop_counter import flop_registry

from kernelllm.problems.flops import _torchs


def test_every_operator_of_torchs_table_is_found_by_its_name() -> None:
    assert [str(packet) for packet in flop_registry if _torchs(packet) is None] == []
