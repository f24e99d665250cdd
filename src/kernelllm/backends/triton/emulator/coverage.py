"""Where a sampled launch would store: programs that are not executed compute only addresses and masks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from kernelllm.backends.base import IllegalAccess
from kernelllm.backends.sampled_launches import Stopped
from kernelllm.backends.triton.emulator import functions, lockstep, sampling, store_slicing
from kernelllm.backends.triton.emulator.program_groups import ProgramGroup, group_size


def cover(kernel: Any, executor: lockstep.GridExecutor, grid: Iterable[int], run: sampling.Sampling) -> None:
    """Note where the programs of a launch store that were left out. Raises IllegalAccess where they leave their memory."""
    if run.complete and not executor.cooperative:
        return
    function = None if executor.cooperative else store_slicing.stores_of(kernel.fn, executor.bound)
    if function is None:
        run.marks.forget(run.storages)
        return
    before = functions.Arithmetic.flops
    try:
        with run.covering():
            own = _AddressExecutor(function, kernel.arg_names, grid, [])
            own.bound = executor.bound
            own.run_all(tuple(grid), run)
    except (Stopped, Exception) as error:
        if _of_memory(error):
            raise
        run.marks.forget(run.storages)
    finally:
        functions.Arithmetic.flops = before


def _of_memory(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, IllegalAccess):
        error = error.__cause__
    return error is not None


class _AddressExecutor(lockstep.GridExecutor):
    def run_all(self, grid: tuple[int, ...], run: sampling.Sampling) -> None:
        """All programs, in groups."""
        self.divergences, ProgramGroup.largest = 0, 1
        programs = itertools.product(*map(range, grid + (1,) * (3 - len(grid))))
        try:
            for program in itertools.islice(programs, 1):  # the first program shows how large its blocks are
                self._single(program)
            while chunk := list(itertools.islice(programs, group_size())):
                self._some(chunk)
        finally:
            ProgramGroup.size = 1
