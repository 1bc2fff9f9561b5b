"""Frames that text cannot forge: frame tags inside framed text are escaped, and the escape is reversed exactly.

`escape` and `unescape` are for texts, `escape_line_breaks` and `unescape_line_breaks` for values on one line. `scan` finds
possible tags independently of the escape, to check finished contexts. Only text inside Nexus' own frames is escaped:
assistant messages, tool calls and tool results have real roles and are never changed. `frames.beside` handles user
messages with notes. docs/frames.md is written for readers of escaped text.
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
