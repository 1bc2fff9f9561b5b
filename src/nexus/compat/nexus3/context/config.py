"""Settings of a context manager, with document 004's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from nexus.compat.nexus3.context.truncation import STRATEGIES
from nexus.errors import BadBudget, BadSetting


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """Token budget and truncation strategy. Raises BadBudget, BadSetting."""

    max_tokens: int = 8000
    reserve_tokens: int = 2000
    truncation_strategy: str = "oldest_first"

    def __post_init__(self) -> None:
        amounts: dict[str, object] = {"max_tokens": self.max_tokens, "reserve_tokens": self.reserve_tokens}
        for name, amount in amounts.items():
            if not isinstance(amount, int) or amount < 0:
                raise BadBudget(f"{name} invalid: {amount!r} (give a whole number of tokens, 0 or more)")
        if self.truncation_strategy not in tuple(STRATEGIES):
            raise BadSetting(
                f"truncation strategy {self.truncation_strategy!r} unknown (choose {' or '.join(STRATEGIES)})"
            )
