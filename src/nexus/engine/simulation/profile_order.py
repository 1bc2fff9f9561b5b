"""Cost of a profile's order in one workspace: each source's slot, volatility and size, and what its position breaks.

A provider's prompt cache keeps a prompt's beginning up to the first byte that differs. The system slot precedes the
whole history, so a source there that changes with each turn invalidates everything after it in every call. A source
that changes with a session or with files invalidates the more stable sources after it when it changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from nexus.assembly.formats.registry import FORMATS
from nexus.assembly.profiles.user.registry import ResolvedProfile
from nexus.context import AssembledContext, TokenLine
from nexus.engine import NEXT_MESSAGE, Engine
from nexus.providers.prompt_cache import price_of_break
from nexus.types.block import PREAMBLE, ContextWarning, Slot
from nexus.types.message import Text
from nexus.types.profile import Profile
from nexus.workspace.source_context import SourceContext
from nexus.workspace.sources.event_blocks import app_block_name
from nexus.workspace.sources.registry import SOURCES, Volatility

ORDER: tuple[Volatility, ...] = ("never", "files", "session", "turn")

WHEN: dict[Volatility, str] = {
    "never": "never",
    "files": "with files",
    "session": "with the session",
    "turn": "with each turn",
}
"""Texts for volatilities."""

MOST_NAMED = 3
"""Sources named in a text; the values list all."""

LATER_MS = 3_600_000
"""Time between the two messages for which a source of unknown volatility is called."""

IN_HISTORY = " (already in the history)"
"""Suffix of a token line whose block the history contains already."""

Level: TypeAlias = Literal["warning", "note"]


class SlotRow(Struct, frozen=True):
    """A source of a profile, with its size in the model's tokens."""

    slot: Slot
    source: str
    changes: Volatility | Literal[""]
    """Empty for plugins' sources and those of Python files, unless a later message got another text."""
    tokens: int = 0
    origins: tuple[str, ...] = ()
    """Sources of its blocks, as the token breakdown names them."""


class OrderFinding(Struct, frozen=True):
    """Sources placed before more stable ones, and what the provider's cache cannot reuse when they change."""

    level: Level
    """`warning`: in each call. `note`: whenever one of the sources changes."""
    sources: tuple[str, ...]
    changes: Volatility
    before: tuple[str, ...]
    tokens: int
    """0 in a frozen system slot, where the cache is kept and the session shows an old text instead."""
    dollars: float | None
    """Price of processing the tokens again; None without prices."""
    text: str


class ProfileReport(Struct, frozen=True):
    """A profile measured in a workspace."""

    name: str
    origin: str
    profile: Profile
    model: str
    rows: tuple[SlotRow, ...]
    history_tokens: int
    findings: tuple[OrderFinding, ...]
    warnings: tuple[ContextWarning, ...] = field(name="warned")


def check_profile_order(
    nx: Engine, name: str, *, session: str | None = None, model: str = "", budget: int | None = None
) -> ProfileReport:
    """Measure a profile as a session's next call would use it. Nothing is written.

    Arguments are those of `Engine.assemble`.

    Raises:
        NotFound, BadConfig: The profile cannot be used.
        NexusError: `assemble` failed.
    """
    resolved = nx.profiles.resolve_with_source(name)
    ctx = nx.assemble(NEXT_MESSAGE, session=session, model=model, budget=budget, profile=name)
    rows = tuple(_rows(nx, resolved, ctx))
    history = sum(line.tokens for line in ctx.accounting.token_breakdown if line.slot == "history")
    related = {"nexus:profile"} | {warning.source for warning in resolved.warnings}
    warnings = tuple(warning for warning in ctx.warnings if warning.source in related)
    profile = resolved.profile
    if "attachments" not in (*profile.system, *profile.current):
        text = "source 'attachments' missing: files that come with a message are not shown"
        warnings = (*warnings, ContextWarning("nexus:profile", text))
    findings = tuple(_findings(rows, profile, ctx, history))
    return ProfileReport(name, resolved.source, profile, ctx.model, rows, history, findings, warnings)


