"""The tagged dialogue of document 000 as text: five messages whose blocks begin with a tag in square brackets.

`entries` turns rows of a history into entries (merged by run, the newest, truncated), `memory` formats and parses them,
`blocks` has the other blocks. Parsing is exact: `parse(format(x)) == x`. Frame tags in texts are escaped by
`nexus.text.frames`; a text without a tag is formatted with the document's own characters.
"""

from __future__ import annotations

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
    TEXT_CHARS,
    UNKNOWN_TIME,
    Ai,
    DialogueCall,
    DialogueRow,
    Entry,
    Human,
    MemoryEntries,
    MergedEntry,
    ToolUse,
    memory_entries,
    memory_time,
    merge_rows,
    moment_time,
    tool_use,
    truncate_at_grapheme,
)
from nexus.render.tagged.memory import annotation_text, memory_block, memory_parts, parse_annotation, parse_memory

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
