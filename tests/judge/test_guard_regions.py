"""Writes outside of what a candidate allocated, which a GPU does not report."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from judge.problems import SQUARE, candidate, elementwise

from kernelllm.backends.base import IllegalAccess
from kernelllm.core.types import Status
from kernelllm.judge import Judge
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.judge.worker.guard_regions import GuardRegions

X = torch.randn(6, 5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(7, 3), lambda: torch.empty_like(X.t()), lambda: torch.zeros(9, dtype=torch.bfloat16),
        lambda: X.new_full((2, 3), 4.0), lambda: torch.ones_like(X), lambda: X.clone(), lambda: X.double(),
        lambda: torch.empty_strided((4, 3), (1, 4), dtype=torch.int64),
    ],
)  # fmt: skip
def test_a_byte_behind_a_new_tensor_is_found(make: Callable[[], torch.Tensor]) -> None:
    plain = make()
    with GuardRegions(guards=True) as regions:
        made = make()
    assert (made.shape, made.stride(), made.dtype, made.storage_offset()) == (plain.shape, plain.stride(), plain.dtype, 0)
    regions.check()
    with regions:
        made = make()
    ctypes.memset(made.data_ptr() + made.numel() * made.dtype.itemsize, 0, 1)
    with pytest.raises(IllegalAccess, match="0 bytes past"):
        regions.check()


@pytest.mark.parametrize("guards", [True, False])
def test_what_is_filled_is_filled_and_the_rest_is_poison(guards: bool) -> None:
    with GuardRegions(guards=guards) as regions:
        assert torch.empty(64).isnan().all()
        assert torch.empty(8, 4, dtype=torch.bfloat16).t()[1:].isnan().all()
        assert torch.equal(X.clone(), X)
        assert torch.equal(torch.full((3,), 2.5), torch.tensor([2.5, 2.5, 2.5]))
        total = torch.zeros(5)
        torch.sum(X, 0, out=total)
        total += torch.cat([X, X]).sum(0)
        view = torch.empty(4, 4).fill_(0.0)[1:, ::2].as_strided((2,), (1,), 0)
        assert torch.empty(3, device="meta").is_meta
        assert torch.zeros(3).to_sparse().is_sparse
        assert torch.empty(0).numel() == 0
    regions.check()
    torch.testing.assert_close(total, 3 * X.sum(0))
    assert (view == 0).all()


@pytest.mark.parametrize("guards", [True, False])
def test_what_is_resized_later_can_be(guards: bool) -> None:
    with GuardRegions(guards=guards) as regions:
        kept = torch.empty(4).fill_(1.0)
        grown = torch.empty(4).fill_(1.0).resize_(6).fill_(2.0)  # into its guard
        out = torch.empty(2)
        torch.add(X, X, out=out.resize_(0))
    regions.check()
    assert torch.equal(grown, torch.full((6,), 2.0))
    assert torch.equal(out, 2 * X)
    assert torch.equal(kept.resize_(1000)[:4], torch.ones(4))


def test_a_huge_workspace_is_not_touched() -> None:
    with GuardRegions(guards=True):
        assert torch.empty(2**40, dtype=torch.uint8, device="meta").is_meta
        huge = torch.empty(2**28, dtype=torch.uint8)
    assert huge.untyped_storage().nbytes() == 2**28


def test_memory_that_nobody_wrote_is_poison_in_every_run(warm: Judge) -> None:
    """Also where operators are not watched, as with one model at two sizes."""
    kept = candidate("", "        torch.ones(64)  # what is made next has its memory, or that of another\n        return torch.empty(64)")
    warm.judge(SQUARE, elementwise("v * v"))  # the server is up now
    with warm.context.workers.start(kept, 30.0) as process:
        process.construct(([], {}), INIT_SEED)
        for flags in ({}, {"apart": True}, {"grad": True}, {"inference": True}, {"times": 2}):
            assert process.run([X], 1, **flags).value.isnan().all(), flags
        bare = [process.run([X], 1, apart=True, bare=True).value.isnan().all() for _ in range(20)]
        assert not all(bare)  # but for what is there by chance


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("v * v, mask=mask)\n    tl.store(y_ptr + n + offs * 0, 1.0", "that the candidate allocated; the first is 0 bytes past"),
        ("v * v, mask=mask)\n    tl.store(x_ptr + n + offs * 0, 1.0", "outside of the forward's inputs"),
    ],
)
def test_a_kernel_that_writes_beside_its_tensors_on_a_gpu(warm_gpu: Judge, value: str, words: str) -> None:
    verdict = warm_gpu.judge(SQUARE, elementwise(value))
    assert verdict.status is Status.RUNTIME_ERROR, verdict.message
    assert words in verdict.message
