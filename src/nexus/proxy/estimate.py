"""The effect of a budget on sessions that took place without a proxy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from nexus.engine import Engine
from nexus.engine.simulation.cache import simulate_session
from nexus.providers.prompt_cache import dollars
from nexus.types.message import ProviderFormat
from nexus.types.request import TokenUsage

MIN_ROOM = 2_000
"""Tokens that a budget has to leave for messages; otherwise no call over it can be made."""


class SessionEstimate(Struct, frozen=True):
    """One session at one budget. Tokens are the provider's, as reported."""

    session: str
    model: str
    calls: int
    """Calls with reported usage."""
    over: int
    """Those whose prompt has more tokens than the budget: all others would go on as they are."""
    largest_prompt: int
    fixed_tokens: int
    """Tokens of system prompt and tools, which the file does not have: the first prompt less its messages."""
    cost_usd: float | None
    """Simulated cost of the prompts as they were; None without prices, or if no call is over the budget."""
    fitted_cost_usd: float | None
    """Simulated cost within the budget."""
    refused: int = 0
    """Calls that cannot be made within the budget."""


def estimate_session(
    nx: Engine,
    session: str,
    model: str,
    usages: Sequence[TokenUsage],
    budget: int,
    progress: Callable[[int, int], None] | None = None,
) -> SessionEstimate:
    """Estimate one session. Costs are simulated for both ways, so that they can be compared.

    Args:
        nx: The engine whose ledger has the session.
        session: Its label.
        model: The model of its calls.
        usages: What the provider reported for its calls, in order.
        budget: Tokens of a request, with system prompt and tools.
        progress: Called with the number of simulated calls and their total.
    """
    prompts = [usage.input_tokens for usage in usages]
    over = sum(1 for tokens in prompts if tokens > budget)
    largest = max(prompts, default=0)
    if not over:
        return SessionEstimate(session, model, len(prompts), 0, largest, 0, None, None)
    resolved = nx.resolve(model)
    fixed = max(
        prompts[0] - int(_tokens_before_first_reply(nx, session, resolved.provider_format) * resolved.token_factor), 0
    )
    room = budget - fixed
    if room < MIN_ROOM:
        return SessionEstimate(session, model, len(prompts), over, largest, fixed, None, None, over)
    simulation = simulate_session(nx, session, resolved, budget=room, profile="bare", progress=progress)
    by_policy = {row.policy: row for row in simulation.rows}
    fitted = by_policy["nexus"]
    unlimited = by_policy["nothing"]
    if not simulation.rule.priced:
        return SessionEstimate(session, model, len(prompts), over, largest, fixed, None, None, fitted.refused)
    # System prompt and tools are read from the cache by each call, either way.
    read_usd = float(dollars(simulation.rule.rates.read)) * fixed
    return SessionEstimate(
        session,
        model,
        len(prompts),
        over,
        largest,
        fixed,
        float(dollars(unlimited.totals.input_cost)) + read_usd * unlimited.totals.calls,
        float(dollars(fitted.totals.input_cost)) + read_usd * fitted.totals.calls,
        fitted.refused,
    )


def _tokens_before_first_reply(nx: Engine, session: str, wire: ProviderFormat) -> int:
    """Return the base tokens of the messages that the session's first call had."""
    total = 0
    for entry in nx.ledger.iter_entries(session):
        for row in entry.rows:
            if row.message.role == "assistant":
                return total
            total += row.size.on(wire)
    return total
