from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelllm.judge import Judge, JudgeSettings


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeSettings(device="cpu", cache=False)) as one:
        yield one
