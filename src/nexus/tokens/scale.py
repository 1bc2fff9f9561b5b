"""The scale of one call: how its tokens are counted, and how many it may take."""

from __future__ import annotations

from dataclasses import dataclass

from nexus.errors import BudgetTooSmall
from nexus.tokens.budget import TokenBudget
from nexus.tokens.counter import TokenCounter
from nexus.tokens.model import Model

ROUNDING_TOKENS = 3
"""Tokens kept free because scaling to a model's own tokens rounds the budget's four parts up."""


@dataclass(frozen=True, slots=True)
class TokenScale:
    """Base tokens as the counter counts them, the model's tokens for each of them, and the budget of the call."""

    model: Model
    budget: TokenBudget
    """In the model's tokens."""

    counter: TokenCounter
    factor: float
    """The model's tokens per base token."""

    content_factor: float = 1.0
    """The part of `factor` that the prompt's content decided."""

    correction: float | None = None
    """If set, `factor` is provisional: content decides it (see `nexus.tokens.content`), times this learned factor."""

    @property
    def available(self) -> int:
        """The available base tokens."""
        if self.factor == 1:
            return self.budget.available
        return int((self.budget.available - ROUNDING_TOKENS) / self.factor)

    def scaled(self, error: BudgetTooSmall) -> BudgetTooSmall:
        """Return an error in base tokens as one in the model's tokens."""
        rounding = ROUNDING_TOKENS if self.factor != 1 else 0
        return error.scaled(self.factor, self.budget.available, rounding)
