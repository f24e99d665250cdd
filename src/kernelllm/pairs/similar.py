"""What is nearly the same text: MinHash over runs of tokens, by the package datasketch."""

from __future__ import annotations

import io
import tokenize
from functools import lru_cache
from typing import Any, Final

from kernelllm.core.errors import MissingExtra
from kernelllm.pairs.canonical import canonical

LENGTH: Final = 5
"""Tokens in a run."""
THRESHOLD: Final = 0.8
"""Estimated share of common runs (Jaccard) from which on two texts are nearly the same."""
PERMUTATIONS: Final = 128


class Similar:
    """An index of texts under keys. Raises MissingExtra without datasketch."""

    def __init__(self, threshold: float = THRESHOLD) -> None:
        try:
            import datasketch
        except ImportError as error:
            raise MissingExtra("datasketch", "pairs") from error
        self._threshold = threshold
        self._index: Any = datasketch.MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
        self._known: dict[str, Any] = {}

    def add(self, key: str, source: str) -> None:
        """Put a module's text into the index."""
        self._known[key] = made = _sketch(canonical(source, numbers=False))
        self._index.insert(key, made)

    def nearest(self, source: str) -> str:
        """The key of the most similar text at or above the threshold, "" where there is none."""
        made = _sketch(canonical(source, numbers=False))
        found = [(made.jaccard(self._known[key]), key) for key in self._index.query(made)]
        share, key = max(found, default=(0.0, ""))
        return key if share >= self._threshold else ""


@lru_cache(maxsize=64)
def _sketch(text: str) -> Any:
    from datasketch import MinHash

    made = MinHash(num_perm=PERMUTATIONS)
    made.update_batch([" ".join(run).encode() for run in _runs(_tokens(text))])
    return made


def _tokens(text: str) -> list[str]:
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return [t.string for t in found if t.string.strip()]


def _runs(tokens: list[str]) -> set[tuple[str, ...]]:
    return {tuple(tokens[i : i + LENGTH]) for i in range(max(1, len(tokens) - LENGTH + 1))}
