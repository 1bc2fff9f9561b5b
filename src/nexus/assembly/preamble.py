"""Blocks that are messages: what a form puts between the system slot and the conversation (document 000). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nexus.assembly.fit.window import Window
from nexus.render.tagged.entries import MergedEntry, merge_rows
from nexus.text.frames.beside import escape_note
from nexus.types.block import Block
from nexus.types.history import OLDER_ENTRIES, SUMMARY_MARKER, PreviousTurns
from nexus.types.ledger_entries import Cut, MessageRef
from nexus.types.message import Message, Text
from nexus.types.profile import ONE_TURN, Profile
from nexus.types.sanitize import sanitize_text
from nexus.workspace.sources.tagged_blocks import kept_entries, rows_of

FEWER = (20, 12, 6, 3, 1, 0)
"""How many earlier entries a context tells of: fewer where the budget has no room for more (document 000, "Adaptive Limits")."""


def entry_limits(profile: Profile, earlier: PreviousTurns, last: Mapping[str, Any] | None) -> tuple[int, ...]:
    """The numbers of entries to try, one after the other. `last` is the manifest of the turn's call before, if any.

    Within a turn as many are told as before, so that what stands before the conversation stays the same.
    """
    if profile.message_format not in ONE_TURN:
        return (earlier.max_entries,)
    most = earlier.max_entries if last is None else min(int(last.get("entries", 0)), earlier.max_entries)
    return (most, *(fewer for fewer in FEWER if fewer < most))


TAGS = {
    "nexus:capabilities": "[CAPABILITIES]\n",
    "nexus:shared_memory": "[SHARED_MEMORY",
    "nexus:pins": f"{SUMMARY_MARKER}\n",
    "nexus:summary": f"{SUMMARY_MARKER}\n",
    "nexus:user_profile": "[FRIENDS_INFO]\n",
    "fed:mood": "[MOOD]\n",
    "fed:constraints": "[CONSTRAINTS]\n",
}
"""How the blocks of the tagged form begin, by their origins: what stands in these is harmless already."""


def preamble_messages(blocks: Iterable[Block]) -> tuple[Message, ...]:
    """One user message for each block; one that continues the block before it is a further text of that message.

    The text of any other source than those of the form is made harmless here: it stands among the form's blocks.
    """
    made: list[tuple[Text, ...]] = []
    for block in blocks:
        text = Text(sanitize_text(_harmless(block)))
        if block.continues and made:
            made[-1] = (*made[-1], text)
        else:
            made.append((text,))
    return tuple(Message("user", parts) for parts in made)


def _harmless(block: Block) -> str:
    tag = TAGS.get(block.source)
    if tag is not None and (block.continues or block.text.startswith(tag)):
        return block.text
    return escape_note(block.text, block.source)


def covered_messages(profile: Profile, earlier: PreviousTurns) -> tuple[int, frozenset[MessageRef]]:
    """How many earlier entries the blocks tell of, and the places of the messages in them."""
    if profile.message_format not in ONE_TURN:
        return 0, frozenset()
    shown = _shown(profile, earlier)
    places = (earlier.rows[at][1].place for entry in shown for at, _ in entry.rows)
    return len(shown), frozenset(places) | {row.place for _, row in earlier.pinned if row.message.role != "tool"}


def plan_eviction(profile: Profile, earlier: PreviousTurns, window: Window, view: str, number: int) -> Cut | None:
    """The cut by which older entries leave a memory that otherwise only grows; None where all of them are told."""
    if profile.message_format != "tagged_stable":
        return None
    groups, shown = merge_rows(rows_of(earlier))[0], _shown(profile, earlier)
    if len(shown) == len(groups):
        return None
    first = earlier.rows[shown[0].rows[0][0]][1].place if shown else window.first
    gone = sum(len(group.rows) for group in groups[: len(groups) - len(shown)])
    return Cut(view, number, window.head, first, "", gone, 0, 0, reason=OLDER_ENTRIES)


def _shown(profile: Profile, earlier: PreviousTurns) -> Sequence[MergedEntry]:
    groups = merge_rows(rows_of(earlier))[0]
    most = kept_entries(earlier) if profile.message_format == "tagged_stable" else earlier.max_entries
    return groups[-most:] if most else []
