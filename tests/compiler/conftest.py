from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.judge_settings import HYBRID, QUICK, STRICT


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeSettings(device="cpu", cache=False)) as one:
        yield one


@pytest.fixture(scope="module")
def quick(pytestconfig: pytest.Config) -> Iterator[Judge]:
    """The same with few trials, for what takes long; strict where ``-m`` asks for the slow tests too."""
    with Judge(JudgeSettings(device="cpu", cache=False, profile=_profile(pytestconfig))) as one:
        yield one


@pytest.fixture(scope="module")
def hybrid(pytestconfig: pytest.Config) -> Iterator[Judge]:
    """As ``quick``, and torch may do a part of the work."""
    with Judge(JudgeSettings(device="cpu", cache=False, track=HYBRID, profile=_profile(pytestconfig))) as one:
        yield one


def _profile(config: pytest.Config) -> str:
    return STRICT if "slow" in config.option.markexpr else QUICK
