"""A second kernel language, installed as a package that adds one would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelllm.core import registry

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture(scope="session")
def numpy_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the language; its package and entry point are on the path meanwhile."""
    installed = tmp_path_factory.mktemp("site")
    described = installed / "numpy_kernels-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy-kernels\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[kernelllm.backends]\nnumpy-kernels = numpy_kernels.backend:NumpyKernels\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLUGIN))
        patch.syspath_prepend(str(installed))
        registry._plugins.cache_clear()
        yield "numpy-kernels"
    registry._plugins.cache_clear()
