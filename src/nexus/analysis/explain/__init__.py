"""Explanation of a call: each block, tool and message that it could have contained, listed once with its state. Pure.

The tokens of the lines add up to the context's token breakdown, line by line, and so to the used tokens of its budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nexus.analysis.explain.history import HistoryExplainer
from nexus.analysis.explain.lines import ExplainedLine, Explanation, State, block_line, excerpt, one_line, share
from nexus.assembly.fit.cut import FitResult
from nexus.assembly.token_report import to_provider_tokens
from nexus.context import AssembledContext, TokenLine
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import message_tokens, tools_tokens
from nexus.types.ledger_entries import Entry
from nexus.types.tool_definition import canonical

__all__ = ["ExplainedLine", "Explanation", "State", "explain"]


def explain(
    ctx: AssembledContext,
    fitted: FitResult,
    entries: Iterable[Entry],
    marks: Sequence[Entry],
    counter: TokenCounter,
    call: str,
) -> Explanation:
    """Explain a context.

    Args:
        ctx: The context.
        fitted: The result of fitting it, with the visible window.
        entries: The path's entries up to the window's head.
        marks: The checkpoints among them, newest first.
        counter: Counts the text of omitted blocks.
        call: The call's name in messages.
    """
    history = HistoryExplainer(ctx, fitted, marks).lines(entries)
    lines = [*_system_lines(ctx, counter), *_preamble_lines(ctx), *history, *_current_lines(ctx, fitted, counter)]
    return Explanation(
        ctx.session_label,
        call,
        ctx.model,
        ctx.provider,
        ctx.token_budget.available,
        ctx.token_budget.used.total,
        tuple(lines),
        tuple(f"{warning.source}: {warning.message}" for warning in ctx.warnings),
    )


def _system_lines(ctx: AssembledContext, counter: TokenCounter) -> Iterator[ExplainedLine]:
    """Yield blocks of the system slot, the request's framing, offered and denied tools."""
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks}
    for line in _token_lines(ctx, "system"):
        block = blocks.get((line.source, line.name))
        if line.source == "nexus:tools":
            sizes = [tools_tokens([tool.definition()], counter) for tool in ctx.tools]
            for tool, tokens in zip(ctx.tools, share(line.tokens, sizes), strict=True):
                text = one_line(tool.description)
                yield ExplainedLine(
                    "included", "tool", "system", tool.name, "offered", tokens, tokens, source=line.source, text=text
                )
        elif block is None:
            yield _framing_line(line, "framing of the request")
        elif block.omitted_chars:
            reason = f"{block.omitted_chars:,} characters over the size cap"
            yield block_line("truncated", line, reason, block.text)
        else:
            yield block_line("included", line, "sent with every call", block.text)
    for tool in ctx.provenance.denied_tools:
        specs = canonical([tool.definition])
        base = tools_tokens([spec.definition() for spec in specs], counter)
        tokens = to_provider_tokens(base, ctx.provenance.manifest.factor)
        text = one_line(" ".join(spec.description for spec in specs))
        yield ExplainedLine(
            "omitted", "tool", "system", tool.name, tool.reason, 0, tokens, source="nexus:policy", text=text
        )


def _preamble_lines(ctx: AssembledContext) -> Iterator[ExplainedLine]:
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks if block.slot == "ahead"}
    for line in _token_lines(ctx, "ahead"):
        block = blocks.get((line.source, line.name))
        if block is None:
            yield _framing_line(line, "framing of the messages before the conversation")
        else:
            yield block_line("included", line, "a message before the conversation", block.text)


def _framing_line(line: TokenLine, reason: str) -> ExplainedLine:
    return ExplainedLine(
        "included", "framing", line.slot, line.name, reason, line.tokens, line.tokens, source=line.source
    )


def _current_lines(ctx: AssembledContext, fitted: FitResult, counter: TokenCounter) -> Iterator[ExplainedLine]:
    """Yield the blocks of the current message, its repeated and omitted blocks, and the event."""
    factor = ctx.provenance.manifest.factor
    for block in ctx.provenance.already_in_history:
        reason = "already in the history, not repeated"
        yield ExplainedLine("included", "block", "current", block.name, reason, 0, 0, source=block.source)
    for block in ctx.provenance.omitted_blocks:
        tokens = to_provider_tokens(counter.count(block.text), factor)
        reason = "no room next to the parts that are never cut"
        yield ExplainedLine("omitted", "block", "current", block.name, reason, 0, tokens, source=block.source)
    *block_lines, event_line = _token_lines(ctx, "current")
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks}
    for line in block_lines:
        yield block_line("included", line, "chosen for this message", blocks[line.source, line.name].text)
    visible, window = fitted.visible[fitted.closing_count :], fitted.window
    sizes = [window.weight(message, message_tokens(message, counter)) for message in visible]
    originals = fitted.event if len(fitted.event) == len(visible) else visible
    for message, original, tokens in zip(visible, originals, share(event_line.tokens, sizes), strict=True):
        full_tokens = to_provider_tokens(window.weight(original, message_tokens(original, counter)), factor)
        is_truncated = message.parts != original.parts and full_tokens > tokens
        state: State = "truncated" if is_truncated else "included"
        reason = "the event, truncated (the ledger will contain all of it)" if is_truncated else "the event"
        if not is_truncated:
            full_tokens = tokens
        yield ExplainedLine(state, "event", "current", message.role, reason, tokens, full_tokens, text=excerpt(message))


def _token_lines(ctx: AssembledContext, slot: str) -> list[TokenLine]:
    return [line for line in ctx.accounting.token_breakdown if line.slot == slot]
