"""Document 000's tagged dialogue as text: five messages whose blocks begin with a tag in square brackets.

`entries` makes the memory's entries of neutral rows (merging by run, the newest, shortened), `memory` prints them and
reads them back, `annotation` has the lines of tool calls, `blocks` the other blocks, `times` the times in a zone. What
is printed can be read back exactly: `parse(print(x)) == x`. Whatever could be taken for a mark in a text is made
harmless by `nexus.text.frames`; document 000's own characters come out wherever a text has no mark in it.
"""

from __future__ import annotations

from nexus.render.tagged.annotation import annotation_text, parse_annotation
from nexus.render.tagged.blocks import (
    capabilities_block,
    constraints_block,
    friends_block,
    moment_block,
    mood_block,
    parse_capabilities,
    parse_constraints,
    parse_friends,
    parse_moment,
    parse_mood,
)
from nexus.render.tagged.entries import (
    LIMIT,
    Ai,
    DialogueCall,
    DialogueRow,
    Entry,
    Human,
    MemoryEntries,
    MergedEntry,
    memory_entries,
    merge_rows,
)
from nexus.render.tagged.memory import memory_block, memory_parts, parse_memory
from nexus.render.tagged.shorten import TEXT_CHARS, truncate_at_grapheme
from nexus.render.tagged.times import UNKNOWN_TIME, memory_time, moment_time
from nexus.render.tagged.use import ToolUse, tool_use

__all__ = [
    "LIMIT",
    "TEXT_CHARS",
    "UNKNOWN_TIME",
    "Ai",
    "DialogueCall",
    "DialogueRow",
    "Entry",
    "Human",
    "MemoryEntries",
    "MergedEntry",
    "ToolUse",
    "annotation_text",
    "capabilities_block",
    "constraints_block",
    "friends_block",
    "memory_block",
    "memory_entries",
    "memory_parts",
    "memory_time",
    "merge_rows",
    "moment_block",
    "moment_time",
    "mood_block",
    "parse_annotation",
    "parse_capabilities",
    "parse_constraints",
    "parse_friends",
    "parse_memory",
    "parse_moment",
    "parse_mood",
    "tool_use",
    "truncate_at_grapheme",
]
