"""Contents of a context window as plain values: blocks, the conversation by kind of content, and its largest results."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from nexus.context import AssembledContext
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import message_tokens
from nexus.tokens.model_names import same_model
from nexus.types.block import LAYERS
from nexus.types.message import Image, Thinking, ToolCall, ToolResult, with_parts

LARGEST_RESULTS = 5
"""Tool results that are listed."""


def window_report(ctx: AssembledContext, counter: TokenCounter) -> dict[str, Any]:
    """Return the contents of the window as plain values, in the provider's tokens."""
    budget = ctx.token_budget
    contents, largest = conversation_contents(ctx, counter)
    return {
        "session": ctx.session_label,
        "model": ctx.model,
        "tokenBudget": budget.to_json(),
        "items": msgspec.to_builtins(ctx.accounting.token_breakdown),
        "layers": {
            layer: sum(line.tokens for line in ctx.accounting.token_breakdown if line.layer == layer)
            for layer in LAYERS
        },
        "conversation": msgspec.to_builtins(contents),
        "largestResults": [
            {"tool": result.tool, "call": result.call_id, "tokens": result.tokens, "arguments": result.arguments}
            for result in largest
        ],
        "free": budget.remaining,
        "cacheBoundary": msgspec.to_builtins(ctx.accounting.prefix),
        "cut": msgspec.to_builtins(ctx.cut),
        "warnings": msgspec.to_builtins(ctx.warnings),
    }


class ContentTokens(Struct, frozen=True):
    """Tokens of one kind of content in the conversation; `name` is the tool's or the author's."""

    kind: str
    name: str
    count: int
    tokens: int


class LargeResult(Struct, frozen=True):
    """One of the largest tool results in the conversation."""

    tool: str
    call_id: str
    tokens: int
    arguments: str
    """JSON text; empty if the call is not in view."""


def conversation_contents(
    ctx: AssembledContext, counter: TokenCounter
) -> tuple[list[ContentTokens], list[LargeResult]]:
    """Return the conversation's tokens by kind of content, largest first, and its largest tool results.

    Their sum is the tokens of the history. Thinking of other models is not sent and has none.
    """
    total = sum(line.tokens for line in ctx.accounting.token_breakdown if line.slot == "history")
    provider_format = ctx.accounting.model_info.provider_format
    counts = Counter[tuple[str, str]]()
    base = Counter[tuple[str, str]]()
    results: list[tuple[int, ToolResult]] = []
    calls = {call.id: call for message in ctx.history for call in message.calls()}
    unknown_call = ToolCall("", "unknown", "")
    for message in ctx.history:
        is_returned = provider_format == "anthropic" and same_model(message.model, ctx.model)
        for part in message.parts:
            size = message_tokens(with_parts(message, (part,)), counter)
            tokens = size.on(provider_format)
            match part:
                case ToolCall():
                    kind = ("tool", part.name)
                    counts[kind] += 1
                case ToolResult():
                    kind = ("tool", part.name or calls.get(part.call_id, unknown_call).name)
                    results.append((tokens, part))
                case Thinking():
                    kind = ("thinking", message.role)
                    tokens = size.optional if is_returned else 0
                    counts[kind] += 1
                case _:
                    kind = ("image" if isinstance(part, Image) else "text", message.role)
                    counts[kind] += 1
            base[kind] += tokens
    shares = _shares(list(base.values()), total)
    contents = [ContentTokens(*kind, counts[kind], tokens) for kind, tokens in zip(base, shares, strict=True)]
    factor = total / max(sum(base.values()), 1)
    largest = sorted(results, key=lambda item: item[0], reverse=True)[:LARGEST_RESULTS]
    return sorted(contents, key=lambda part: part.tokens, reverse=True), [
        LargeResult(part.name or call.name, part.call_id, round(tokens * factor), call.arguments)
        for tokens, part in largest
        for call in (calls.get(part.call_id, unknown_call),)
    ]


def _shares(weights: list[int], total: int) -> list[int]:
    """Return whole shares of a total by weight: they add up to it."""
    ends = [0]
    running = 0
    weight_sum = max(sum(weights), 1)
    for weight in weights:
        running += weight
        ends.append(round(total * running / weight_sum))
    return [end - start for start, end in pairwise(ends)]
