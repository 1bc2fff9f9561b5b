"""Frames that text cannot forge: what opens or closes one is escaped in all text that stands inside, and undone exactly.

`escape` and `unescape` are for texts, `escape_line_breaks` and `unescape_line_breaks` for values that must stay on their line, and
`scanner` finds what a careless reader could take for a mark, by rules of its own. Only text that Nexus puts into a frame of
its own is escaped: what has a real role (an assistant's message, a tool's call or result) is never touched. `frames.beside` does so for a
user's message that has notes.
docs/frames.md is for readers of escaped text.
"""

from __future__ import annotations

from nexus.text.frames.escaping import escape, unescape
from nexus.text.frames.places import Scope
from nexus.text.frames.scanner import Sighting, scan
from nexus.text.frames.vocabulary import MARKS_VERSION
from nexus.text.one_line import escape_line_breaks, unescape_line_breaks

__all__ = [
    "MARKS_VERSION",
    "Scope",
    "Sighting",
    "escape",
    "escape_line_breaks",
    "scan",
    "unescape",
    "unescape_line_breaks",
]
