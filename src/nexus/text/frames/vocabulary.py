"""The frame tags that text from elsewhere must not be able to write, as data.

Most tags are named by the documented prompt formats; Nexus writes the others around messages and in place of omitted
ones. Tags are recognized in any case, in look-alike letters and brackets, and with or without white space, dashes,
underscores or invisible characters between their letters.
"""

from __future__ import annotations

MARKS_VERSION = 1
"""Raised with every change of a tag or of the table of shapes: text is unescaped by the version that escaped it."""

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
"""Tags at the beginning of a line; the first ten are from the documented formats."""

CALLS = ("[tool_use:", "; tool_use:")
"""Tags anywhere: the first and each further entry of a line of tool calls."""

TAGS = ("human_input", "current_time")
"""Tags anywhere, as `<name` and `</name`. With white space after the `<`, an opening tag counts only if it is closed:
code contains comparisons such as `now < current_time`."""

ROLES = ("Human:", "Nexus:")
"""Tags at the beginning of a line of the flattened memory, alone or after a bracket (`[2025-12-10 15:30]`)."""
