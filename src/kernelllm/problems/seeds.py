"""One seed for all generators of a process."""

from __future__ import annotations

import random


def seed_all(seed: int) -> None:
    """Seed every generator that a problem or a candidate may draw from: torch on all devices, Python's and NumPy's."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
