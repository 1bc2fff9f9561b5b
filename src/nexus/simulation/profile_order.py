"""A profile looked at in one workspace: its sources with slot, volatility and size, and what its order costs.

A provider's cache keeps a prompt's beginning up to the first byte that differs. What stands in the system slot stands
before the whole history, so a source there that changes with each turn costs all that follows it, in every call. What
changes with a session or with files costs only what is more stable and stands after it, when it changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nexus.assembly.formats.registry import FORMATS
from nexus.context import AssembledContext, TokenLine
from nexus.engine import NEXT_MESSAGE, Engine
from nexus.profiles.user.registry import ResolvedProfile
from nexus.providers.prompt_cache import price_of_break
from nexus.types.block import ContextWarning, Slot
from nexus.types.message import Text
from nexus.types.profile import Profile
from nexus.workspace.source_context import SourceContext, SourceResult
from nexus.workspace.sources.app_blocks import app_block_name
from nexus.workspace.sources.registry import SOURCES, Volatility

ORDER: tuple[Volatility, ...] = ("never", "files", "session", "turn")

WHEN: dict[Volatility, str] = {
    "never": "never",
    "files": "with files",
    "session": "with the session",
    "turn": "with each turn",
}
"""How a volatility is told."""

MOST_NAMED = 3
"""Sources that a text names, of many; the values have all."""

LATER_MS = 3_600_000
"""How much later the other message comes, for which a source of others is asked a second time."""

SEEN = " (already in the history)"
"""How the account marks a block that the history shows."""

Level: TypeAlias = Literal["warning", "note"]


class SlotRow(Struct, frozen=True):
    """A source of a profile: what it takes now, in the model's tokens, and the origins of its blocks.

    `changes` is empty where nobody declared it, for plugins' sources and those of a Python file, unless the text for a
    later message is another one.
    """

    slot: Slot
    source: str
    changes: Volatility | Literal[""]
    tokens: int = 0
    origins: tuple[str, ...] = ()


class OrderFinding(Struct, frozen=True):
    """Sources that stand before what is more stable: what the provider's cache cannot reuse then, and its price.

    A `warning` costs `tokens` and `dollars` (None without prices) in each call, a `note` whenever one of them changes. In
    a frozen system slot nothing is lost, but what changes is shown as it was.
    """

    level: Level
    sources: tuple[str, ...]
    changes: Volatility
    before: tuple[str, ...]
    tokens: int
    dollars: float | None
    text: str


class ProfileReport(Struct, frozen=True):
    """A profile in a workspace: where it comes from, its rows, what was found, and what is to be said otherwise."""

    name: str
    origin: str
    profile: Profile
    model: str
    rows: tuple[SlotRow, ...]
    history_tokens: int
    findings: tuple[OrderFinding, ...]
    warned: tuple[ContextWarning, ...]


def check_profile_order(
    nx: Engine, name: str, *, session: str | None = None, model: str = "", budget: int | None = None
) -> ProfileReport:
    """The profile as a session's next call would have it. Raises UnknownProfile, BadProfile, and what `assemble` does."""
    found = nx.profiles.resolve_with_source(name)
    ctx = nx.assemble(NEXT_MESSAGE, session=session, model=model, budget=budget, profile=name)
    rows = tuple(_rows(nx, found, ctx))
    history = sum(item.tokens for item in ctx.accounting.token_breakdown if item.slot == "history")
    said = {"nexus:profile"} | {one.source for one in found.warnings}
    warned = tuple(one for one in ctx.warnings if one.source in said)
    profile = found.profile
    if "attachments" not in (*profile.system, *profile.current):
        text = "it does not name attachments: files that come with a message are not shown"
        warned = (*warned, ContextWarning("nexus:profile", text))
    findings = tuple(_findings(rows, profile, ctx, history))
    return ProfileReport(name, found.source, profile, ctx.model, rows, history, findings, warned)


def changes_of(source: str) -> Volatility | Literal[""]:
    """When a source's text changes; empty where nobody declared it."""
    if app_block_name(source):
        return "turn"
    return SOURCES[source].changes if source in SOURCES else ""


def _rows(nx: Engine, found: ResolvedProfile, ctx: AssembledContext) -> Iterator[SlotRow]:
    """Each source with what the account has of it: the blocks that it gives are found there by origin and name."""
    request = ctx.provenance.request
    assert request is not None, "a context that was just assembled knows its request"
    profile, sources = found.profile, nx.profiles.sources(found)
    at_ms = request.event.at_ms or nx.clock_ms()
    desk = SourceContext(request, nx.workspace_context, at_ms, str(nx.timezone), nx.replay_deps.survey())
    items: dict[tuple[str, str], list[TokenLine]] = {}
    for item in ctx.accounting.token_breakdown:
        items.setdefault((item.source, item.name.removesuffix(SEEN)), []).append(item)
    slots: tuple[tuple[Slot, tuple[str, ...]], ...] = (
        ("system", profile.system),
        ("ahead", profile.preamble),
        ("current", profile.current),
    )
    for slot, names in slots:
        for name in names:
            source = sources.get(name, _nothing)
            blocks = source(desk)[0]
            places = dict.fromkeys((block.source, block.name) for block in blocks)
            taken = [item for place in places for item in items.get(place, ())]
            origins = tuple(dict.fromkeys(item.source for item in taken))
            changes = changes_of(name)
            if not changes and source(_later(desk))[0] != blocks:
                changes = "turn"
            yield SlotRow(slot, name, changes, sum(item.tokens for item in taken), origins)


