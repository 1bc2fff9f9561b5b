"""The token breakdown of a context: one line per part, in provider tokens, which add up to the tokens used."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from nexus.assembly.fit.choose import ChosenFit
from nexus.assembly.fit.result import FitResult, FixedTokens
from nexus.assembly.fit.window import Window
from nexus.assembly.gather import SystemPrompt
from nexus.context import TokenLine
from nexus.tokens.budget import TokenBudget
from nexus.tokens.message_tokens import text_tokens_json
from nexus.tokens.scale import TokenScale
from nexus.types.block import PREAMBLE, Block, Slot


def budget_with_usage(scale: TokenScale, fixed: FixedTokens, result: FitResult) -> TokenBudget:
    """Return the budget with the tokens that each part uses."""
    factor = scale.factor
    history = result.window.tokens + result.closing_tokens
    uncut = 0
    if result.cut is not None:
        uncut = to_provider_tokens(result.whole_tokens, factor)
    return structs.replace(scale.budget, uncut=uncut).with_used(
        system_prompt=to_provider_tokens(fixed.system, factor),
        tools=to_provider_tokens(fixed.tools, factor),
        history=to_provider_tokens(fixed.preamble, factor) + to_provider_tokens(history, factor),
        event=to_provider_tokens(result.current_tokens, factor),
    )


def token_lines(system: SystemPrompt, chosen: ChosenFit) -> tuple[TokenLine, ...]:
    """Return one line for each block, the tools, the history and the event. Their sum is the budget's used tokens."""
    fixed = system.fixed
    factor = chosen.scale.factor
    tools = len(system.tools)
    result = chosen.result

    def block_line(block: Block, slot: Slot, limit: int | None = None) -> TokenLine:
        tokens = to_provider_tokens(text_tokens_json(block.text, chosen.scale.counter), factor)
        tokens = tokens if limit is None else min(limit, tokens)
        return TokenLine(block.layer, slot, block.name, block.source, tokens, block.trust)

    lines = [block_line(block, "system") for block in system.blocks]
    framing = to_provider_tokens(fixed.system, factor) - sum(line.tokens for line in lines)
    lines.append(TokenLine("Workspace", "system", "request framing", "nexus:framing", framing, "system"))
    if tools:
        tokens = to_provider_tokens(fixed.tools, factor)
        lines.append(TokenLine("Workspace", "system", f"{tools} tool definitions", "nexus:tools", tokens, "system"))
    remaining = to_provider_tokens(chosen.preamble.fixed.preamble, factor)
    for block in chosen.preamble.blocks:
        lines.append(block_line(block, PREAMBLE, remaining))
        remaining -= lines[-1].tokens
    if chosen.preamble.blocks:
        lines.append(TokenLine("Workspace", PREAMBLE, "message framing", "nexus:framing", remaining, "system"))
    window = result.window
    opening = _opening_lines(window, factor)
    lines.extend(opening)
    tokens = to_provider_tokens(window.tokens + result.closing_tokens, factor) - sum(line.tokens for line in opening)
    count = len(window.messages) + result.closing_count
    lines.append(TokenLine("Session", "history", "conversation", "nexus:ledger", tokens, "user", count))
    lines.extend(
        TokenLine(block.layer, "history", f"{block.name} (already in the history)", block.source, 0, block.trust)
        for block in chosen.current.already_in_history
    )
    remaining = to_provider_tokens(result.current_tokens, factor)
    for block in chosen.current.included:
        lines.append(block_line(block, "current", remaining))
        remaining -= lines[-1].tokens
    lines.append(TokenLine("Event", "current", "message", "nexus:event", remaining, "user", 1))
    return tuple(lines)


def _opening_lines(window: Window, factor: float) -> Sequence[TokenLine]:
    """Return the lines of the opening: header, summary and omission notice, pinned groups."""
    opening = window.opening
    if not opening.messages:
        return ()
    tokens = to_provider_tokens(opening.tokens, factor)
    pinned = to_provider_tokens(opening.pinned_tokens, factor)
    notices = len(opening.messages) - opening.pinned_messages
    lines: list[TokenLine] = []
    if window.rules.header.started:
        notices -= 1
        if notices:
            header = to_provider_tokens(opening.header_tokens, factor)
        else:
            header = tokens - pinned
        lines.append(TokenLine("Session", "history", "session start", "nexus:session-start", header, "system", 1))
        tokens -= header
    if notices:
        name = "summary or marker of what is left out"
        lines.append(TokenLine("Session", "history", name, "nexus:ledger", tokens - pinned, "user", notices))
    if opening.pinned_messages:
        name = "first task and pinned messages"
        lines.append(TokenLine("Session", "history", name, "nexus:ledger", pinned, "user", opening.pinned_messages))
    return lines


def to_provider_tokens(base: int, factor: float) -> int:
    """Return base tokens as provider tokens, rounded up."""
    return -int(-base * factor // 1)
