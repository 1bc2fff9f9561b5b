"""The size of the next prompt after a provider rejected one as too large, by its report."""

from __future__ import annotations

from nexus.context import AssembledContext
from nexus.providers.errors import OverflowVerdict, classify, detect_silent_overflow, learned_window
from nexus.types.compaction_plan import RECOVER_TO
from nexus.types.message import Text, ToolCall
from nexus.types.request import AgentResult

SMALLER = 0.95
"""Maximum size of a retry, as a share of the tokens that did not fit."""

LESS_THAN_SENT = "usage:less than was sent"
"""Source of a verdict for a reply whose usage is smaller than the prompt."""


def prompt_limit(ctx: AssembledContext, verdict: OverflowVerdict) -> int:
    """Return the limit of the next prompt by our count: below the failed size and the reported limit."""
    budget = ctx.token_budget
    failed = budget.used.total
    limit = SMALLER * min(failed, budget.available)
    reported = learned_window(verdict)
    if reported is not None:
        if verdict.limit_of != "input":  # the window includes the reply
            reported = max(reported - budget.reserve_response, reported // 2)
        counted = max(verdict.input_tokens or verdict.requested - verdict.output_tokens, 0)
        # Where the provider counted fewer tokens than we did, its limit is larger in our tokens.
        limit = min(reported * (failed / counted if counted > failed else 1.0), limit)
    return max(int(limit), 1)


def recovery_target(ctx: AssembledContext, verdict: OverflowVerdict, limit: int) -> int:
    """Return the size of the next prompt by our count: 40 % of the provider's limit if it names one, within `limit`."""
    reported = learned_window(verdict)
    if reported is None:
        return int(RECOVER_TO * limit)
    counted = max(verdict.input_tokens or verdict.requested - verdict.output_tokens, 0)
    failed = ctx.token_budget.used.total
    return min(int(RECOVER_TO * reported * (failed / counted if counted > failed else 1.0)), limit)


def parts_of_prompt(ctx: AssembledContext) -> str:
    """Return a sentence with the tokens of a context's parts, the largest first."""
    used = ctx.token_budget.used
    sizes = (
        (used.system_prompt, "system prompt"), (used.tools, "tools"), (used.history, "history"),
        (used.event, "current message"),
    )  # fmt: skip
    parts = "; ".join(f"{name} {tokens:,}" for tokens, name in sorted(sizes, reverse=True) if tokens)
    return f"Tokens of the last call: {parts}"


def classify_error(ctx: AssembledContext, error: object) -> OverflowVerdict:
    """Return what an error of a provider says about the size of a prompt."""
    return classify(error, provider=ctx.provider, window=ctx.accounting.model_info.context_tokens)


def reported_overflow(ctx: AssembledContext, result: AgentResult) -> OverflowVerdict | None:
    """Return a verdict if the error, the usage or the stop reason of a reply shows that the prompt did not fit."""
    if result.error is not None and (reported := classify_error(ctx, result.error)).kind == "overflow":
        return reported
    verdict = detect_silent_overflow(
        result.usage,
        window=ctx.accounting.model_info.context_tokens,
        stop_reason=result.provider_stop_reason or result.stop_reason,
        text_empty=not has_content(result),
        sent_tokens=ctx.token_budget.used.total,
    )
    # Gateways that omit cached tokens from the usage report less than was sent, although the prompt fit.
    is_full = result.stop_reason == "max_tokens" and not has_content(result)
    if verdict is None or verdict.source != LESS_THAN_SENT or is_full:
        return verdict
    return None


def has_content(result: AgentResult) -> bool:
    """Return whether a reply contains text or a tool call."""
    return any(
        isinstance(part, ToolCall) or (isinstance(part, Text) and bool(part.text.strip()))
        for message in result.messages
        for part in message.parts
    )
