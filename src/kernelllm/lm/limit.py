"""Hard limits of what may be spent on answers."""

from __future__ import annotations

import threading

from kernelllm.core.errors import BudgetExceeded
from kernelllm.core.settings import Price
from kernelllm.core.writer import Allowance
from kernelllm.models.language_model import Completion

SMALLEST = 64
"""An answer that a budget would cut to fewer tokens than this is not asked for."""


class Limit:
    """Holds an allowance over everything that is asked through it. Thread-safe."""

    def __init__(self, allowance: Allowance | None = None) -> None:
        allowed = allowance or Allowance()
        self.tokens, self.usd = allowed.tokens, allowed.usd
        self.spent_tokens, self.spent_usd = allowed.spent_tokens, allowed.spent_usd
        self._held_tokens = 0
        self._held_usd = 0.0
        self._lock = threading.Lock()

    @property
    def bounded(self) -> bool:
        """Whether there is any limit."""
        return self.tokens is not None or self.usd is not None

    def hold(self, prompt_tokens: int, most: int, price: Price | None) -> int:
        """Reserve one answer of at most ``most`` new tokens; the number that it may really take.

        Raises BudgetExceeded when too little is left.
        """
        with self._lock:
            allowed = most
            if self.tokens is not None:
                allowed = min(allowed, self.tokens - self.spent_tokens - self._held_tokens - prompt_tokens)
            if self.usd is not None and price is not None and price.output > 0:
                left = self.usd - self.spent_usd - self._held_usd - prompt_tokens * price.input / 1e6
                allowed = min(allowed, int(left / price.output * 1e6))
            if allowed < min(most, SMALLEST):
                few = self.tokens is not None and self.tokens - self.spent_tokens - self._held_tokens - prompt_tokens < SMALLEST
                what = f"The budget of {'tokens' if few else 'cost'} leaves no room for another answer ({self.spent_tokens} tokens spent)."
                raise BudgetExceeded(what, fix="Raise it and run the same command again.")
            self._held_tokens += prompt_tokens + allowed
            self._held_usd += dollars(price, prompt_tokens, allowed) or 0.0
            return allowed

    def settle(self, prompt_tokens: int, allowed: int, price: Price | None, spent: Completion | None) -> None:
        """Replace a reservation by what the answer really took (None: it was never asked)."""
        with self._lock:
            self._held_tokens -= prompt_tokens + allowed
            self._held_usd -= dollars(price, prompt_tokens, allowed) or 0.0
        if spent is not None:
            self.count(spent, price, prompt_tokens)

    def count(self, spent: Completion, price: Price | None = None, prompt_tokens: int = 0) -> None:
        """Add what an answer took; counts that the provider does not tell are estimated from its length."""
        if spent.cached:
            return
        tokens_in = spent.tokens_in if spent.tokens_in is not None else prompt_tokens
        tokens_out = spent.tokens_out if spent.tokens_out is not None else len(spent.text) // 3
        with self._lock:
            self.spent_tokens += tokens_in + tokens_out
            self.spent_usd += dollars(price, tokens_in, tokens_out) or 0.0


def dollars(price: Price | None, tokens_in: int | None, tokens_out: int | None) -> float | None:
    """Dollars, None when the price or a count is unknown."""
    if price is None or tokens_in is None or tokens_out is None:
        return None
    return (tokens_in * price.input + tokens_out * price.output) / 1e6
