"""Outputs that hang on rounding: positions that a top-k chooses among nearly equal numbers."""

from __future__ import annotations

import torch

from kernelllm.judge.trials.comparison.compare import Expected, Rules
from kernelllm.judge.trials.comparison.rerounded_outputs import might_be_rerounded


def _classes(seed: int, runs: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Classes of the best of each row: as they are, and with one number of six a step of half precision off."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 20000, generator=generator).half().float()
    classes = torch.randint(0, 105, scores.shape, generator=generator)
    step, found = torch.ldexp(torch.ones_like(scores), torch.frexp(scores).exponent - 11), []
    for _ in range(runs):
        noise = torch.rand(scores.shape, generator=generator)
        moved = scores + step * ((noise < 1 / 12).float() - (noise > 11 / 12).float())
        found.append(classes.gather(1, moved.topk(131).indices))
    return classes.gather(1, scores.topk(131).indices), found


def test_one_more_number_among_the_best_moves_those_behind_it() -> None:
    right, refused = 0, 0
    for seed in range(10):
        eager, (mine, *others) = _classes(seed, 9)
        expected = Expected([eager], [eager], has_exact=True)
        right += might_be_rerounded([mine], [[one] for one in others], expected, Rules())
        generator = torch.Generator().manual_seed(seed)
        other = eager.flatten().scatter(0, torch.randperm(393, generator=generator)[:40], torch.randint(0, 105, (40,), generator=generator))
        refused += not might_be_rerounded([other.view(3, 131)], [[one] for one in others], expected, Rules())
    assert (right, refused) == (10, 10)
