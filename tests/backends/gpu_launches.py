"""Run apart: launches as a GPU's worker watches them, with a driver that launches nothing. Prints JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import torch
import triton
import triton.language as tl

from kernelllm.backends.base import KernelSeen
from kernelllm.backends.triton.emulator import driver


class Noted:
    """What a worker's recorder is told."""

    in_launch = False
    fault = ""

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()
        self.kernels: dict[str, KernelSeen] = {}

    def launch(self, name: str, body: Any = None, count: int = 1) -> KernelSeen:
        self.launches[name] += count
        return self.kernels.setdefault(name, KernelSeen(name))

    def tuning_times(self, call: Any) -> list[float]:
        raise AssertionError("nothing is tuned here")

    def request_access(self, access: Any) -> None:
        """Granted."""


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def main() -> None:
    driver.install("sm_90")
    from kernelllm.backends.triton.launches import GpuLaunches

    ran: list[int] = []
    triton.runtime.driver.active.launcher_cls = lambda source, metadata: lambda *args: ran.append(1)
    noted = Noted()
    launches = GpuLaunches(noted)
    x, y = torch.zeros(64), torch.zeros(64)
    compiled = copy_kernel.warmup(x, y, 64, BLOCK=64, grid=(1,))
    told = {"warmup": dict(noted.launches)}
    compiled[(1, 1, 1)](x, y, 64, 64)
    held = copy_kernel[(1,)](x, y, 64, BLOCK=64)
    runner = held[(1, 1, 1)]
    runner(x, y, 64, 64)
    told |= {"watched": dict(noted.launches), "ran": len(ran), "registers": noted.kernels["copy_kernel"].registers}
    launches.suppress(True)
    copy_kernel[(1,)](x, y, 64, BLOCK=64)
    runner(x, y, 64, 64)
    launches.suppress(False)
    told |= {"suppressed": dict(noted.launches), "ran while suppressed": len(ran) - told["ran"]}
    with launches.counted() as counted:
        for launch in (copy_kernel[(1,)], copy_kernel[(1,)]):
            launch(x, y, 64, BLOCK=64)
        runner(x, y, 64, 64)
        told |= {"timed": counted(), "noted while timed": dict(noted.launches)}
    told["disagreement"] = launches.disagreement()
    compiled._run = held._run = lambda *args: None
    copy_kernel[(1,)](x, y, 64, BLOCK=64)
    told["disagreement of a replaced launcher"] = launches.disagreement()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
