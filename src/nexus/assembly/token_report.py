"""The account of a context: one line for each thing in it, in the provider's tokens, which add up to what is used."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from nexus.assembly.fit.cut import Fitted, Fixed
from nexus.assembly.fit.window import Window
from nexus.assembly.manifest import Slotted
from nexus.context import Item
from nexus.tokens.budget import TokenBudget
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import text_tokens_json
from nexus.types.block import Block


def spent(budget: TokenBudget, fixed: Fixed, fitted: Fitted, factor: float) -> TokenBudget:
    """The budget with what each part takes of it."""
    history = fitted.window.tokens + fitted.closing_tokens
    ahead = scaled(fixed.ahead, factor)
    uncut = scaled(fitted.whole_tokens, factor) if fitted.cut is not None else 0
    return structs.replace(budget, uncut=uncut).with_used(
        system_prompt=scaled(fixed.system, factor),
        tools=scaled(fixed.tools, factor),
        history=ahead + scaled(history, factor),
        event=scaled(fitted.current_tokens, factor),
    )


def account(
    slot: Slotted,
    placed: Sequence[Block],
    seen: Sequence[Block],
    fitted: Fitted,
    factor: float,
    counter: TokenCounter,
) -> tuple[Item, ...]:
    """One line for each block, the tools, the history and the event; their sum is what the budget says is used."""
    fixed, tools = slot.fixed, len(slot.tools)
    items = [
        Item(b.layer, "system", b.name, b.origin, scaled(text_tokens_json(b.text, counter), factor), b.trust)
        for b in slot.blocks
    ]
    framing = scaled(fixed.system, factor) - sum(item.tokens for item in items)
    items.append(Item("Workspace", "system", "request framing", "nexus:framing", framing, "system"))
    if tools:
        name = f"{tools} tool definitions"
        items.append(Item("Workspace", "system", name, "nexus:tools", scaled(fixed.tools, factor), "system"))
    items.extend(_ahead(slot.ahead, fixed, factor, counter))
    window = fitted.window
    if window.opening:
        items.extend(_opening(window, factor))
    told = sum(item.tokens for item in items if item.slot == "history")
    tokens = scaled(window.tokens + fitted.closing_tokens, factor) - told
    count = len(window.messages) + fitted.ahead
    items.append(Item("Session", "history", "conversation", "nexus:ledger", tokens, "user", count))
    left = scaled(fitted.current_tokens, factor)
    items.extend(
        Item(block.layer, "history", f"{block.name} (already in the history)", block.origin, 0, block.trust)
        for block in seen
    )
    for block in placed:
        tokens = min(left, scaled(text_tokens_json(block.text, counter), factor))
        left -= tokens
        items.append(Item(block.layer, "current", block.name, block.origin, tokens, block.trust))
    items.append(Item("Event", "current", "message", "nexus:event", left, "user", 1))
    return tuple(items)


def _ahead(blocks: Sequence[Block], fixed: Fixed, factor: float, counter: TokenCounter) -> list[Item]:
    """The blocks that are messages, and what stands around these."""
    left = scaled(fixed.ahead, factor)
    items: list[Item] = []
    for block in blocks:
        tokens = min(left, scaled(text_tokens_json(block.text, counter), factor))
        left -= tokens
        items.append(Item(block.layer, "ahead", block.name, block.origin, tokens, block.trust))
    if blocks:
        items.append(Item("Workspace", "ahead", "message framing", "nexus:framing", left, "system"))
    return items


def _opening(window: Window, factor: float) -> list[Item]:
    """What stands before the conversation: summary and marker, then pinned groups."""
    whole, pinned = scaled(window.opening_tokens, factor), scaled(window.pinned_tokens, factor)
    marks = len(window.opening) - window.pinned
    items: list[Item] = []
    if window.opens.begun:
        marks -= 1
        begun = scaled(window.begun_tokens, factor) if marks else whole - pinned
        items.append(Item("Session", "history", "session start", "nexus:session-start", begun, "system", 1))
        whole -= begun
    if marks:
        name = "summary or marker of what is left out"
        items.append(Item("Session", "history", name, "nexus:ledger", whole - pinned, "user", marks))
    if window.pinned:
        name = "first task and pinned messages"
        items.append(Item("Session", "history", name, "nexus:ledger", pinned, "user", window.pinned))
    return items


def scaled(base: int, factor: float) -> int:
    """Base tokens as the provider's, rounded up."""
    return -int(-base * factor // 1)