def _rows(nx: Engine, resolved: ResolvedProfile, ctx: AssembledContext) -> Iterator[SlotRow]:
    """Yield each source with its lines of the token breakdown, found by its blocks' source and name."""
    request = ctx.provenance.request
    assert request is not None, "a context that was just assembled has its request"
    profile = resolved.profile
    sources = nx.profiles.sources(resolved)
    at_ms = request.event.at_ms or nx.clock_ms()
    context = SourceContext(
        request, nx.workspace_context, at_ms, str(nx.settings.timezone), nx.calls.dependencies.survey()
    )
    event = replace(request.event, content=(Text("(a later message)"),), id="later")
    later = dataclasses.replace(context, request=replace(request, event=event), at_ms=at_ms + LATER_MS)
    lines: dict[tuple[str, str], list[TokenLine]] = {}
    for line in ctx.accounting.token_breakdown:
        lines.setdefault((line.source, line.name.removesuffix(IN_HISTORY)), []).append(line)
    slots: tuple[tuple[Slot, tuple[str, ...]], ...] = (
        ("system", profile.system),
        (PREAMBLE, profile.preamble),
        ("current", profile.current),
    )
    for slot, names in slots:
        for name in names:
            source = sources.get(name)
            blocks = source(context)[0] if source is not None else []
            keys = dict.fromkeys((block.source, block.name) for block in blocks)
            own_lines = [line for key in keys for line in lines.get(key, ())]
            origins = tuple(dict.fromkeys(line.source for line in own_lines))
            changes: Volatility | Literal[""] = SOURCES[name].changes if name in SOURCES else ""
            changes = "turn" if app_block_name(name) else changes
            # A plugin's source declares no volatility: call it for another message and compare.
            if not changes and source is not None and source(later)[0] != blocks:
                changes = "turn"
            yield SlotRow(slot, name, changes, sum(line.tokens for line in own_lines), origins)


def _findings(rows: Sequence[SlotRow], profile: Profile, ctx: AssembledContext, history: int) -> Iterator[OrderFinding]:
    prefix = [row for row in rows if row.slot in ("system", PREAMBLE)]
    lines = ctx.accounting.token_breakdown
    # The session's own instructions are no source of the profile, but they are sent with the system slot.
    if tokens := sum(line.tokens for line in lines if line.slot == "system" and line.layer == "Session"):
        prefix.append(SlotRow("system", "the session's instructions", "session", tokens))
    if profile.freeze_system_prompt:
        stale = tuple(row.source for row in prefix if row.slot == "system" and row.changes == "turn")
        if stale:
            change, are, them = _number(stale)
            text = (
                f"{_enumeration(stale)} {change} with each turn and {are} in a frozen system slot: a session shows "
                f"{them} as its first call did (list {them} in `current`)"
            )
            yield OrderFinding("warning", stale, "turn", (), 0, None, text)
        prefix = [replace(row, changes="never") if row.slot == "system" else row for row in prefix]
    for rank, volatility in reversed([*enumerate(ORDER)][1:]):
        # A source that changes with each turn may be empty now.
        changing = [
            index
            for index, row in enumerate(prefix)
            if row.changes == volatility and (volatility == "turn" or row.tokens > 0)
        ]
        if not changing:
            continue
        # A format that shows one turn has no other history, and all blocks stay the same within a turn.
        breaks_history = volatility == "turn" and FORMATS[profile.message_format].memory is None
        later = range(changing[0], len(prefix))
        stable = [i for i in later if prefix[i].tokens and prefix[i].changes in ORDER[:rank]]
        last = stable[-1] if stable else len(prefix)
        sources = [prefix[index].source for index in changing if breaks_history or index < last]
        tokens = sum(prefix[index].tokens for index in stable) + (history if breaks_history else 0)
        before = [prefix[index].source for index in stable] + (["the history"] if breaks_history else [])
        if before:
            yield _finding(sources, volatility, before, tokens, ctx, profile)


def _finding(
    sources: Sequence[str],
    changes: Volatility,
    before: Sequence[str],
    tokens: int,
    ctx: AssembledContext,
    profile: Profile,
) -> OrderFinding:
    price = price_of_break(tokens, ctx.accounting.model_info, prompt_tokens=ctx.token_budget.used.total)
    level: Level = "warning" if changes == "turn" else "note"
    frequency = "whenever one of them changes"
    if level == "warning":
        frequency = "in each call"
    if price is None:
        cost = ""
    else:
        cost = f", which costs {price:.6f} USD ({ctx.model})"
    uncached = f"{tokens:,} tokens cannot be read from the provider's cache {frequency}{cost}"
    change, are, them = _number(sources)
    in_system = any(source in profile.system for source in sources)
    position = "before"
    if in_system:
        position = "in the system slot before"
    text = f"{_enumeration(sources)} {change} {WHEN[changes]} and {are} {position} {_enumeration(before)}: {uncached}"
    if level == "warning" and in_system:
        text = f"{text} (list {them} in `current`)"
    dollars = None if price is None else float(price)
    return OrderFinding(level, tuple(sources), changes, tuple(before), tokens, dollars, text)


def _number(sources: Sequence[str]) -> tuple[str, str, str]:
    if len(sources) > 1:
        return ("change", "are", "them")
    return ("changes", "is", "it")


def _enumeration(names: Sequence[str]) -> str:
    """Return the names as words; of many the first ones, the number omitted, and the last."""
    *first, last = names
    if len(first) > MOST_NAMED:
        first = [*first[:MOST_NAMED], f"{len(first) - MOST_NAMED} more"]
    if first:
        return f"{', '.join(first)} and {last}"
    return last
