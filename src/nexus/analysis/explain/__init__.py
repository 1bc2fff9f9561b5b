"""What became of everything that a call could have shown: each block, tool and message of the path, listed once. Pure.

The tokens of the lines add up to the context's account, line of the account by line, and so to what its budget says is
used. What is not shown says why, and what it would cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nexus.analysis.explain.history import HistoryExplainer
from nexus.analysis.explain.lines import EXCERPT_CHARS, ExplainedLine, Explanation, State, block_line, excerpt, share
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
    """The context explained. `entries` are the path's up to the window's head, `marks` those of them, newest first."""
    history = HistoryExplainer(ctx, fitted, marks).lines(entries)
    lines = [*_system(ctx, counter), *_ahead(ctx), *history, *_current(ctx, fitted, counter)]
    return Explanation(
        ctx.session_label,
        call,
        ctx.model,
        ctx.provider,
        ctx.token_budget.available,
        ctx.token_budget.used.total,
        tuple(lines),
        tuple(f"{warned.source}: {warned.message}" for warned in ctx.warnings),
    )


def _system(ctx: AssembledContext, counter: TokenCounter) -> Iterator[ExplainedLine]:
    """Blocks, framing and tools."""
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks}
    for item in _items(ctx, "system"):
        block = blocks.get((item.source, item.name))
        if item.source == "nexus:tools":
            yield from _tools(ctx, item, counter)
        elif block is None:
            why = "what stands around everything in a request"
            yield ExplainedLine(
                "included", "framing", "system", item.name, why, item.tokens, item.tokens, source=item.source
            )
        elif block.omitted_chars:
            why = f"{block.omitted_chars:,} characters are beyond the size cap"
            yield block_line("truncated", item, why, block.text)
        else:
            yield block_line("included", item, "sent with every call", block.text)
    for tool in ctx.provenance.denied_tools:
        specs = canonical([tool.definition])
        whole = to_provider_tokens(
            tools_tokens([spec.definition() for spec in specs], counter), ctx.provenance.manifest.factor
        )
        text = " ".join(" ".join(spec.description.split()) for spec in specs)[:EXCERPT_CHARS]
        yield ExplainedLine(
            "omitted", "tool", "system", tool.name, tool.why, 0, whole, source="nexus:policy", text=text
        )


def _ahead(ctx: AssembledContext) -> Iterator[ExplainedLine]:
    """Blocks that are messages, and what stands around them."""
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks if block.slot == "ahead"}
    for item in _items(ctx, "ahead"):
        block = blocks.get((item.source, item.name))
        if block is None:
            why = "what stands around the messages before the conversation"
            yield ExplainedLine(
                "included", "framing", "ahead", item.name, why, item.tokens, item.tokens, source=item.source
            )
        else:
            yield block_line("included", item, "a message before the conversation", block.text)


def _tools(ctx: AssembledContext, item: TokenLine, counter: TokenCounter) -> Iterator[ExplainedLine]:
    tools = ctx.tools
    sizes = [tools_tokens([tool.definition()], counter) for tool in tools]
    for tool, tokens in zip(tools, share(item.tokens, sizes), strict=True):
        why, text = "offered with this call", " ".join(tool.description.split())[:EXCERPT_CHARS]
        yield ExplainedLine("included", "tool", "system", tool.name, why, tokens, tokens, source=item.source, text=text)


def _current(ctx: AssembledContext, fitted: FitResult, counter: TokenCounter) -> Iterator[ExplainedLine]:
    """The blocks of the message, those that it does without, and the event."""
    for block in ctx.provenance.already_in_history:
        why = "already in the history: it is not repeated"
        yield ExplainedLine("included", "block", "current", block.name, why, 0, 0, source=block.source)
    for block in ctx.provenance.omitted_blocks:
        whole = to_provider_tokens(counter.count(block.text), ctx.provenance.manifest.factor)
        yield ExplainedLine(
            "omitted", "block", "current", block.name, "no room beside what is never cut", 0, whole, source=block.source
        )
    *placed, event = _items(ctx, "current")
    blocks = {(block.source, block.name): block for block in ctx.provenance.blocks}
    for item in placed:
        yield block_line("included", item, "chosen for this message", blocks[item.source, item.name].text)
    shown = fitted.visible[fitted.closing_count :]
    window = fitted.window
    sizes = [window.weight(message, message_tokens(message, counter)) for message in shown]
    told = fitted.given if len(fitted.given) == len(shown) else shown
    for message, given, tokens in zip(shown, told, share(event.tokens, sizes), strict=True):
        whole = to_provider_tokens(window.weight(given, message_tokens(given, counter)), ctx.provenance.manifest.factor)
        short = message.parts != given.parts and whole > tokens
        why = "the event; shortened, the ledger will have the whole" if short else "the event"
        state: State = "truncated" if short else "included"
        yield ExplainedLine(
            state, "event", "current", message.role, why, tokens, whole if short else tokens, text=excerpt(message)
        )


def _items(ctx: AssembledContext, slot: str) -> list[TokenLine]:
    return [item for item in ctx.accounting.token_breakdown if item.slot == slot]
