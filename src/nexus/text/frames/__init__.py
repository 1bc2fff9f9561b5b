"""Frames that text cannot forge: what opens or closes one is escaped in all text that stands inside, and undone exactly.

`escape` and `unescape` are for texts, `one_line` and `un_one_line` for values that must stay on their line, and
`scanner` finds what a careless reader could take for a mark, by rules of its own. Only text that Nexus puts into a frame of
its own is escaped: what has a real role (an assistant's message, a tool's call or result) is never touched. `frames.beside` does so for a
user's message that has notes.
docs/frames.md is for readers of escaped text.
"""

from __future__ import annotations

from nexus.text.frames.escaping import escape, unescape
from nexus.text.frames.line_value import one_line, un_one_line
from nexus.text.frames.places import Scope
from nexus.text.frames.scanner import Sighting, scan
from nexus.text.frames.vocabulary import MARKS_VERSION

__all__ = ["MARKS_VERSION", "Scope", "Sighting", "escape", "one_line", "scan", "un_one_line", "unescape"]
