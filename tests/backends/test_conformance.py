"""What every backend must do, whichever it is: parametrised over the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelllm.backends.base import Availability, Backend, State
from kernelllm.core import registry


@pytest.fixture(params=registry.names("backends"))
def backend(request: pytest.FixtureRequest) -> Backend:
    return registry.resolve("backends", request.param)()


def test_names_itself(backend: Backend) -> None:
    assert backend.name in registry.names("backends")
    assert backend.title
    assert backend.fence.isidentifier()
    assert backend.suffix.startswith(".")


def test_prompt_rules_are_lines_that_name_modelnew(backend: Backend) -> None:
    assert "ModelNew" in backend.rules
    assert all(line.strip() for line in backend.rules.strip().splitlines())


def test_availability_says_why(backend: Backend) -> None:
    here = backend.availability()
    assert isinstance(here, Availability)
    assert here.reason
    if here.state is State.MISSING:
        assert here.fix


def test_loads_from_a_real_file(backend: Backend, tmp_path: Path) -> None:
    if backend.availability().state is State.MISSING:
        pytest.skip(backend.availability().reason)
    module = backend.load("class ModelNew:\n    answer = 42\n", tmp_path, "loaded_candidate")
    assert module.ModelNew.answer == 42
    assert module.__file__ == str(tmp_path / f"loaded_candidate{backend.suffix}")


def test_load_raises_what_the_source_raises(backend: Backend, tmp_path: Path) -> None:
    if backend.availability().state is State.MISSING:
        pytest.skip(backend.availability().reason)
    with pytest.raises(SyntaxError):
        backend.load("class ModelNew(:\n", tmp_path, "broken_candidate")
    with pytest.raises(ZeroDivisionError):
        backend.load("1 / 0\n", tmp_path, "raising_candidate")