def _nothing(_: SourceContext) -> SourceResult:
    return [], []


def _later(desk: SourceContext) -> SourceContext:
    """The desk of another message, later: what a source of others shows should be the same there."""
    later = replace(desk.request.event, content=(Text("(a later message)"),), id="later")
    return dataclasses.replace(desk, request=replace(desk.request, event=later), at_ms=desk.at_ms + LATER_MS)


def _findings(rows: Sequence[SlotRow], profile: Profile, ctx: AssembledContext, history: int) -> Iterator[OrderFinding]:
    system = [row for row in rows if row.slot in ("system", "ahead")]
    opening = sum(
        item.tokens for item in ctx.accounting.token_breakdown if item.slot == "system" and item.layer == "Session"
    )
    if opening:
        system.append(SlotRow("system", "the session's instructions", "session", opening))
    if profile.freeze_system_prompt:
        stale = [row.source for row in system if row.slot == "system" and row.changes == "turn"]
        if stale:
            yield _stale(stale)
        system = [replace(row, changes="never") if row.slot == "system" else row for row in system]
    for volatility in reversed(ORDER[1:]):
        first = next((at for at, row in enumerate(system) if _moves(row, volatility)), None)
        if first is None:
            continue
        # In a form of one turn the history is that turn, in which all blocks stay.
        to_end = volatility == "turn" and not FORMATS[profile.message_format].shows_one_turn
        behind = [
            row for row in system[first:] if row.changes != "" and _rank(row) < ORDER.index(volatility) and row.tokens
        ]
        last = max((at for at, row in enumerate(system) if row in behind), default=len(system))
        movers = [row.source for at, row in enumerate(system) if _moves(row, volatility) and (to_end or at < last)]
        tokens = sum(row.tokens for row in behind) + (history if to_end else 0)
        before = [row.source for row in behind] + (["the history"] if to_end else [])
        if before:
            yield _finding(movers, volatility, before, tokens, ctx, profile)


def _moves(row: SlotRow, volatility: Volatility) -> bool:
    """Whether a source of that volatility is there. One that changes with each turn may be there in the next."""
    return row.changes == volatility and (volatility == "turn" or row.tokens > 0)


def _rank(row: SlotRow) -> int:
    return ORDER.index(cast("Volatility", row.changes))


def _stale(sources: Sequence[str]) -> OrderFinding:
    """Sources that could say something else with each turn, in a slot that stays as a session's first call had it."""
    change, stand, them = ("change", "stand", "them") if len(sources) > 1 else ("changes", "stands", "it")
    text = (
        f"{_joined(sources)} {change} with each turn and {stand} in a frozen system slot: a session shows {them} as its "
        f"first call had {them}. Name {them} in `current`"
    )
    return OrderFinding("warning", tuple(sources), "turn", (), 0, None, text)


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
    often = "in each call" if level == "warning" else "whenever one of them changes"
    cost = "" if price is None else f", which costs {price:.6f} USD ({ctx.model})"
    lost = f"{tokens:,} tokens cannot be read from the provider's cache {often}{cost}"
    change, stand, them = ("change", "stand", "them") if len(sources) > 1 else ("changes", "stands", "it")
    where = "in the system slot before" if any(one in profile.system for one in sources) else "before"
    text = f"{_joined(sources)} {change} {WHEN[changes]} and {stand} {where} {_joined(before)}: {lost}"
    if level == "warning" and where != "before":
        text = f"{text}. Name {them} in `current`"
    return OrderFinding(
        level, tuple(sources), changes, tuple(before), tokens, None if price is None else float(price), text
    )


def _joined(names: Sequence[str]) -> str:
    """The names as words; of many the first ones, the last, and how many lie between."""
    *first, last = names
    if len(first) > MOST_NAMED:
        first = [*first[:MOST_NAMED], f"{len(first) - MOST_NAMED} more"]
    return f"{', '.join(first)} and {last}" if first else last


def as_json_value(looked: ProfileReport) -> dict[str, Any]:
    """What was seen, as JSON values."""
    found = msgspec.to_builtins(looked)
    profile = found.pop("profile")
    kept = ("what", "form", "summary", "says_start", "frozen", "shares")
    return {**found, **{name: profile[name] for name in kept}}
