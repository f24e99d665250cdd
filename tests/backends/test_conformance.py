"""What every backend must do, whichever it is: parametrised over the registry, and over a language that a plugin adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm.backends.base import Availability, AvailabilityState, Backend, open_backend
from kernelllm.core import registry


@pytest.fixture(params=[*registry.names("backends"), "numpy_kernels"])
def backend(request: pytest.FixtureRequest) -> Backend:
    plugged = request.param == "numpy_kernels"
    return open_backend(request.getfixturevalue("numpy_kernels") if plugged else request.param)


def test_names_itself(backend: Backend) -> None:
    assert backend.name in registry.names("backends")
    assert backend.title
    assert backend.fence.isidentifier()
    assert backend.suffix.startswith(".")


def test_prompt_rules_are_lines(backend: Backend) -> None:
    assert backend.rules.strip()
    assert all(line.strip() and not line.startswith("-") for line in backend.rules.splitlines())


def test_availability_says_why(backend: Backend) -> None:
    here = backend.availability()
    assert isinstance(here, Availability)
    assert here.reason
    if here.state is AvailabilityState.MISSING:
        assert here.fix


def test_loads_from_a_real_file(backend: Backend, tmp_path: Path) -> None:
    if backend.availability().state is AvailabilityState.MISSING:
        pytest.skip(backend.availability().reason)
    path = tmp_path / f"loaded_candidate{backend.suffix}"
    path.write_text("class ModelNew:\n    answer = 42\n")
    module = backend.load(path, "loaded_candidate")
    assert module.ModelNew.answer == 42
    assert module.__file__ == str(path)


def test_load_raises_what_the_source_raises(backend: Backend, tmp_path: Path) -> None:
    if backend.availability().state is AvailabilityState.MISSING:
        pytest.skip(backend.availability().reason)
    path = tmp_path / f"broken_candidate{backend.suffix}"
    path.write_text("class ModelNew(:\n")
    with pytest.raises(SyntaxError):
        backend.load(path, "broken_candidate")
    path.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        backend.load(path, "raising_candidate")
