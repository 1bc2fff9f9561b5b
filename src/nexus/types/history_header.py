"""How a history opens, in the words of its profile: the session's start, and what stands before a summary."""

from __future__ import annotations

from msgspec import Struct

SUMMARY_MARKER = "[Previous conversation summary]"
"""Document 002's words before a summary."""

CONTEXT_SUMMARY = """[CONTEXT SUMMARY]
The following is a summary of our previous conversation. It was automatically
generated when the context window needed compaction. Treat this as established
context - you don't need to re-confirm decisions already made.

---
"""
"""Document 004's words before a summary; the time at which it was made follows."""

GENERATED = "Generated: "


SESSION_SOURCE = "nexus:session-start"
"""What marks a first message of a session as one of ours: no text that a user writes can."""


class Opens(Struct, frozen=True):
    """What the first message says of the session's start ("": there is none), and what stands before a summary."""

    begun: str = ""
    heading: str = f"{SUMMARY_MARKER}\n"


PLAIN = Opens()
