"""What timings mean: confidence intervals of medians and of speed-ups, and ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelllm.core.types import Measured, Ratio

NOISE = 0.01
"""Two times closer than this are not told apart: processes differ by address layout and clock alone."""


def median_interval(samples: Sequence[float], z: float = 1.96) -> tuple[float, float]:
    """Distribution-free 95 % interval of the median by order statistics.

    Ranks n/2 -+ z * sqrt(n)/2, the normal approximation of the binomial interval (Conover, Practical
    Nonparametric Statistics, section 3.2). Raises ValueError for no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    n = len(ordered)
    half = z * math.sqrt(n) / 2
    low = max(0, math.floor(n / 2 - half))
    high = min(n - 1, math.ceil(n / 2 + half))
    return float(ordered[low]), float(ordered[high])


def summarise(samples_ms: Sequence[float], graph_ms: float | None = None) -> Measured:
    """Median, its interval and mean of run times in milliseconds."""
    low, high = median_interval(samples_ms)
    return Measured(
        median_ms=float(np.median(samples_ms)),
        low_ms=low,
        high_ms=high,
        runs=len(samples_ms),
        mean_ms=float(np.mean(samples_ms)),
        graph_ms=graph_ms,
        quantiles_ms=tuple(float(q) for q in np.percentile(samples_ms, [0, 5, 25, 50, 75, 95, 100])),
    )


def relative_width(samples_ms: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval, as a share of the median."""
    low, high = median_interval(samples_ms)
    return (high - low) / 2 / float(np.median(samples_ms))


_DRAWS = 500


def _medians(
    rng: np.random.Generator, rounds: Sequence[Sequence[float]], picks: np.ndarray[Any, Any]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Median of each draw: the rounds of ``picks`` [draws, rounds], each with as many of its runs, resampled, as the longest has."""
    lengths = np.asarray([len(r) for r in rounds])
    table = np.zeros((len(rounds), lengths.max()))
    for row, times in zip(table, rounds, strict=True):
        row[: len(times)] = times
    runs = (rng.random((*picks.shape, table.shape[1])) * lengths[picks][:, :, None]).astype(np.int64)
    return np.asarray(np.median(table[picks[:, :, None], runs].reshape(len(picks), -1), axis=1))


def ratio(baseline_rounds: Sequence[Sequence[float]], candidate_rounds: Sequence[Sequence[float]], seed: int = 0) -> Ratio:
    """Speed-up with its 95 % interval from runs that were interleaved round by round.

    Rounds are the unit of resampling (a percentile bootstrap, Efron 1979), since drift of the clock is
    shared within a round; within a resampled round the runs are resampled too.
    """
    rng = np.random.default_rng(seed)
    value = float(np.median(np.concatenate(baseline_rounds)) / np.median(np.concatenate(candidate_rounds)))
    rounds = min(len(baseline_rounds), len(candidate_rounds))
    picks = rng.integers(0, rounds, (_DRAWS, rounds))
    draws = _medians(rng, baseline_rounds, picks) / _medians(rng, candidate_rounds, picks)
    low, high = (float(x) for x in np.percentile(draws, [2.5, 97.5]))
    return Ratio(value=value, low=low, high=high, tie=low <= 1 + NOISE and high >= 1 - NOISE)
