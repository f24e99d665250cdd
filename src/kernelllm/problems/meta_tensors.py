"""Runs a problem's code on meta tensors, and imports as little as can be for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from kernelllm.problems.without_dynamo import without_dynamo
from kernelllm.problems.without_symbols import without_symbols


@contextlib.contextmanager
def meta_tensors() -> Iterator[None]:
    """Inside it, tensors are made on the meta device."""
    with torch.device("meta"), without_dynamo(), without_symbols():
        yield
