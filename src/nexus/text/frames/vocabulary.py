"""The marks that open or close a frame in a context, as data: what text from elsewhere must not be able to write.

Documents 000 to 004 name most of them, the rest is what Nexus writes itself around messages and in their place. Marks
are recognised whatever their case, in look-alike letters and brackets, with white space, dashes, underscores or unseen
characters between their letters, or without those that stand here.
"""

from __future__ import annotations

MARKS_VERSION = 1
"""Rises with every change of a mark or of the table of shapes: text is undone by the version that escaped it."""

HEADS = (
    "[CAPABILITIES",
    "[SHARED_MEMORY",
    "[FRIENDS_INFO",
    "[THIS_MOMENT",
    "[MOOD",
    "[CONSTRAINTS",
    "[Previous conversation summary",
    "[Runtime Context",
    "[CONTEXT SUMMARY",
    "[Session started:",
    "[result unavailable:",
    "[Earlier messages left out",
    "[Event metadata",
    "[Hook data",
    "[Attached file:",
    "[Memory — facts",
    "[System message]",
    "[The conversation starts with the assistant",
)
"""Marks where a line begins with them: the first ten are the documents'."""

CALLS = ("[tool_use:", "; tool_use:")
"""Marks anywhere: how a line of used tools begins, and how it goes on."""

TAGS = ("human_input", "current_time")
"""Marks anywhere, as `<name` and `</name`. With white space after the `<`, an opening one must be closed to count: code
compares `now < current_time`."""

ROLES = ("Human:", "Nexus:")
"""Marks where a line of the flattened memory begins with them, or with a bracket (`[2025-12-10 15:30]`) and them."""
