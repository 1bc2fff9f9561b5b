"""The account of a context: one line for each thing in it, in the provider's tokens, which add up to what is used."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from nexus.assembly.fit.cut import FitResult, FixedTokens
from nexus.assembly.fit.window import Window
from nexus.assembly.manifest import RenderedPrefix
from nexus.context import TokenLine
from nexus.tokens.budget import TokenBudget
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import text_tokens_json
from nexus.types.block import Block


def budget_with_usage(budget: TokenBudget, fixed: FixedTokens, fitted: FitResult, factor: float) -> TokenBudget:
    """The budget with what each part takes of it."""
    history = fitted.window.tokens + fitted.closing_tokens
    ahead = to_provider_tokens(fixed.preamble, factor)
    uncut = to_provider_tokens(fitted.whole_tokens, factor) if fitted.cut is not None else 0
    return structs.replace(budget, uncut=uncut).with_used(
        system_prompt=to_provider_tokens(fixed.system, factor),
        tools=to_provider_tokens(fixed.tools, factor),
        history=ahead + to_provider_tokens(history, factor),
        event=to_provider_tokens(fitted.current_tokens, factor),
    )


def token_lines(
    slot: RenderedPrefix,
    placed: Sequence[Block],
    seen: Sequence[Block],
    fitted: FitResult,
    factor: float,
    counter: TokenCounter,
) -> tuple[TokenLine, ...]:
    """One line for each block, the tools, the history and the event; their sum is what the budget says is used."""
    fixed, tools = slot.fixed, len(slot.tools)
    items = [
        TokenLine(
            b.layer, "system", b.name, b.source, to_provider_tokens(text_tokens_json(b.text, counter), factor), b.trust
        )
        for b in slot.blocks
    ]
    framing = to_provider_tokens(fixed.system, factor) - sum(item.tokens for item in items)
    items.append(TokenLine("Workspace", "system", "request framing", "nexus:framing", framing, "system"))
    if tools:
        name = f"{tools} tool definitions"
        items.append(
            TokenLine("Workspace", "system", name, "nexus:tools", to_provider_tokens(fixed.tools, factor), "system")
        )
    items.extend(_ahead(slot.preamble_blocks, fixed, factor, counter))
    window = fitted.window
    if window.opening:
        items.extend(_opening(window, factor))
    told = sum(item.tokens for item in items if item.slot == "history")
    tokens = to_provider_tokens(window.tokens + fitted.closing_tokens, factor) - told
    count = len(window.messages) + fitted.closing_count
    items.append(TokenLine("Session", "history", "conversation", "nexus:ledger", tokens, "user", count))
    left = to_provider_tokens(fitted.current_tokens, factor)
    items.extend(
        TokenLine(block.layer, "history", f"{block.name} (already in the history)", block.source, 0, block.trust)
        for block in seen
    )
    for block in placed:
        tokens = min(left, to_provider_tokens(text_tokens_json(block.text, counter), factor))
        left -= tokens
        items.append(TokenLine(block.layer, "current", block.name, block.source, tokens, block.trust))
    items.append(TokenLine("Event", "current", "message", "nexus:event", left, "user", 1))
    return tuple(items)


def _ahead(blocks: Sequence[Block], fixed: FixedTokens, factor: float, counter: TokenCounter) -> list[TokenLine]:
    """The blocks that are messages, and what stands around these."""
    left = to_provider_tokens(fixed.preamble, factor)
    items: list[TokenLine] = []
    for block in blocks:
        tokens = min(left, to_provider_tokens(text_tokens_json(block.text, counter), factor))
        left -= tokens
        items.append(TokenLine(block.layer, "ahead", block.name, block.source, tokens, block.trust))
    if blocks:
        items.append(TokenLine("Workspace", "ahead", "message framing", "nexus:framing", left, "system"))
    return items


def _opening(window: Window, factor: float) -> list[TokenLine]:
    """What stands before the conversation: summary and marker, then pinned groups."""
    whole, pinned = to_provider_tokens(window.opening_tokens, factor), to_provider_tokens(window.pinned_tokens, factor)
    marks = len(window.opening) - window.pinned_messages
    items: list[TokenLine] = []
    if window.header.started:
        marks -= 1
        begun = to_provider_tokens(window.header_tokens, factor) if marks else whole - pinned
        items.append(TokenLine("Session", "history", "session start", "nexus:session-start", begun, "system", 1))
        whole -= begun
    if marks:
        name = "summary or marker of what is left out"
        items.append(TokenLine("Session", "history", name, "nexus:ledger", whole - pinned, "user", marks))
    if window.pinned_messages:
        name = "first task and pinned messages"
        items.append(TokenLine("Session", "history", name, "nexus:ledger", pinned, "user", window.pinned_messages))
    return items


def to_provider_tokens(base: int, factor: float) -> int:
    """Base tokens as the provider's, rounded up."""
    return -int(-base * factor // 1)
