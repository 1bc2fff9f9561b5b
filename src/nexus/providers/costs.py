"""Cost of a call in USD, by its reported usage."""

from __future__ import annotations

from nexus.providers.prompt_cache import cache_rule, dollars
from nexus.tokens.model import Model
from nexus.types.request import TokenUsage


def cost_of_reply(usage: TokenUsage, model: Model) -> float | None:
    """Return the cost in USD of one call at list prices, by its reported usage; None for a model without prices.

    Cache reads and writes have their own prices, writes by their lifetime, and a long prompt may have others.
    """
    rule = cache_rule(model)
    if not rule.priced:
        return None
    rates, hour_rates = (cache_rule(model, hour=hour).rates_at(usage.input_tokens) for hour in (False, True))
    uncached = max(usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens, 0)
    cost = uncached * rates.input + usage.cache_read_tokens * rates.read
    cost += (usage.cache_write_tokens - usage.cache_write_1h_tokens) * rates.write
    cost += usage.cache_write_1h_tokens * hour_rates.write
    return float(dollars(cost + usage.output_tokens * rates.output))
