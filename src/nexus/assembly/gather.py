"""Blocks from their sources, as system prompt, preamble and notes of the current message.

Each layer stays within the share of the budget that the profile gives it. Apart from the sources, this module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec.structs import replace

from nexus.assembly.fit.result import FixedTokens
from nexus.assembly.fit.truncate_results import LEAST_TOKENS, truncate_text
from nexus.assembly.fit.window import Window
from nexus.assembly.formats.registry import block_openings
from nexus.assembly.inputs import AssemblyInputs
from nexus.errors import BudgetTooSmall
from nexus.text.message_text import escape_note
from nexus.tokens.counter import TokenCounter
from nexus.tokens.message_tokens import text_tokens_json, tools_tokens
from nexus.tokens.scale import TokenScale
from nexus.types.block import Block, ContextWarning, Slot
from nexus.types.message import Message, Note, Text
from nexus.types.profile import STORED_NOTES, Profile, Share
from nexus.types.request import Event, Request, meta_of_user
from nexus.types.sanitize import sanitize_text
from nexus.types.tool_definition import ToolSpec, canonical
from nexus.workspace.files.reader import LAST_TEXT_USED, UNREADABLE
from nexus.workspace.source_context import SourceContext, drop_repeated_files
from nexus.workspace.sources.session_blocks import SURROUNDINGS_SOURCE
from nexus.workspace.times import DATE_TIME_SOURCE, FRESH_MS

REQUEST_TOKENS = 40
"""Allowance for the rest of a request body: keys, model name, cache breakpoints."""

SYSTEM_SOURCE = "nexus:system"
"""Source of the application's own system prompt."""

HOPELESS = 1.25
"""Share of the remaining tokens over which a text is refused as it is. Its tokens change when frame tags are escaped."""

LONG_TEXT = 20_000
"""Characters up to which a text is always fitted, so that the error has the exact number of tokens."""


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """The system prompt's blocks and the tools, with their base tokens."""

    blocks: list[Block]
    text: str
    tools: tuple[ToolSpec, ...]
    fixed: FixedTokens
    warnings: list[ContextWarning]


def gather_system(request: Request, profile: Profile, inputs: AssemblyInputs) -> SystemPrompt:
    """Return the system prompt and the tools."""
    blocks, warnings = gather_slot(profile.system, "system", profile, inputs)
    blocks.extend(session_instructions(inputs.session.instructions))
    if inputs.last.frozen_blocks is not None:
        volatile = ""
        if inputs.source_context.clock == "system":
            volatile = SURROUNDINGS_SOURCE
        frozen = [block for block in inputs.last.frozen_blocks if block.source != SYSTEM_SOURCE]
        blocks, warnings = merge_frozen_blocks(frozen, blocks, warnings, request.settings.skills, volatile)
    if request.settings.system:
        blocks.insert(0, Block("Workspace", "system", request.settings.system, SYSTEM_SOURCE, trust="system"))
    text = "\n\n".join(sanitize_text(block.text) for block in blocks)
    if inputs.tools is None:
        tools = canonical(request.tools)
    else:
        tools = inputs.tools
    counter = inputs.scale.counter
    fixed = FixedTokens(
        system=text_tokens_json(text, counter) + REQUEST_TOKENS,
        tools=tools_tokens([spec.counted() for spec in tools], counter) if tools else 0,
    )
    return SystemPrompt(blocks, text, tools, fixed, warnings)


