"""The settings of a context manager, with document 004's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from nexus.context.truncation import STRATEGIES
from nexus.errors import BadBudget, BadSetting


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """The token budget and the strategy of truncation. Raises BadBudget, BadSetting."""

    max_tokens: int = 8000
    reserve_tokens: int = 2000
    truncation_strategy: str = "oldest_first"

    def __post_init__(self) -> None:
        if self.max_tokens < 0 or self.reserve_tokens < 0:
            raise BadBudget(f"max_tokens {self.max_tokens:,} and reserve_tokens {self.reserve_tokens:,} are at least 0")
        if self.truncation_strategy not in STRATEGIES:
            raise BadSetting(f"there is no strategy {self.truncation_strategy!r}: choose {' or '.join(STRATEGIES)}")
