"""Kernels as the packaged ``mini`` knows them. The compiler writes some lines in another way since its pairs were made."""

from __future__ import annotations

import re
from typing import Final

_TOO_LARGE: Final = re.compile(
    r"^ +if [\w.]+\.numel\(\) >= 2 \*\* 31:\n +raise ValueError\('the kernels were written for fewer elements of [^\n]*\n", re.MULTILINE
)
"""Refuses an input of so many elements."""
_ROUNDING: Final = re.compile(r"^( +)bits = ([^\n]*)\n +(\w+) = tl\.where\(\3 == \3, bits\.to\(", re.MULTILINE)
"""The rounding of a convolution's weights, in two lines."""


def as_packaged(kernel: str) -> str:
    """A kernel of ``plain_kernel`` in the wording of the packaged model's pairs. It computes the same, and refuses fewer inputs."""
    return _ROUNDING.sub(r"\1\3 = tl.where(\3 == \3, (\2).to(", _TOO_LARGE.sub("", kernel))