def check_event_size(event: Event, scale: TokenScale, system: SystemPrompt) -> None:
    """Refuse a user's text that no cut makes room for, before it is escaped, copied and fitted.

    Raises BudgetTooSmall, in provider tokens.
    """
    text = "\n".join(part.text for part in event.content if isinstance(part, Text))
    available = scale.available - system.fixed.total
    if len(text) <= max(LONG_TEXT, available // 4):
        return
    tokens = text_tokens_json(text, scale.counter)
    if tokens > HOPELESS * max(available, 0):
        parts = {"system": system.fixed.system, "tools": system.fixed.tools, "current event": tokens}
        raise scale.scaled(BudgetTooSmall(scale.available, sum(parts.values()), parts, is_lower_bound=True))


def gather_current(
    request: Request, profile: Profile, inputs: AssemblyInputs, previous: Iterable[Block]
) -> tuple[list[Block], list[ContextWarning]]:
    """Return the blocks of the current message, and warnings.

    Within a turn these are attached files, because the rest was sent before, and a new timestamp if the last is old. A
    stored user message has its notes already.
    """
    event = request.event
    names = profile.current
    stored = inputs.stored_event
    if stored is not None and any(message.role == "user" for message in stored.messages):
        return [], []
    if event.results:
        wanted = {STORED_NOTES, *(("attachments",) if event.attachments else ())}
        if "date_time" in names and not event.content and _is_time_stale(inputs.source_context, inputs.window):
            wanted.add("date_time")
        names = tuple(name for name in names if name in wanted)
    return gather_slot(names, "current", profile, inputs, previous=previous)


def gather_slot(
    names: Iterable[str],
    slot: Slot,
    profile: Profile,
    inputs: AssemblyInputs,
    *,
    source_context: SourceContext | None = None,
    previous: Iterable[Block] = (),
) -> tuple[list[Block], list[ContextWarning]]:
    """Return the blocks of the named sources, in order, and warnings.

    A file that is already in these blocks or in a `previous` block is omitted. If a layer exceeds its ceiling, a share
    of the available tokens, its largest blocks are truncated.
    """
    context = source_context or inputs.source_context
    blocks: list[Block] = []
    warnings: list[ContextWarning] = []
    source_of_file = {file: block.source for block in previous for file in block.files}
    for name in names:
        if name not in inputs.sources:
            warnings.append(ContextWarning("nexus:profile", f"source '{name}' not found; omitted (check the profile)"))
            continue
        read_blocks, notes = _with_last_texts(*inputs.sources[name](context), inputs.last.read_blocks)
        new, repeats = drop_repeated_files(read_blocks, source_of_file)
        blocks.extend(block if block.slot == slot else replace(block, slot=slot) for block in new)
        warnings.extend((*notes, *repeats))
    for share in profile.shares:
        if share.ceiling < 1:
            limit = int(share.ceiling * inputs.scale.budget.available)
            warnings.extend(_truncate_layer(blocks, share, limit, inputs.scale.counter))
    return blocks, warnings


def _with_last_texts(
    blocks: list[Block], warnings: list[ContextWarning], last_blocks: Callable[[], tuple[Block, ...]]
) -> tuple[list[Block], list[ContextWarning]]:
    """Return a source's blocks, with the last call's in place of those whose files cannot be read for a passing reason.

    An agent must not lose its rules because the process has no file handle left.
    """
    unread = {w.source for w in warnings if UNREADABLE in w.message and not w.message.endswith(LAST_TEXT_USED)}
    stored = {block.source: block for block in last_blocks() if block.source in unread} if unread else {}
    if not stored:
        return blocks, warnings
    order = [block.source for block in last_blocks()]
    merged = [*(block for block in blocks if block.source not in stored), *stored.values()]
    merged.sort(key=lambda block: order.index(block.source) if block.source in order else len(order))
    return merged, [*warnings, *(ContextWarning(source, f"{LAST_TEXT_USED}, from the last call") for source in stored)]


def session_instructions(messages: Iterable[Message]) -> list[Block]:
    """Return the session's opening system messages as blocks of the system prompt, where no cut reaches them."""
    texts = (message.text() for message in messages)
    return [
        Block("Session", "session instructions", f"# Session instructions\n\n{text}", "nexus:session")
        for text in texts
        if text
    ]


def preamble_messages(blocks: Iterable[Block]) -> tuple[Message, ...]:
    """Return one user message per block; a block that continues the one before it becomes a further text of it.

    Blocks of other sources are escaped, because they appear among the format's own blocks.
    """
    messages: list[tuple[Text, ...]] = []
    openings = cache(block_openings)
    for block in blocks:
        opening = openings().get(block.source)
        is_escaped = opening is not None and (block.continues or block.text.startswith(opening))
        text = Text(sanitize_text(block.text if is_escaped else escape_note(block.text, block.source)))
        if block.continues and messages:
            messages[-1] = (*messages[-1], text)
        else:
            messages.append((text,))
    return tuple(Message("user", parts) for parts in messages)


def event_messages(event: Event, notes: list[Block], at_ms: int) -> tuple[Message, ...]:
    """Return the event as it will be stored: results, earlier user messages, then one with its notes before the content."""
    before = (*event.results, *event.preceding)
    if before and not event.content and not notes:
        return before
    parts = (*(Note("moment" if n.layer == "Event" else "memory", n.text, n.source) for n in notes), *event.content)
    meta = meta_of_user(event, at_ms) if notes else ""
    message = Message("user", parts, event.id, at_ms, source=event.source, meta=meta, received=event.received)
    return (*before, message)


def merge_frozen_blocks(
    frozen: Iterable[Block],
    blocks: Iterable[Block],
    warnings: list[ContextWarning],
    skills: Iterable[str],
    volatile: str = "",
) -> tuple[list[Block], list[ContextWarning]]:
    """Return the frozen blocks plus new ones, with warnings about changed files.

    New blocks are skills that the request names and the session's instructions, which are not files. Changed files are
    shown after the next compaction. The block of the source `volatile` is never frozen.
    """
    current = list(blocks)
    updates = {block.source: block for block in current if block.source == volatile}
    before = [updates.get(block.source, block) for block in frozen]
    before_ids = set(map(_identity, before))
    current_ids = set(map(_identity, current))
    skill_names = {f"skill {name}" for name in skills}
    remaining = [block for block in before if block.layer != "Session" or _identity(block) in current_ids]
    added = [b for b in current if (b.layer == "Session" or b.name in skill_names) and _identity(b) not in before_ids]
    removed = [block for block in remaining if _identity(block) not in current_ids]
    new = [block for block in current if _identity(block) not in before_ids and block not in added]
    changed = dict.fromkeys(block.source for block in (*removed, *new) if block.name not in skill_names)
    message = "changed on disk; this session keeps the old text until the next compaction or clear"
    return [*remaining, *added], [*warnings, *(ContextWarning(source, message) for source in changed)]


def _identity(block: Block) -> tuple[str, str, str]:
    return block.name, block.source, block.hash


def _truncate_layer(blocks: list[Block], share: Share, limit: int, counter: TokenCounter) -> Sequence[ContextWarning]:
    """Truncate the largest blocks of a layer, in place, until they fit in `limit` or none can be shorter."""
    sizes = {index: text_tokens_json(b.text, counter) for index, b in enumerate(blocks) if b.layer == share.layer}
    warnings: list[ContextWarning] = []
    for index in sorted(sizes, key=lambda at: (-sizes[at], at)):
        excess = sum(sizes.values()) - limit
        if excess <= 0:
            break
        block = blocks[index]
        text = truncate_text(block.text, max(sizes[index] - excess, LEAST_TOKENS), counter, block.source)
        omitted = len(block.text) - len(text)
        if omitted <= 0:
            continue
        sizes[index] = text_tokens_json(text, counter)
        blocks[index] = replace(block, text=text, omitted_chars=block.omitted_chars + omitted)
        message = (
            f"truncated by {omitted:,} characters: layer {share.layer} is limited to {share.ceiling:.0%} of the budget"
        )
        warnings.append(ContextWarning(block.source, message))
    return warnings


def _is_time_stale(sources: SourceContext, window: Window) -> bool:
    """Return True if the history's last timestamp is too old for a tool loop, or if it has messages but none."""
    if sources.clock != "message":
        return False
    for row in reversed(window.rows):
        if any(isinstance(part, Note) and part.origin == DATE_TIME_SOURCE for part in row.message.parts):
            return sources.at_ms - row.message.at_ms > FRESH_MS
    return bool(window.rows)
