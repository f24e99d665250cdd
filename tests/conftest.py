"""Fixtures for all tests. The default suite runs on a CPU, with no network, no key and no weights."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from kernelllm.core.garbage_collection import collect_seldom

os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a shell's background jobs: tests of Ctrl-C send it themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)
# how fast the machine is decides no test
hypothesis.settings.register_profile("unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("unhurried")

collect_seldom()

ROOT = Path(__file__).parent.parent
SLOW = set((ROOT / "tests" / "slow.txt").read_text().splitlines())
"""Tests that take seconds and try more of what others try. Those of parameters are easier to list than to mark in place."""


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def examples() -> Path:
    """The folder of example problems."""
    return ROOT / "examples"


@pytest.fixture(scope="session", autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the settings and the data of the person who runs it."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("KERNELLLM_")]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setenv("KERNELLLM_VERDICT_CACHE", "false")  # no test gets another's verdict
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_servers() -> Iterator[None]:
    """All judges of this process share their worker servers."""
    import shared_servers

    with shared_servers.shared_servers():
        yield


@pytest.fixture
def own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judges of this test start and end servers of their own, as outside of tests."""
    import shared_servers

    for name, original in shared_servers.ORIGINAL.items():
        monkeypatch.setattr(shared_servers.prestart, name, original)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``gpu`` are skipped where there is none, those marked ``slow`` unless ``-m`` speaks of them."""
    reasons = {}
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            reasons["gpu"] = "needs a CUDA device"
    if "slow" not in config.option.markexpr:
        reasons["slow"] = "more of the same; run with -m slow"
    for item in items:
        if item.nodeid in SLOW:
            item.add_marker(pytest.mark.slow)
        for name, reason in reasons.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it again."""
    gc.freeze()
