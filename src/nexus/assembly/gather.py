"""Blocks from their sources, each layer within the share of the budget that the profile gives it. Pure but for the sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nexus.assembly.fit.clip import LEAST_TOKENS, truncate_text
from nexus.tokens.counter import TokenCounter
from nexus.tokens.measure import text_tokens_json
from nexus.types.block import Block, ContextWarning, Slot
from nexus.types.context_record import meta_of_user
from nexus.types.message import Message, Note
from nexus.types.profile import Share
from nexus.types.request import Event
from nexus.workspace.source_context import Source, SourceContext, drop_repeated_files


def gather(
    names: Iterable[str],
    slot: Slot,
    sources: Mapping[str, Source],
    desk: SourceContext,
    shares: Sequence[Share],
    most: int,
    counter: TokenCounter,
    earlier: Iterable[Block] = (),
) -> tuple[list[Block], list[ContextWarning]]:
    """The blocks of the named sources, in order, each in the slot that it was asked for; and what the user should know.

    A file whose text stands already, here or in an `earlier` block of the same context, is left out. A layer over its
    ceiling, a share of `most` base tokens, has its largest blocks shortened, head and tail kept, with a line that says so.
    """
    blocks: list[Block] = []
    warned: list[ContextWarning] = []
    seen = {file: block.source for block in earlier for file in block.files}
    for name in names:
        if name not in sources:
            warned.append(
                ContextWarning("nexus:profile", f"there is no source {name!r}, which the profile names: left out")
            )
            continue
        found, notes = sources[name](desk)
        new, repeats = drop_repeated_files(found, seen)
        blocks.extend(block if block.slot == slot else replace(block, slot=slot) for block in new)
        warned.extend((*notes, *repeats))
    for share in shares:
        if share.ceiling < 1:
            warned.extend(_within(blocks, share, int(share.ceiling * most), counter))
    return blocks, warned


def session_instructions(messages: Iterable[Message]) -> list[Block]:
    """System messages that open a session belong to the system slot, where a cut never reaches them."""
    texts = [message.text() for message in messages]
    origin = "nexus:session"
    return [
        Block("Session", "session instructions", f"# Session instructions\n\n{text}", origin) for text in texts if text
    ]


def event_messages(event: Event, notes: list[Block], at_ms: int) -> tuple[Message, ...]:
    """The event as it will be stored: results as they are, then one user message with its notes before the content."""
    if event.results and not event.content and not notes:
        return event.results
    parts = (*(Note("moment" if n.layer == "Event" else "memory", n.text, n.source) for n in notes), *event.content)
    meta = meta_of_user(event, at_ms) if notes else ""
    message = Message("user", parts, event.id, at_ms, source=event.source, meta=meta)
    return (*event.results, message)


def merge_frozen_blocks(
    frozen: Iterable[Block],
    blocks: Iterable[Block],
    warned: list[ContextWarning],
    skills: Iterable[str],
    fresh: str = "",
) -> tuple[list[Block], list[ContextWarning]]:
    """The blocks that a session's system slot began with; what this call adds after them; and what has changed.

    Added are skills that the request names and system messages of the session, which are no files. What a file says now is
    shown after the next compaction; a warning says so for each. The block of the origin `fresh` is as it is now.
    """
    now = list(blocks)
    moved = {block.source: block for block in now if block.source == fresh}
    before = [moved.get(block.source, block) for block in frozen]
    shown, told = set(map(_identity, before)), set(map(_identity, now))
    asked = {f"skill {name}" for name in skills}
    kept = [block for block in before if block.layer != "Session" or _identity(block) in told]
    added = [b for b in now if (b.layer == "Session" or b.name in asked) and _identity(b) not in shown]
    gone = [block for block in kept if _identity(block) not in told]
    new = [block for block in now if _identity(block) not in shown and block not in added]
    changed = dict.fromkeys(block.source for block in (*gone, *new) if block.name not in asked)
    why = "it is not the same any more: this session shows it as it was until it is compacted or cleared"
    return [*kept, *added], [*warned, *(ContextWarning(origin, why) for origin in changed)]


def _identity(block: Block) -> tuple[str, str, str]:
    return block.name, block.source, block.hash


def _within(blocks: list[Block], share: Share, most: int, counter: TokenCounter) -> list[ContextWarning]:
    """Shortens the largest blocks of a layer, in place, until they take `most` together or none can be shorter."""
    own = {index: text_tokens_json(b.text, counter) for index, b in enumerate(blocks) if b.layer == share.layer}
    warned: list[ContextWarning] = []
    for index in sorted(own, key=lambda at: (-own[at], at)):
        over = sum(own.values()) - most
        if over <= 0:
            break
        block = blocks[index]
        text = truncate_text(block.text, max(own[index] - over, LEAST_TOKENS), counter, block.source)
        cut = len(block.text) - len(text)
        if cut <= 0:
            continue
        own[index] = text_tokens_json(text, counter)
        blocks[index] = replace(block, text=text, omitted_chars=block.omitted_chars + cut)
        told = f"shortened by {cut:,} characters: layer {share.layer} may take {share.ceiling:.0%} of the budget"
        warned.append(ContextWarning(block.source, told))
    return warned
